"""A terminal in raw mode, put back as it was whatever happens: an error, a signal, even `kill -9`."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import tty
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


class Raw:
    """The terminal on `fd` passes every key on while this is open."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before = termios.tcgetattr(fd)
        self._handlers: dict[int, Any] = {}
        self._watch = self._start_watch()
        for number in _ENDINGS:
            self._handlers[number] = signal.signal(number, self._ended_by)
        tty.setraw(fd, termios.TCSANOW)

    def close(self) -> None:
        """As it was. Safe to repeat."""
        if self._watch is None:
            return
        watch, self._watch = self._watch, None
        self._put_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        pid, pipe = watch
        os.close(pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _put_back(self) -> None:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _ended_by(self, number: int, frame: FrameType | None) -> None:
        self._put_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _start_watch(self) -> tuple[int, int] | None:
        """A child that sees us end, however that comes to be, and puts the terminal back; it touches nothing else."""
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid:
            os.close(ours)
            return pid, theirs
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.close(theirs)
            # In a session of its own it is not stopped for writing to the terminal from the background.
            os.setsid()
            keep = os.dup(self._fd)
            os.closerange(0, min(ours, keep))
            os.read(ours, 1)
            termios.tcsetattr(keep, termios.TCSANOW, self._before)
        finally:
            os._exit(0)


class Escape:
    """Enter ~ . among the keys means: leave. Enter ~ ~ is one ~."""

    def __init__(self) -> None:
        self._after = b"\r"

    def feed(self, keys: bytes) -> bytes | None:
        """What is to be passed on; None: leave."""
        out = bytearray()
        for key in keys:
            one = bytes([key])
            if self._after == b"~":
                if one == b".":
                    return None
                out += b"~" if one != b"~" else b""
                out += one
                self._after = one if one != b"~" else b""
            elif one == b"~" and self._after in (b"\r", b"\n"):
                self._after = b"~"
            else:
                out += one
                self._after = one
        return bytes(out)


def size(fd: int) -> tuple[int, int]:
    """Rows and columns of the terminal; 24 and 80 where it does not say."""
    try:
        seen = os.get_terminal_size(fd)
    except OSError:
        return 24, 80
    return seen.lines or 24, seen.columns or 80
