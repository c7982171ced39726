"""Writing the runner's own stream, and reading any stream from any byte on."""

from __future__ import annotations

import json
import os
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
    """What is new in one run's streams since a cursor `{"1/log.script": offset}`."""

    def __init__(self, folder: RunFolder, cursor: dict[str, int], prefixes: list[str]) -> None:
        self._folder = folder
        self._offsets = dict(cursor)
        self._prefixes = tuple(prefixes)
        self._open: dict[str, int] = {}

    def _streams(self) -> list[tuple[int, str]]:
        found = []
        for number in self._folder.attempts():
            try:
                names = os.listdir(self._folder.streams(number))
            except OSError:
                continue
            found += [(number, n) for n in sorted(names) if n.startswith(self._prefixes) and STREAM.match(n)]
        return found

    def news(self, piece: int, shared: bool = False) -> Iterator[News]:
        """At most one piece of each stream that has grown. `shared`: logs are told by their size, not by their bytes."""
        for number, name in self._streams():
            key = "%d/%s" % (number, name)
            fd = self._open.get(key)
            if fd is None:
                try:
                    fd = os.open(
                        os.path.join(self._folder.streams(number), name),
                        os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                    )
                except OSError:
                    continue
                self._open[key] = fd
            offset = self._offsets.get(key, 0)
            if shared and name.startswith("log."):
                size = min(os.fstat(fd).st_size - offset, _SHARED_PIECE)
                path = os.path.join(self._folder.streams(number), name)
                found = News(number, name, offset, max(0, size), b"", path)
            else:
                data = os.pread(fd, piece, offset)
                found = News(number, name, offset, len(data), data, None)
            if found.size:
                self._offsets[key] = offset + found.size
                yield found

    def close(self) -> None:
        """Let go of all open files."""
        for fd in self._open.values():
            os.close(fd)
        self._open = {}
