"""What of the snapshots' store could go: blobs, and what killed processes left half-written. Only looks; nothing follows a link.

Which blobs a run needs is for others to say, by its manifest, which lies among the blobs under the snapshot's own digest.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from dray.snapshot.blobs import BlobStore

GRACE_S = 3600.0
STALE_CACHE_S = 30 * 86400.0

_TWO = re.compile(r"[0-9a-f]{2}\Z")
_REST = re.compile(r"[0-9a-f]{62}\Z")
_DIGEST = re.compile(rb'"([0-9a-f]{64})"')
_LEFT: tuple[tuple[str, re.Pattern[str], float, str], ...] = (
    # folder below the home, names, how old, what it is
    ("blobs/incoming", re.compile(r"\d+-[0-9a-f]{16}\Z"), GRACE_S, "half-written by a killed submit"),
    ("cache", re.compile(r"[0-9a-f]{32}\.stats\.\d+\.[0-9a-f]{8}\Z"), GRACE_S, "half-written by a killed submit"),
    ("cache", re.compile(r"[0-9a-f]{32}\.stats\Z"), STALE_CACHE_S, "of a folder not submitted from for 30 days"),
    ("cache", re.compile(r"traceback-[\d-]+\.txt\Z"), STALE_CACHE_S, "older than 30 days"),
)  # fmt: skip


class Blob(NamedTuple):
    """A file of the store."""

    digest: str
    bytes: int
    """On the disk."""
    written: float


class Leftover(NamedTuple):
    """A file that nobody will miss."""

    path: str
    bytes: int
    why: str


def blobs(home: str) -> Iterator[Blob]:
    """All blobs of the store; what dray has not put there is passed over."""
    top = BlobStore(home).folder
    for two in _scan(top):
        if _TWO.match(two.name) and two.is_dir(follow_symlinks=False):
            for entry in _scan(two.path):
                if _REST.match(entry.name) and entry.is_file(follow_symlinks=False):
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    yield Blob(two.name + entry.name, info.st_blocks * 512, info.st_mtime)


def remove(home: str, digest: str) -> None:
    """Remove a blob. Only inside the gate, alone."""
    path = BlobStore(home).path(digest)
    if stat.S_ISDIR(os.lstat(os.path.dirname(path)).st_mode) and stat.S_ISREG(os.lstat(path).st_mode):
        os.unlink(path)


def needs(home: str, snapshot: str) -> set[str] | None:
    """Digests of what the snapshot is made of, itself included; None when its manifest is not among the blobs, or damaged.

    Whatever looks like a digest counts: a file too many is kept, and none too few.
    """
    try:
        with open(BlobStore(home).path(snapshot), "rb") as file:
            text = file.read()
    except OSError:
        return None
    if sha256(text).hexdigest() != snapshot:
        return None
    return {snapshot, *(found.decode() for found in _DIGEST.findall(text))}


def leftovers(home: str) -> Iterator[Leftover]:
    """What is of no use any more in the folders beside the blobs."""
    now = time.time()
    for folder, names, age_s, why in _LEFT:
        for entry in _scan(os.path.join(home, *folder.split("/"))):
            if names.match(entry.name) and entry.is_file(follow_symlinks=False):
                info = entry.stat(follow_symlinks=False)
                # A cache that is only read keeps its mtime.
                if max(info.st_mtime, info.st_atime if "stats" in entry.name else 0.0) < now - age_s:
                    yield Leftover(entry.path, info.st_blocks * 512, why)


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []
