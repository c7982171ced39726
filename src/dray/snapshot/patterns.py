"""What one line of an ignore file matches, as git reads it.

`parse_line` takes git's syntax apart (negation, folder mark, anchoring); what a glob means is pathspec's knowledge. It is
imported only when a name passes the loose test of a pattern with wildcards: most files of most folders never need it.

Known differences to git: names are matched by character, not by byte (`?` matches one `é`); upper and lower case always
differ; within `[...]` a backslash is a plain character, `[:alpha:]` is not known, and a slash ends the bracket.
"""

from __future__ import annotations

import re
import warnings

_SPECIAL = frozenset("*?[\\")
_BRACKET = re.compile(r"(?:\w|0-9|a-z|A-Z)+\]", re.ASCII)
"""The brackets that mean the same to everybody, such as the one in `run_[0-9].txt`."""
_ENDINGS = re.compile(r"\*([^*?\[\\]*)\[(\w+)\]([^*?\[\\]*)", re.ASCII | re.DOTALL)
"""`*.py[cod]` is in every ignore file, and three endings are quicker to look for than a regex."""


class Pattern:
    """One line. `segments` has one entry for a pattern that matches at any depth, by name alone."""

    __slots__ = (
        "_exact",
        "_kind",
        "_text",
        "_texts",
        "by_name",
        "dir_only",
        "line",
        "negated",
        "segments",
        "text",
    )

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        self.text = text
        """The pattern as it stands in the file."""
        self.negated = text.startswith("!")
        text = text[self.negated :]
        self.dir_only = text.endswith("/")
        text = text[:-1] if self.dir_only else text
        self.by_name, self.segments = _split(text)
        self._text = "/".join(self.segments)
        self._kind, self._texts = (
            loose(self._text) if self.by_name or _is_plain(self._text) else ("regex", [])
        )
        self._exact: re.Pattern[str] | bool | None = None

    def matches(self, path: str) -> bool:
        """`path`: the entry's name if `by_name`, else its path below the pattern's folder."""
        if self._kind == "name":
            return path == self._text
        if self._kind == "suffix":
            return path.endswith(tuple(self._texts))
        if self._exact is None:
            self._exact = _translate(self._text) or False
        if isinstance(self._exact, bool) or self._exact.fullmatch(path) is None:
            return False
        # A bracket such as [!a] takes a slash in pathspec's regex, never in git's.
        return "**" in self.segments or path.count("/") == len(self.segments) - 1


def parse_line(source: str, line: int) -> Pattern | None:
    """The pattern of one line; None for a comment, an empty line and what git would never match."""
    if source.startswith("#"):
        return None
    text = _without_trailing_spaces(source.removesuffix("\r"))
    if not text.removeprefix("!").removesuffix("/").removeprefix("/"):
        return None
    return Pattern(line, text)


def loose(segment: str) -> tuple[str, list[str]]:
    """A cheap test that every name matching `segment` passes: ("name" or "suffix", texts) or ("regex", [source])."""
    if _is_plain(segment):
        return "name", [segment]
    if segment[0] == "*" and _is_plain(segment[1:]) and segment != "*":
        return "suffix", [segment[1:]]
    choice = _ENDINGS.fullmatch(segment)
    if choice is not None:
        return "suffix", [f"{choice[1]}{letter}{choice[3]}" for letter in choice[2]]
    return "regex", [_loose_regex(segment)]


def _loose_regex(segment: str) -> str:
    out = []
    position = 0
    while position < len(segment):
        char = segment[position]
        position += 1
        if char == "[":
            bracket = _BRACKET.match(segment, position)
            if bracket is None:  # where it ends, and what it means, is pathspec's business
                out.append(".*")
                break
            out.append("[" + bracket[0])
            position = bracket.end()
        elif char == "\\":
            out.append(re.escape(segment[position : position + 1]))
            position += 1
        else:
            out.append(".*" if char in "*?" else re.escape(char))
    return "".join(out)


def _is_plain(segment: str) -> bool:
    return _SPECIAL.isdisjoint(segment)


def _split(text: str) -> tuple[bool, list[str]]:
    """(matches by name alone, segments), with the many ways to write one thing reduced to one."""
    text = re.sub(
        r"\\(.)", lambda quoted: "/" if quoted[1] == "/" else quoted[0], text
    )  # a slash needs no quotes
    if "/" not in text:
        return True, ["*" if _is_stars(text) else text]
    segments: list[str] = []
    for segment in text.removeprefix("/").split("/"):
        word = "**" if _is_stars(segment) and len(segment) > 1 else segment
        if not (word == "**" and segments and segments[-1] == "**"):
            segments.append(word)
    if segments[-1] == "**":  # everything inside, but not the folder itself
        segments.append("*")
    if len(segments) == 2 and segments[0] == "**":
        return True, segments[1:]
    return False, segments


def _is_stars(text: str) -> bool:
    return bool(text) and not text.strip("*")


def _without_trailing_spaces(text: str) -> str:
    """Spaces at the end do not count, unless a backslash quotes them."""
    bare = text.rstrip(" ")
    quotes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if quotes % 2 and len(bare) < len(text) else bare


def _translate(glob: str) -> re.Pattern[str] | None:
    """The regex for an anchored `glob`, for `fullmatch`; None when the glob is broken, and git would never match it."""
    try:
        from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern as Translator
    except ImportError:  # pathspec before 1.0
        from pathspec.patterns.gitwildmatch import GitWildMatchPattern as Translator
    if glob[-1].isspace():  # pathspec would cut off what git keeps
        head = glob[:-1]
        quotes = len(head) - len(head.rstrip("\\"))
        glob = f"{head[:-1] if quotes % 2 else head}[{glob[-1]}]"
    try:
        source, _ = Translator.pattern_to_regex("/" + glob)
        if source is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", FutureWarning
            )  # `[[` in a bracket: Python may change its mind one day
            # pathspec lets a pattern match what lies below the match, too. The walk prunes, so only the entry itself counts.
            return re.compile(source.replace("(?P<ps_d>/)", "(?!)"), re.DOTALL)
    except (ValueError, re.error):
        return None
