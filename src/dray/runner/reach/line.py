"""A channel served without ever waiting for its reader: what is to be sent waits here, in bounded memory."""

from __future__ import annotations

import os
import select
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from .. import frames

_FULL = 1 << 20


class Line:
    """One channel, from the moment when it serves one thing alone."""

    def __init__(self, receive: Callable[[], Optional[frames.Frame]], source: int, out: int) -> None:
        self._receive = receive
        self._source = source
        self._out = out
        self._waiting: Deque[memoryview] = deque()
        self._size = 0
        self._early: Deque[frames.Frame] = deque()
        os.set_blocking(out, False)

    @property
    def is_full(self) -> bool:
        """Whoever has more to say should wait: the reader is slow."""
        return self._size >= _FULL

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """One frame, as soon as the channel takes it. Raises BrokenPipeError."""
        data = frames.encode(header, body)
        self._waiting.append(memoryview(data))
        self._size += len(data)
        self._flush()

    def poll(self, wanted: Dict[int, int], timeout_s: float) -> Dict[int, int]:
        """Wait for one of `wanted` (file descriptor -> events), or for the channel; what came to be, ours included."""
        poll = select.poll()
        for fd, events in wanted.items():
            poll.register(fd, events)
        poll.register(self._source, select.POLLIN)
        if self._waiting:
            poll.register(self._out, select.POLLOUT)
        found = dict(poll.poll(0 if self._early else timeout_s * 1000))
        if self._out in found and self._waiting:
            self._flush()
        return found

    def has_frame(self, found: Dict[int, int]) -> bool:
        """Whether `receive` is worth a call after that `poll`."""
        return bool(self._early) or self._source in found

    def receive(self) -> frames.Frame | None:
        """The next frame; None at the channel's end."""
        return self._early.popleft() if self._early else self._receive()

    def unread(self, early: List[frames.Frame]) -> None:
        """What came before its time is received once more."""
        self._early.extend(early)

    def finish(self) -> None:
        """All that was to be sent is sent; waits for it."""
        os.set_blocking(self._out, True)
        self._flush()

    def _flush(self) -> None:
        while self._waiting:
            piece = self._waiting[0]
            try:
                written = os.write(self._out, piece)
            except BlockingIOError:
                return
            self._size -= written
            if written == len(piece):
                self._waiting.popleft()
            else:
                self._waiting[0] = piece[written:]
