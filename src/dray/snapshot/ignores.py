"""Which ignore rules hold in which folder of a walk, and what they say about an entry.

Begin with `Rules.at_root`. The files that count: `.drayignore` of the code folder, else its `.amlignore`, else git's own: each
`.gitignore` from the top of the repository down to the entry's folder, and `.git/info/exclude`. The deepest file that has a
matching line decides, by its last matching line. A user's global excludes do not count: the same folder must give the
same snapshot on every machine. Git's index is not read either: a tracked file that matches a rule stays at home.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from dray.snapshot.patterns import Pattern, loose, parse_line

Probe = tuple[frozenset[str], tuple[str, ...], Callable[[str], object] | None]
"""Names, suffixes and a regex: an entry that none of them knows is matched by no rule."""


class RuleFile:
    """The patterns of one ignore file."""

    def __init__(self, shown: str, lead: str, cut: int, patterns: Iterable[Pattern]) -> None:
        """`lead + path[cut:]` is a path of the walk as this file sees it; `shown` is how people find the file."""
        self.shown = shown
        self.lead = lead
        self.cut = cut
        self.patterns = tuple(patterns)
        anchored = [p for p in self.patterns if not p.by_name]
        self.named = [p for p in self.patterns if p.by_name]
        self.floating = [p for p in anchored if "**" in p.segments]
        self.by_depth: dict[int, list[Pattern]] = {}
        for pattern in anchored:
            if "**" not in pattern.segments:
                self.by_depth.setdefault(len(pattern.segments) - 1, []).append(pattern)

    def may_match_in(self, folder: str) -> list[Pattern]:
        """The anchored patterns that could match an entry of `folder` ("" or ending in `/`)."""
        steps = (self.lead + folder[self.cut :]).split("/")[:-1]
        near = [p for p in self.by_depth.get(len(steps), ()) if _leads_here(p, steps)]
        return near + self.floating if self.floating else near


class Rules:
    """The rule files that hold in one folder, deepest first."""

    def __init__(
        self, files: tuple[RuleFile, ...], always: frozenset[str], *, nested: bool, kind: str
    ) -> None:
        self.files = files
        self.always = always
        """Names that the walk wants to look at whatever the rules say."""
        self.nested = nested
        """Whether `.gitignore` files further down count."""
        self.kind = kind
        """The name of the ignore file that a new line belongs into."""
        self._shared = _probe((p.segments[0] for f in files for p in f.named), always)
        self._has_paths = any(f.by_depth or f.floating for f in files)

    @classmethod
    def at_root(cls, root: str, always: frozenset[str]) -> Rules:
        """The rules in force at the top of the code folder."""
        for name in (".drayignore", ".amlignore"):
            text = _read(os.path.join(root, name))
            if text is not None:
                return cls((_parse(text, name, "", 0),), always, nested=False, kind=name)
        files = _of_repository(root)
        kind = ".gitignore" if files or os.path.exists(os.path.join(root, ".git")) else ".drayignore"
        return cls(tuple(files), always, nested=True, kind=kind)

    def with_file_in(self, root: str, folder: str) -> Rules:
        """The rules in `folder` (ending in `/`), which has a `.gitignore` of its own."""
        shown = folder + ".gitignore"
        text = _read(os.path.join(root, shown))
        if text is None:
            return self
        file = _parse(text, shown, "", len(folder))
        return Rules((file, *self.files), self.always, nested=True, kind=self.kind)

    def probe(self, folder: str) -> Probe:
        """The quick test for the entries of `folder` ("" or ending in `/`)."""
        if not self._has_paths:
            return self._shared
        here = [p.segments[-1] for f in self.files for p in f.may_match_in(folder)]
        if not here:
            return self._shared
        return _probe([*(p.segments[0] for f in self.files for p in f.named), *here], self.always)

    def verdict(self, path: str, name: str, is_dir: bool) -> str | None:
        """The rule that leaves out the entry at `path`, as people read it; None when it travels."""
        for file in self.files:
            below = file.lead + path[file.cut :]
            for pattern in reversed(file.patterns):
                if pattern.dir_only and not is_dir:
                    continue
                if pattern.matches(name if pattern.by_name else below):
                    return None if pattern.negated else f"{file.shown}:{pattern.line} ({pattern.text})"
        return None


def _leads_here(pattern: Pattern, steps: list[str]) -> bool:
    return all(
        wanted == step or loose(wanted)[0] != "name"
        for wanted, step in zip(pattern.segments, steps, strict=False)
    )


def _probe(segments: Iterable[str], always: frozenset[str]) -> Probe:
    names = set(always)
    suffixes: list[str] = []
    regexes: list[str] = []
    for kind, texts in map(loose, dict.fromkeys(segments)):
        if kind == "name":
            names.update(texts)
        else:
            (suffixes if kind == "suffix" else regexes).extend(texts)
    wild = re.compile("|".join(f"(?:{r})" for r in regexes), re.DOTALL).fullmatch if regexes else None
    return frozenset(names), tuple(suffixes), wild


def _of_repository(root: str) -> list[RuleFile]:
    """The files of git that hold at `root`, deepest first: its own, those of its parents up to the repository's top, and
    the repository's `info/exclude`. Outside of a repository: its own alone.
    """
    found: list[RuleFile] = []
    own = _read(os.path.join(root, ".gitignore"))
    if own is not None:
        found.append(_parse(own, ".gitignore", "", 0))
    parents: list[RuleFile] = []
    folder, up, lead = root, "", ""
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            exclude = _read(os.path.join(_git_folder(folder), "info", "exclude"))
            if exclude is not None:
                parents.append(_parse(exclude, up + ".git/info/exclude", lead, 0))
            return found + parents
        above, name = os.path.split(folder)
        if above == folder:
            return found
        folder, up, lead = above, up + "../", f"{name}/{lead}"
        text = _read(os.path.join(folder, ".gitignore"))
        if text is not None:
            parents.append(_parse(text, up + ".gitignore", lead, 0))


def _git_folder(top: str) -> str:
    """`.git`, or what it stands for in a linked worktree or a submodule."""
    git = os.path.join(top, ".git")
    words = (_read(git) or "").split("\n")[0]
    if words.startswith("gitdir: "):
        git = os.path.join(top, words.removeprefix("gitdir: "))
        common = (_read(os.path.join(git, "commondir")) or "").strip()
        git = os.path.join(git, common)
    return git


def _parse(text: str, shown: str, lead: str, cut: int) -> RuleFile:
    lines = enumerate(text.split("\n"), 1)
    return RuleFile(shown, lead, cut, [p for n, line in lines if (p := parse_line(line, n)) is not None])


def _read(path: str) -> str | None:
    """The file's text; None when it is not there, or cannot be read: then `take` complains, as it travels itself."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
