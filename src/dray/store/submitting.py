"""Says of a run that a client is submitting it right now: a lock that the operating system drops when the client dies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def hold(folder: Path, run_id: str) -> Iterator[None]:
    """Hold `folder/run_id` while the block runs."""
    path = folder / run_id
    folder.mkdir(exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        _lock(file, alone=True)
        yield
        with contextlib.suppress(OSError):  # Windows deletes no open file
            path.unlink()
    finally:
        os.close(file)


def is_held(folder: Path, run_id: str) -> bool:
    """True while some living process is inside `hold`. The file of a killed one stays, and says nothing."""
    try:
        file = os.open(folder / run_id, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return False
    try:
        return not _lock(file, alone=False)
    finally:
        os.close(file)


def _lock(file: int, alone: bool) -> bool:
    """Alone: wait for it. Else only try, together with others who try: two who ask must not see each other."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _lock_on_windows(file, alone)
    try:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_on_windows(file: int, alone: bool) -> bool:
    import importlib

    msvcrt = importlib.import_module("msvcrt")
    try:
        msvcrt.locking(file, msvcrt.LK_LOCK if alone else msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
