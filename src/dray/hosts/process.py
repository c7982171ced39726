"""A byte channel through a local child process: `sh` for this machine, `ssh` for others."""

from __future__ import annotations

import atexit
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from dray.core.errors import DrayError

_WORDS = 4000
_PIPE = 1 << 20

# Closed channels whose program was still about to end. Looked after at the next close, so that none stays a zombie.
_ending: list[subprocess.Popen[bytes]] = []


@atexit.register
def _let_go() -> None:
    """What is still ending when we end is nothing to warn of."""
    for process in _ending:
        process.returncode = process.poll() or 0


def _widen(pipe: int) -> None:
    """A pipe that holds as much as a frame: fewer turns for a gigabyte of output. Linux only, and only if allowed."""
    try:
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
    except (ImportError, AttributeError, OSError):
        return


def _nameless_file() -> IO[bytes]:
    """A file that is gone when it is closed; in memory where that can be, which needs no `tempfile` either (3 ms of every start)."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("dray"), "w+b", buffering=0)
    import tempfile

    return tempfile.TemporaryFile(buffering=0)


class ProcessChannel:
    """The stdin and stdout of a child process."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        group: str | int | None = None,
    ) -> None:
        # stderr to a file: a pipe nobody reads would fill, and stop the other side.
        self._said = _nameless_file()
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            bufsize=0,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            user=user,
            group=group,
            # Ctrl-C in the terminal is for the client alone.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin
        self._out = self._process.stdout.fileno()
        self._closed = False
        _widen(self._out)
        _widen(self._in.fileno())

    def write(self, data: bytes) -> None:
        """Send all of `data`."""
        view = memoryview(data)
        while view:
            view = view[self._in.write(view) or 0 :]

    def read(self, size: int) -> bytes:
        """Wait for bytes; empty at the end."""
        return os.read(self._out, size)

    def wait_readable(self, timeout_s: float | None) -> bool:
        """True when `read` would not wait."""
        # Not select(2): the caller may be a program with more than a thousand open files.
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else 1000 * timeout_s))

    def last_words(self) -> str:
        """The end of what the program said on stderr."""
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            return ""
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - _WORDS))
        return self._said.read().decode(errors="replace")

    def greeted(self) -> None:
        """Nothing to do."""

    def trouble(self) -> DrayError | None:
        """Nothing beyond its last words."""
        return None

    def close(self) -> None:
        """Close the pipes; the other side ends by itself. Does not wait long for it."""
        if self._closed:
            return
        self._closed = True
        self._in.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._said.close()
        # It ends by itself when its pipes are closed; waiting for that is not worth our user's time.
        _ending[:] = [process for process in (*_ending, self._process) if process.poll() is None]
