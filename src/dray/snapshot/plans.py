"""What a walk found: the files that travel, what was left out and by which rule, and how to say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dray.core.durations import show_bytes
from dray.core.errors import printable

FileRow = tuple[str, int, int, int, int, int]
"""path, size, mtime_ns, ctime_ns, inode, mode. A plain tuple, because there may be a hundred thousand."""

OWN = "dray ("
"""How the rules begin that no ignore file states."""


class LeftOut(NamedTuple):
    """Something that does not travel."""

    path: str
    rule: str
    """`.gitignore:4 (data/)`: file, line and pattern; or `dray (cache)`: dray's own."""
    is_dir: bool


@dataclass(slots=True)
class Plan:
    """What would travel. Paths are relative to `root`, with `/`; everything is sorted by path."""

    root: str
    files: list[FileRow] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    dirs: list[str] = field(default_factory=list)
    """Folders of which nothing travels but themselves."""
    left_out: list[LeftOut] = field(default_factory=list)
    bytes: int = 0
    ignore_file: str = ".drayignore"
    """Where a line that leaves something out belongs."""

    def summary(self) -> str:
        """One line for people."""
        return summary(len(self.files) + len(self.links), self.bytes, self.left_out)


def summary(files: int, size: int, left_out: Sequence[LeftOut], *, show: int = 3) -> str:
    """One line: "41 files, 0.3 MB; left out: data/ by .gitignore:4". What never travels anywhere is not worth a word."""
    count = "1 file" if files == 1 else f"{files:,} files"
    text = f"{count}, {show_bytes(size)}"
    told = [item for item in left_out if not item.rule.startswith(OWN) or item.rule in _WORTH_A_WORD]
    # The folders first: they hold more than a file, and the upper ones more than the lower ones.
    told.sort(key=lambda item: (not item.is_dir, item.path.count("/"), item.path))
    if not told:
        return text
    named = ", ".join(
        f"{printable(item.path)}{'/' * item.is_dir} by {printable(_short(item.rule))}" for item in told[:show]
    )
    more = f" and {len(told) - show:,} more" if len(told) > show else ""
    return f"{text}; left out: {named}{more}"


def explain_missing(left_out: Iterable[tuple[str, str] | LeftOut], path: str) -> str | None:
    """The rule that left out `path` (relative to the code folder) or one of its parents; None when no rule did."""
    wanted = [step for step in path.split("/") if step not in ("", ".")]
    rules = {item[0]: item[1] for item in left_out}
    for depth in range(1, len(wanted) + 1):
        rule = rules.get("/".join(wanted[:depth]))
        if rule is not None:
            return rule
    return None


RESULTS = OWN + "results of runs)"
SOCKET = OWN + "a socket)"
PIPE = OWN + "a pipe)"
DEVICE = OWN + "a device)"
_WORTH_A_WORD = frozenset({RESULTS, SOCKET, PIPE, DEVICE})


def _short(rule: str) -> str:
    """`.gitignore:4 (data/)` -> `.gitignore:4`; dray's own rules are told in full."""
    return rule if rule.startswith(OWN) else rule.partition(" (")[0]
