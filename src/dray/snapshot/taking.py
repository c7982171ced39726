"""Takes a snapshot: the walk, the contents that are new, and the manifest that names it all.

Read `take` first. The walk is walk.py's, the contents blobs.py's, what is remembered between two snapshots cache.py's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dray.core.spec import canonical_json
from dray.snapshot.blobs import BlobStore, Stored
from dray.snapshot.cache import RACY_NS, StatCache, is_racy
from dray.snapshot.errors import NoRoomForBlobs, Unreadable
from dray.snapshot.limit import ignore_line
from dray.snapshot.plans import FileRow, LeftOut, Plan, summary
from dray.snapshot.reading import read_all
from dray.snapshot.walk import Progress, plan

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A code folder as it was, every content of it, and the manifest too, in the blob store."""

    root: Path
    manifest: dict[str, Any]
    """docs/design.md, "Snapshot"."""
    digest: str
    """SHA-256 of the manifest's canonical JSON."""
    files: int
    """Files and links."""
    bytes: int
    left_out: tuple[LeftOut, ...]
    home: Path

    def blob_path(self, digest: str) -> Path:
        """Where the content lies on this machine."""
        return Path(BlobStore(str(self.home)).path(digest))

    def summary(self) -> str:
        """One line for people."""
        return summary(self.files, self.bytes, self.left_out)


def take(root: str | Path, home: str | Path, *, progress: Progress | None = None) -> Snapshot:
    """Snapshot the code folder `root`; contents go to `home/blobs`. An unchanged folder is walked, not read.

    Any number of processes may do this at once. Raises what `plan` raises, Unreadable for files, NoRoomForBlobs.
    """
    home = os.path.abspath(home)
    for attempt in range(1, _TRIES + 1):
        found = plan(root, home=home, progress=progress)
        digests = _Taking(found, home, progress).run(drop_vanished=attempt == _TRIES)
        if digests is not None:
            break  # else: something vanished between the walk and the reading, so walk again
    assert digests is not None
    manifest = {
        "v": 1,
        "files": [
            [row[0], digest, row[1], 1 if row[5] & 0o100 else 0]
            for row, digest in zip(found.files, digests, strict=True)
        ],
        "links": [list(link) for link in found.links],
        "dirs": found.dirs,
    }
    return Snapshot(
        root=Path(found.root),
        manifest=manifest,
        digest=_kept(manifest, home),
        files=len(found.files) + len(found.links),
        bytes=found.bytes,
        left_out=tuple(found.left_out),
        home=Path(home),
    )


def nothing(home: str | Path) -> Snapshot:
    """The snapshot of no code at all."""
    home = os.path.abspath(home)
    manifest: dict[str, Any] = {"v": 1, "files": [], "links": [], "dirs": []}
    return Snapshot(Path(home), manifest, _kept(manifest, home), 0, 0, (), Path(home))


def _kept(manifest: dict[str, Any], home: str) -> str:
    """The digest of the manifest, which lies among the blobs from then on."""
    words = canonical_json(manifest)
    digest = sha256(words).hexdigest()
    BlobStore(home).keep(words, digest)  # so that the code can be had again: docs/decisions/0015
    return digest


class _Taking:
    """One try to get a digest for every file of a plan, and a blob for every digest."""

    def __init__(self, found: Plan, home: str, progress: Progress | None) -> None:
        self.plan = found
        self.store = BlobStore(home)
        self.progress = progress
        self.cache = StatCache.load(home, found.root)
        self.fresh: dict[str, Stored] = {}

    def run(self, *, drop_vanished: bool) -> list[str] | None:
        """The digests of the plan's files, which is brought up to date with what was read. None: walk again."""
        rows = self.plan.files
        known = self.cache.lookup(rows)
        folders, lost = self._lost(known)
        missing = (
            [row for row, digest in zip(rows, known, strict=True) if digest is None] if None in known else []
        )
        vanished = set(self._read(missing + lost))
        if vanished and not drop_vanished:
            return None
        digests = (
            self._merge(known, vanished) if self.fresh or vanished else [d for d in known if d is not None]
        )
        if self.fresh or len(self.cache.digests) != len(digests) or folders != self.cache.blob_folders:
            self._remember(digests, folders)
        return digests

    def _merge(self, known: Sequence[str | None], vanished: set[str]) -> list[str]:
        """Put what was read into the plan; the digest of each of its files."""
        digests: list[str] = []
        kept: list[FileRow] = []
        for row, old in zip(self.plan.files, known, strict=True):
            stored = self.fresh.get(row[0])
            if stored is not None:
                kept.append(stored.row)
                digests.append(stored.digest)
            elif old is not None and row[0] not in vanished:
                kept.append(row)
                digests.append(old)
        self.plan.files = kept
        self.plan.bytes = sum([row[1] for row in kept])
        return digests

    def _lost(self, known: Sequence[str | None]) -> tuple[dict[str, int], list[FileRow]]:
        """(folder times for the next time, files whose blob is not in the store any more).

        Adding or removing a blob changes the time of its folder, so 256 questions answer for any number of files.
        """
        now = time.time_ns()
        folders: dict[str, int] = {}
        doubtful = set()
        for two in {digest[:2] for digest in known if digest is not None}:
            mtime_ns = self.store.folder_mtime_ns(two)
            if mtime_ns is None or self.cache.blob_folders.get(two) != mtime_ns:
                doubtful.add(two)
            if mtime_ns is not None and mtime_ns + RACY_NS < now:
                folders[two] = mtime_ns
        if not doubtful:
            return folders, []
        return folders, [
            row
            for row, digest in zip(self.plan.files, known, strict=True)
            if digest is not None and digest[:2] in doubtful and not self.store.has(digest, row[1])
        ]

    def _read(self, rows: Sequence[FileRow]) -> list[str]:
        """Store the contents of `rows`; the paths of those that are no files any more."""
        if not rows:
            return []
        self.store.prepare()
        start = self.plan.root.rstrip(os.sep) + os.sep
        total = sum(row[1] for row in rows)
        if total > self.store.free():
            rows = self._those_to_copy(start, rows)

        progress = self.progress

        def told(done: int) -> None:
            if progress is not None:
                progress("reading", done, total)

        def put(row: FileRow, report: Callable[[int], None]) -> Stored:
            return self.store.put(start + row[0], row[0], report)

        stored, vanished, forbidden = read_all(rows, put, told)
        self._require_readable(forbidden)
        self.fresh.update((item.row[0], item) for item in stored)
        return vanished

    def _those_to_copy(self, start: str, rows: Sequence[FileRow]) -> list[FileRow]:
        """The ones of `rows` that the store really lacks.

        Asked when the disk could not take all of them: it must neither be filled up in vain, nor be called too full
        for what is there already. These files are read twice.
        """
        looked, _, forbidden = read_all(rows, lambda row, _: self.store.look(start + row[0], row[0]), None)
        self._require_readable(forbidden)
        self.fresh.update((stored.row[0], stored) for stored, is_there in looked if is_there)
        needed = sum(stored.row[1] for stored, is_there in looked if not is_there)
        free = self.store.free()
        if needed > free:
            raise NoRoomForBlobs(self.store.folder, needed, free)
        return [row for row in rows if row[0] not in self.fresh]

    def _require_readable(self, forbidden: Sequence[str]) -> None:
        if forbidden:
            raise Unreadable([(path, ignore_line(path)) for path in sorted(forbidden)], self.plan.ignore_file)

    def _remember(self, digests: list[str], folders: dict[str, int]) -> None:
        trusted = []
        for row, digest in zip(self.plan.files, digests, strict=True):
            stored = self.fresh.get(row[0])
            if stored is None or (stored.is_steady and not is_racy(row, stored.read_at_ns)):
                trusted.append((row, digest))
        self.cache.save(trusted, folders)
