"""Patches on stdout: byte for byte into pipes and files; coloured, and without any control character, onto a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dray.cli.facts import count_of
from dray.cli.voice import Voice, is_terminal, paints
from dray.core.durations import show_bytes
from dray.core.errors import printable

if TYPE_CHECKING:
    from dray.workspace.code_diff import CodeDifference, FileChange

_COLOURS = {b"@@": 36, b"+": 32, b"-": 31}
_HEADS = (b"diff ", b"--- ", b"+++ ", b"old mode ", b"new mode ", b"new file ", b"deleted file ")
_NAMED = 20
_TAB = 8


def write_patches(differences: Sequence[CodeDifference], voice: Voice) -> None:
    """The patches of all, and on stderr what no patch can say."""
    on_terminal = is_terminal(1)
    for difference in differences:
        if len(differences) > 1:
            # No part of a patch: tools that apply one pass it over.
            _write(f"# from {difference.first} to {difference.other}\n".encode())
        for change in difference.changes:
            if change.patch is not None:
                _write(for_terminal(change.patch, paints(1)) if on_terminal else change.patch)
        sys.stdout.flush()
        _say_rest(difference, voice)


def for_terminal(patch: bytes, in_colour: bool) -> bytes:
    """The same lines, harmless: nothing of a file reaches a terminal but text that can be printed."""
    shown, is_head = [], True
    for line in patch.split(b"\n")[:-1]:
        text = line.decode(errors="surrogateescape").expandtabs(_TAB)
        data = os.fsencode(printable(text)) if text.isascii() else printable(text).encode(errors="replace")
        is_head = line.startswith(b"diff --git ") or (is_head and line.startswith(_HEADS))
        colour = 1 if is_head else next((c for mark, c in _COLOURS.items() if line.startswith(mark)), None)
        shown.append(b"\x1b[%dm%s\x1b[0m" % (colour, data) if in_colour and colour else data)
    return b"".join(line + b"\n" for line in shown)


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def _say_rest(difference: CodeDifference, voice: Voice) -> None:
    if not difference.changes and not difference.folders:
        voice.say(f"the code of {difference.other} is that of {difference.first}")
        return
    counts = dict.fromkeys(("added", "removed", "changed", "mode"), 0)
    for change in difference.changes:
        counts[change.kind] += 1
    counts["with another mode"] = counts.pop("mode")
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    if told:
        voice.say(
            f"{count_of(len(difference.changes), 'file')} from {difference.first} to {difference.other}: {told}"
        )
    silent = [change for change in difference.changes if change.patch is None]
    for change in silent[:_NAMED]:
        # Whatever was asked for: who applies the patch has to know that it is not all.
        voice.warn(f"not in the patch, {change.why}: {change.path}, {_sizes(change)}")
    if len(silent) > _NAMED:
        voice.warn(f"not in the patch: {len(silent) - _NAMED} more")
    for path, run in difference.folders[:_NAMED]:
        voice.say(f"empty folder in {run} only: {path}/")


def _sizes(change: FileChange) -> str:
    before = show_bytes(change.before.size) if change.before else ""
    after = show_bytes(change.after.size) if change.after else ""
    if before and after:
        return f"{before} -> {after}"
    return f"added, {after}" if after else f"removed, {before}"
