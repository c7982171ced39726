"""The one file that this process writes its events into: opened late, one write a line, anew after a fork.

A line that `Stream.write` accepted is in the kernel's hands when it returns: no death of the script loses it.
`seq` counts the lines that were tried; a gap in it says how many could not be written.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from json.encoder import encode_basestring_ascii as _quote
from typing import Optional

from . import masking
from .speech import say_once

_RETRY_S = 1.0
_HIGH_FD = 200  # out of the way of scripts that close or reuse low numbers
_now = time.time
_os_write = os.write


class Stream:
    """One `events.*.jsonl`. Threads may share it; a forked child gets a file of its own (`renew`)."""

    __slots__ = ("_aside", "_busy", "_fd", "_lock", "_retry_at", "_seq", "_torn", "folder")

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._fd = -1
        self.renew()

    def renew(self) -> None:
        """Forget the file, so that the next line opens a new one. For the child after a fork, where no other thread is."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                pass  # the script closed it already
        # An RLock, because a signal handler that logs may interrupt this very thread inside `write`.
        self._lock = threading.RLock()
        self._busy = False
        self._aside: Optional[Stream] = None
        self._retry_at = 0.0
        self._seq = 0
        self._torn = False

    def write(self, rest: str) -> None:
        """Append one line; `rest` is what follows seq and time. Never raises for trouble with the file."""
        with self._lock:
            if self._busy:
                # We are in a signal handler that interrupted the lines below. A file of its own keeps both in order.
                if self._aside is None:
                    self._aside = Stream(self.folder)
                self._aside.write(rest)
                return
            try:
                self._busy = True
                if self._fd < 0 and not self._open():
                    return
                self._put(rest)
            except OSError as trouble:
                self._mend(trouble, rest)
            finally:
                self._busy = False

    def _put(self, rest: str) -> None:
        # Counted before it is written: a Ctrl-C in between leaves a gap, never the same number twice.
        self._seq = seq = self._seq + 1
        line = f'{{"v":1,"seq":{seq},"t":{_now():.3f},{rest}}}\n'.encode()
        if self._torn:
            line = b"\n" + line  # ends the torn line, so that readers find this one
        written = _os_write(self._fd, line)
        if self._torn or written != len(line):
            self._torn = written < len(line)
            while written < len(line):
                written += _os_write(self._fd, line[written:])
            self._torn = False

    def _mend(self, trouble: OSError, rest: str) -> None:
        if trouble.errno == errno.EBADF and self._fd >= 0:
            # The script closed all files, as daemons do. The number may be someone else's soon: take a new file.
            self._fd = -1
            say_once("closed", "the script closed dray's file; logging goes on in a new one")
            try:
                if self._open():
                    self._put(rest)
            except OSError as again:
                self._complain(again)
        else:
            self._complain(trouble)

    def _open(self) -> bool:
        """Make the file with its first line, or nothing. After a failure it is not tried again for a moment."""
        if time.monotonic() < self._retry_at:
            return False
        masking.learn()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        path = os.path.join(self.folder, f"events.{os.urandom(4).hex()}.jsonl")
        fd = -1
        try:
            fd = _out_of_the_way(os.open(path, flags, 0o666))
            line = f'{{"v":1,"seq":1,"t":{_now():.3f},{_opened()}}}\n'.encode()
            if _os_write(fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except BaseException as trouble:  # a Ctrl-C too must leave no file without its first line
            if fd >= 0:
                os.close(fd)
                os.unlink(path)
            if not isinstance(trouble, OSError):
                raise
            self._retry_at = time.monotonic() + _RETRY_S
            self._complain(trouble)
            return False
        self._fd, self._seq, self._torn = fd, 1, False
        return True

    @staticmethod
    def _complain(trouble: OSError) -> None:
        reason = trouble.strerror or type(trouble).__name__
        say_once(
            "trouble",
            f"could not record what the script logs ({reason}); the script goes on, what does not fit is lost",
        )


def _opened() -> str:
    host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    rank = _rank()
    place = f'"host":{_quote(host)},"pid":{os.getpid()},"rank":{"null" if rank is None else rank}'
    return f'"type":"opened","data":{{{place}}}'


def _rank() -> Optional[int]:
    """The process's number among its equals, as the usual launchers tell it."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        said = os.environ.get(name, "").strip()
        if said.isdigit() and said.isascii() and len(said) < 10:
            return int(said)
    return None


def _out_of_the_way(fd: int) -> int:
    """The same file under a high number, where there is one to be had."""
    try:
        import fcntl  # not on Windows, where a full dray may be imported too

        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
    except (ImportError, OSError):
        return fd
    os.close(fd)
    return high


_stream: Optional[Stream] = None
_looked = False


def current() -> Optional[Stream]:
    """This process's stream, or None outside a run."""
    return _stream if _looked else _look()


def _look() -> Optional[Stream]:
    """Decide, once, whether this is a run."""
    global _stream, _looked  # one stream per process
    folder = os.environ.get("DRAY_STREAMS", "")
    with _looking:
        if not _looked:
            if folder and os.path.isdir(folder):
                _stream = Stream(folder)
            elif folder:
                say_once("outside", f"there is no folder {folder!r} (DRAY_STREAMS), so nothing is recorded")
            else:
                say_once("outside", "this is not a run, so nothing is recorded; `dray submit` makes it one")
            _looked = True
    return _stream


def _after_fork() -> None:
    global _looking  # another thread of the parent may have held it
    _looking = threading.RLock()
    if _stream is not None:
        _stream.renew()


_looking = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
