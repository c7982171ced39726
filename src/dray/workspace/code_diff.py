"""The difference between the code of two runs: per file what changed, and a patch as git writes it.

Read `CodeDifference` first. A patch is bytes, for `git apply` and `patch -p1`; showing it on a terminal is not done here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple, TypeAlias

from dray.workspace.code import Code

BIG = 1_000_000
"""Bytes from which on a file is only named."""
_WORK = 2_000_000
"""Pairs of equal lines that are worth looking at for a short patch."""
_CONTEXT = 3
_LINK = "120000"

_Step: TypeAlias = "tuple[Literal['replace', 'delete', 'insert', 'equal'], int, int, int, int]"


class Side(NamedTuple):
    """A file or link as one of the runs had it."""

    mode: str
    """As git writes it: 100644, 100755 for a program, 120000 for a link."""
    content: str
    """Digest of a file, target of a link."""
    size: int


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path that is not the same in both."""

    path: str
    before: Side | None
    after: Side | None
    patch: bytes | None
    """None when no patch is made; then `why` says so."""
    why: str | None = None
    """binary, big."""

    @property
    def kind(self) -> str:
        """added, removed, changed, or mode: nothing but that."""
        if self.before is None or self.after is None:
            return "added" if self.before is None else "removed"
        return "mode" if self.before.content == self.after.content else "changed"

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "path": self.path,
            "kind": self.kind,
            "before": self.before._asdict() if self.before else None,
            "after": self.after._asdict() if self.after else None,
            "patch": self.patch.decode(errors="surrogateescape") if self.patch is not None else None,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class CodeDifference:
    """What `other` has otherwise than `first`: ids of runs."""

    first: str
    other: str
    changes: tuple[FileChange, ...]
    folders: tuple[tuple[str, str], ...]
    """(empty folder, id of the run that alone has it): no patch can say that."""

    @classmethod
    def between(cls, first: tuple[str, Code], other: tuple[str, Code]) -> CodeDifference:
        """Compare the codes; only contents that a patch needs are asked for. Raises CodeGone, BadManifest."""
        if first[1].digest == other[1].digest:
            return cls(first[0], other[0], (), ())
        before, after = _sides(first[1]), _sides(other[1])
        pairs = [(path, before.get(path), after.get(path)) for path in sorted({*before, *after})]
        pairs = [(path, old, new) for path, old, new in pairs if old != new]
        first[1].bring({old.content for _, old, new in pairs if old and _is_needed(old, new)})
        other[1].bring({new.content for _, old, new in pairs if new and _is_needed(new, old)})
        changes = [
            _change(path, old, new, (first[1], other[1]))
            for path, was, is_now in pairs
            for old, new in _steps(was, is_now)
        ]
        dirs = [set(code.manifest["dirs"]) for _, code in (first, other)]
        folders = [(path, first[0]) for path in dirs[0] - dirs[1]] + [
            (path, other[0]) for path in dirs[1] - dirs[0]
        ]
        return cls(first[0], other[0], tuple(changes), tuple(sorted(folders)))

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "first": self.first,
            "other": self.other,
            "changes": [change.to_json() for change in self.changes],
            "folders": [{"path": path, "only_in": run} for path, run in self.folders],
        }


def _sides(code: Code) -> dict[str, Side]:
    files = {p: Side("100755" if bit else "100644", d, n) for p, d, n, bit in code.manifest["files"]}
    links = {p: Side(_LINK, t, len(os.fsencode(t))) for p, t in code.manifest["links"]}
    return files | links


def _is_needed(side: Side, beside: Side | None) -> bool:
    """Whether its content goes into a patch."""
    if side.mode == _LINK or side.size > BIG:
        return False
    if beside is None or beside.mode == _LINK:
        return True
    return beside.size <= BIG and beside.content != side.content


def _steps(before: Side | None, after: Side | None) -> list[tuple[Side | None, Side | None]]:
    """One change; or two, as git has it, where a file became a link or a link a file."""
    if before and after and (before.mode == _LINK) is not (after.mode == _LINK):
        return [(before, None), (None, after)]
    return [(before, after)]


def _change(path: str, before: Side | None, after: Side | None, codes: tuple[Code, Code]) -> FileChange:
    sides = [side for side in (before, after) if side is not None]
    is_mode_only = len(sides) == 2 and sides[0].content == sides[1].content
    if is_mode_only:
        return FileChange(path, before, after, patch(path, before, after, b"", b""))
    if any(side.size > BIG and side.mode != _LINK for side in sides):
        return FileChange(path, before, after, None, "big")
    old, new = _content(before, codes[0]), _content(after, codes[1])
    if b"\0" in old or b"\0" in new:
        return FileChange(path, before, after, None, "binary")
    return FileChange(path, before, after, patch(path, before, after, old, new))


def _content(side: Side | None, code: Code) -> bytes:
    if side is None:
        return b""
    return os.fsencode(side.content) if side.mode == _LINK else code.content(side.content, BIG)


def patch(path: str, before: Side | None, after: Side | None, old: bytes, new: bytes) -> bytes:
    """The patch of one path from content `old` to `new`."""
    ours, theirs = _quoted(b"a/" + os.fsencode(path)), _quoted(b"b/" + os.fsencode(path))
    lines = [b"diff --git %s %s\n" % (ours, theirs)]
    if before is None and after is not None:
        lines.append(b"new file mode %s\n" % after.mode.encode())
    elif after is None and before is not None:
        lines.append(b"deleted file mode %s\n" % before.mode.encode())
    elif before and after and before.mode != after.mode:
        lines.append(b"old mode %s\nnew mode %s\n" % (before.mode.encode(), after.mode.encode()))
    if old != new:
        # A tab ends a name with spaces in it, as git and patch have agreed.
        end = b"\t\n" if " " in path else b"\n"
        lines.append(b"--- " + (ours + end if before else b"/dev/null\n"))
        lines.append(b"+++ " + (theirs + end if after else b"/dev/null\n"))
        lines += _hunks(_lines(old), _lines(new))
    return b"".join(lines)


def _lines(data: bytes) -> list[bytes]:
    """Lines with their ends; only a line feed ends one."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    for group in _groups(old, new):
        _, old_from, _, new_from, _ = group[0]
        _, _, old_to, _, new_to = group[-1]
        yield b"@@ -%s +%s @@\n" % (_span(old_from, old_to), _span(new_from, new_to))
        for kind, i, j, k, m in group:
            if kind == "equal":
                yield from (_line(b" ", line) for line in old[i:j])
            else:
                yield from (_line(b"-", line) for line in old[i:j])
                yield from (_line(b"+", line) for line in new[k:m])


def _groups(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[Sequence[tuple[str, int, int, int, int]]]:
    """Changes with their surroundings. What would take too long to be shown in few lines is shown in many."""
    before, after = Counter(old), Counter(new)
    is_quick = sum(count * after[line] for line, count in before.items()) <= _WORK
    matcher = SequenceMatcher(None, old, new) if is_quick else _FromBothEnds(old, new)
    yield from matcher.get_grouped_opcodes(_CONTEXT)


class _FromBothEnds(SequenceMatcher[bytes]):
    """Finds the lines that stayed at the beginning and at the end, and calls all between them new."""

    def __init__(self, old: Sequence[bytes], new: Sequence[bytes]) -> None:
        super().__init__(None, (), ())
        self._old = old
        self._new = new

    def get_opcodes(self) -> list[_Step]:
        """As the other, in no time."""
        old, new = self._old, self._new
        most = min(len(old), len(new))
        start = next((n for n in range(most) if old[n] != new[n]), most)
        end = next((n for n in range(most - start) if old[-1 - n] != new[-1 - n]), most - start)
        old_end, new_end = len(old) - end, len(new) - end
        steps: list[_Step] = [
            ("equal", 0, start, 0, start),
            ("replace", start, old_end, start, new_end),
            ("equal", old_end, len(old), new_end, len(new)),
        ]
        return [step for step in steps if step[1] < step[2] or step[3] < step[4]]


def _span(start: int, stop: int) -> bytes:
    """Lines as a patch counts them."""
    count = stop - start
    if count == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if count else start, count)


def _line(mark: bytes, line: bytes) -> bytes:
    return mark + line if line.endswith(b"\n") else mark + line + b"\n\\ No newline at end of file\n"


def _quoted(name: bytes) -> bytes:
    """A name as git writes it: in quotes, when there is something in it that is no plain character."""
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in name):
        return name
    short = {0x22: b'\\"', 0x5C: b"\\\\", 0x0A: b"\\n", 0x09: b"\\t", 0x0D: b"\\r"}
    return b'"' + b"".join(
        short.get(byte) or (bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte) for byte in name
    ) + b'"'  # fmt: skip
