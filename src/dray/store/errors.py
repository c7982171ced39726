"""What can go wrong with the history, in the user's words.

StoreError
├── HomeIsAFile, HomeUnusable, HomeReadOnly     the folder that should hold the history
├── DiskFull, DiskTrouble                       what is under the folder
├── HistoryTooNew, HistoryDamaged, HistoryBusy  the database in it
├── RunExists, CursorGap, UnsafeName            what was asked of it
UnknownName
└── NoSuchRun
UsageError
└── AmbiguousRun
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from dray.core.errors import DrayError, UnknownName, UsageError, printable

_ELSEWHERE = "name another folder: `export DRAY_HOME=/path/to/folder`"


class StoreError(DrayError):
    """The root of what the history cannot do."""

    code = "store-error"


class HomeIsAFile(StoreError):
    """DRAY_HOME, or a folder above it, is no folder."""

    code = "home-is-a-file"

    def __init__(self, home: object, culprit: object) -> None:
        super().__init__(
            f"dray cannot keep its history in `{printable(str(home))}`",
            why=f"`{printable(str(culprit))}` is a file, not a folder",
            hint=_ELSEWHERE,
        )


class HomeUnusable(StoreError):
    """The folder can be neither read nor made."""

    code = "home-unusable"

    def __init__(self, home: object, reason: str) -> None:
        super().__init__(
            f"dray cannot open its history in `{printable(str(home))}`", why=reason, hint=_ELSEWHERE
        )


class HomeReadOnly(StoreError):
    """Reading works, if there is something to read; writing does not."""

    code = "home-read-only"

    def __init__(self, home: object, reason: str = "the folder or a file in it is read-only for you") -> None:
        super().__init__(
            f"dray cannot write to its history in `{printable(str(home))}`", why=reason, hint=_ELSEWHERE
        )


class DiskFull(StoreError):
    """Nothing of the step that failed was stored."""

    code = "disk-full"

    def __init__(self, home: object) -> None:
        super().__init__(
            f"the disk that holds dray's history, `{printable(str(home))}`, is full",
            why="what was being stored was left out whole; all that was stored before is intact",
            hint="make room there, then run the command again: it goes on where it stopped",
        )


class DiskTrouble(StoreError):
    """The operating system could not read or write."""

    code = "disk-trouble"

    def __init__(self, home: object, reason: str) -> None:
        super().__init__(f"reading or writing dray's history in `{printable(str(home))}` failed", why=reason)


class HistoryTooNew(StoreError):
    """A later dray has changed the layout."""

    code = "history-too-new"

    def __init__(self, path: object, found: int, known: int, writer: str | None) -> None:
        who = f"dray {writer}" if writer else "a newer dray"
        super().__init__(
            f"the history `{printable(str(path))}` is from a newer version of dray",
            why=f"{who} wrote it in layout {found}; this dray knows layouts up to {known}",
            hint="upgrade this dray, or " + _ELSEWHERE,
        )


class HistoryDamaged(StoreError):
    """The file is no history, or no longer one."""

    code = "history-damaged"

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(
            f"the history `{printable(str(path))}` cannot be read",
            why=reason,
            hint="`dray rebuild` makes it again from the run folders; the old file is kept beside it",
        )


class HistoryBusy(StoreError):
    """Another process held the history for longer than we wait."""

    code = "history-busy"

    def __init__(self, path: object, waited_s: float) -> None:
        super().__init__(
            f"the history `{printable(str(path))}` is in use",
            why=f"another process has been writing to it for {waited_s:.0f} seconds",
            hint="run the command again; `fuser -v " + printable(str(path)) + "` names the process",
        )


class RunExists(StoreError):
    """An id was used twice."""

    code = "run-exists"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is a run `{printable(run_id)}` already")


class CursorGap(StoreError):
    """Bytes came that do not join on to what is stored; read again from `cursor`."""

    code = "cursor-gap"

    def __init__(self, run_id: str, stream: str, cursor: int, offset: int) -> None:
        super().__init__(
            f"bytes {cursor} to {offset} of `{stream}` of run `{run_id}` have not been stored yet",
            why="a piece of the stream came before the piece in front of it",
        )
        self.stream = stream
        self.cursor = cursor
        self.offset = offset


class UnsafeName(StoreError):
    """A name from afar that must not become part of a path."""

    code = "unsafe-name"

    def __init__(self, kind: str, name: str) -> None:
        shown = printable(name[:100]) + (" ..." if len(name) > 100 else "")
        super().__init__(f"`{shown}` is not a {kind}", why="it was refused, and nothing of it was stored")


class NoSuchRun(UnknownName):
    """No run has this id, name or beginning of an id."""

    code = "no-such-run"

    def __init__(self, word: str, known: Iterable[str] = ()) -> None:
        super().__init__("run", word, known, hint="`dray runs` lists them")


class AmbiguousRun(UsageError):
    """A word that means several runs."""

    code = "ambiguous-run"

    def __init__(self, word: str, matches: Sequence[tuple[str, float, str]], total: int) -> None:
        listed = "; ".join(f"`{i}` ({_when(created)}, {printable(e)})" for i, created, e in matches)
        super().__init__(
            f"`{printable(word)}` means {total} runs",
            why=listed + (" ..." if total > len(matches) else ""),
            hint=f"name one by its id: `dray show {matches[0][0]}`",
        )
        self.matches = [run_id for run_id, _, _ in matches]


def _when(created: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
    except (OverflowError, ValueError, OSError):
        return "at an unknown time"
