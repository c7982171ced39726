"""Gives the code of a run back: its manifest, and the contents that this machine still has.

Contents come from the blobs, else from the run's own code folder, where a script may have changed them: each is read and
compared with its digest before it is offered.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from . import frames, layout, results
from .files import read_json
from .folder import RunFolder
from .machine import Machine


def manifest_of(folder: RunFolder) -> dict[str, Any] | None:
    """The run's manifest, or None when there is none to be used any more."""
    path = os.path.join(folder.path, "manifest.json")
    try:
        if os.stat(path).st_size > frames.MAX_HEADER // 2:  # not ours: a script can write there
            return None
    except OSError:
        return None
    manifest = read_json(path)
    try:
        layout.check(manifest or {})
    except layout.BadManifest:
        return None
    return manifest


def places(manifest: dict[str, Any]) -> dict[str, tuple[int, list[str]]]:
    """Digest -> size, and the paths in the code folder that had this content."""
    found: dict[str, tuple[int, list[str]]] = {}
    for path, digest, size, _ in manifest["files"]:
        found.setdefault(digest, (int(size), []))[1].append(path)
    return found


def open_content(machine: Machine, folder: RunFolder, digest: str, size: int, paths: list[str]) -> int | None:
    """A file with exactly this content, opened at its beginning; None when this machine has none."""
    ours = layout.find_blob(machine, None, digest, size)
    for place in [ours] + [results.confined(folder, path) for path in paths]:
        fd = _opened(place, size) if place else None
        if fd is None:
            continue
        if _digest(fd, size) == digest:
            os.lseek(fd, 0, os.SEEK_SET)
            return fd
        os.close(fd)
    return None


def _opened(place: str, size: int) -> int | None:
    try:
        fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_size == size:
        return fd
    os.close(fd)
    return None


def _digest(fd: int, size: int) -> str:
    """Of the first `size` bytes: a script may be writing there, without end."""
    import hashlib

    seen = hashlib.sha256()
    while size > 0:
        piece = os.read(fd, min(size, frames.PIECE))
        if not piece:
            break
        seen.update(piece)
        size -= len(piece)
    return seen.hexdigest()
