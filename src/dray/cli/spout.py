"""The script's bytes on their way out: untouched into files and pipes, filtered onto a terminal."""

from __future__ import annotations

import os
import select

from dray.cli.voice import is_terminal
from dray.core.errors import DrayError
from dray.core.escapes import EscapeFilter


class Spout:
    """Writes to one file descriptor, past Python's buffers."""

    def __init__(self, fd: int = 1) -> None:
        self.fd = fd
        self.written = 0
        """Bytes taken in so far."""
        self._filter = EscapeFilter() if is_terminal(fd) else None
        self._ends_in_line = False

    def write(self, data: bytes) -> None:
        """Pass on all of `data` now. Raises BrokenPipeError when nobody reads any more."""
        self.written += len(data)
        if self._filter is not None:
            data = self._filter.feed(data)
        self._put(data)

    def settle(self) -> None:
        """Let the next word stand on a line of its own and in its own colour. Does nothing to files and pipes."""
        if self._filter is None:
            return
        self._put(self._filter.finish())
        if self._filter.coloured:
            write_all(self.fd, b"\x1b[0m")
            self._filter.coloured = False
        if self._ends_in_line:
            write_all(self.fd, b"\n")
            self._ends_in_line = False

    def _put(self, data: bytes) -> None:
        if data:
            self._ends_in_line = data[-1:] != b"\n"
            write_all(self.fd, data)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, waiting for slow readers, also where somebody made `fd` non-blocking.

    Raises BrokenPipeError when nobody reads any more, DrayError when it cannot be written: the disk behind it may be full.
    """
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
        except BrokenPipeError:
            raise
        except OSError as trouble:
            raise DrayError("the output cannot be written", why=trouble.strerror) from trouble
