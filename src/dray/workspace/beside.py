"""A folder that is made beside its place and gets its name when it is whole; what killed processes left is cleared away.

Who makes a folder holds a lock on it, which the operating system drops when he dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_END = ".part"


@contextlib.contextmanager
def made_beside(place: Path) -> Iterator[Path]:
    """An empty folder that may be renamed to `place`. What is still there at the end is removed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    path, held = _held(place)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)  # what stays is cleared away the next time
        os.close(held)


def clear(parent: Path) -> None:
    """Remove what processes that are dead have left half-made in `parent`."""
    for path in parent.glob(f".*{_END}"):
        with contextlib.suppress(
            OSError
        ):  # somebody is at it, or it cannot be known here whether somebody is
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(held)


def replace(path: Path, place: Path) -> None:
    """Let the folder `path` be at `place`, where another one is; killed in between, `place` is empty and nothing is mixed."""
    old = _name(place)
    place.rename(old)
    try:
        path.rename(place)
    except BaseException:
        old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _held(place: Path) -> tuple[Path, int]:
    while True:
        path = _name(place)
        path.mkdir()
        try:
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # somebody who clears up took it for a dead one's
        with contextlib.suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(held, fcntl.LOCK_EX)
        if path.exists():
            return path, held
        os.close(held)


def _name(place: Path) -> Path:
    return place.with_name(f".{place.name}.{os.urandom(4).hex()}{_END}")
