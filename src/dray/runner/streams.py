"""Writing the runner's own stream, and reading any stream from any byte on."""

from __future__ import annotations

import json
import os
import stat
import time
from typing import Any, Iterator, NamedTuple, Optional

from .files import write_all
from .folder import STREAM, RunFolder

STATE = "state.jsonl"
_SHARED_PIECE = 64 << 20


class StateStream:
    """The runner's words: one event, one line, one write. A full disk never stops the run."""

    def __init__(self, folder: RunFolder, number: int) -> None:
        self._folder = folder
        self._fd = os.open(
            os.path.join(folder.streams(number), STATE),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        self._seq = 0
        self._torn = b""

    def say(self, kind: str, **data: Any) -> None:
        """Append one event."""
        line = json.dumps(
            {"v": 1, "seq": self._seq, "t": round(time.time(), 6), "type": kind, "data": data},
            separators=(",", ":"),
        )
        self._seq += 1
        try:
            write_all(self._fd, self._torn + line.encode() + b"\n")
            self._torn = b""
        except OSError:
            # Whatever part of the line arrived, the next one starts afresh. The end has its own, reserved space.
            self._torn = b"\n"

    def state(self, state: str, **more: Any) -> None:
        """The run is in that state now."""
        self.say("state", state=state, **more)


class News(NamedTuple):
    """A piece of a stream: its bytes, or the path of the file that has them."""

    attempt: int
    stream: str
    offset: int
    size: int
    data: bytes
    path: Optional[str]


class Reader:
    """What is new in one run's streams since a cursor `{"1/log.script": offset}`.

    Nothing is kept open: a run that logs a thousand pictures has a thousand streams.
    """

    def __init__(self, folder: RunFolder, cursor: dict[str, int], prefixes: list[str]) -> None:
        self._folder = folder
        self._offsets = dict(cursor)
        self._prefixes = tuple(prefixes)

    def _streams(self) -> list[tuple[int, str]]:
        found = []
        for number in self._folder.attempts():
            try:
                names = os.listdir(self._folder.streams(number))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            # The runner's words first: that the script runs is told before what it says.
            names.sort(key=lambda name: (name != STATE, name))
            found += [(number, n) for n in names if n.startswith(self._prefixes) and STREAM.match(n)]
        return found

    def news(self, piece: int, shared: bool = False) -> Iterator[News]:
        """At most one piece of each stream that has grown. `shared`: logs are told by their size, not by their bytes."""
        for number, name in self._streams():
            key = "%d/%s" % (number, name)
            offset = self._offsets.get(key, 0)
            path = os.path.join(self._folder.streams(number), name)
            if shared and name.startswith("log."):
                size = max(0, min(_size(path) - offset, _SHARED_PIECE))
                found = News(number, name, offset, size, b"", path)
            else:
                data = _read_on(path, offset, piece)
                found = News(number, name, offset, len(data), data, None)
            if found.size:
                self._offsets[key] = offset + found.size
                yield found


def _size(path: str) -> int:
    """Of a regular file; whatever else a script put in its place is as good as empty.

    Raises OSError where nothing can be said for now: to take that for "nothing new" would lose what is there.
    """
    try:
        seen = os.lstat(path)
    except (FileNotFoundError, PermissionError):
        return 0
    return seen.st_size if stat.S_ISREG(seen.st_mode) else 0


def _read_on(path: str, offset: int, size: int) -> bytes:
    """Bytes of the regular file `path` from `offset` on."""
    if _size(path) <= offset:
        return b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return b""
    try:
        return os.pread(fd, size, offset) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
