"""File contents by their SHA-256, under `home/blobs/ab/cdef...`.

A blob appears by one rename of a complete file and is never written again, so any number of processes may add to the same
store. What is hashed is what is written: a file that changes meanwhile gives a blob of what was read, under its right name.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dray.snapshot.errors import NoRoomForBlobs
from dray.snapshot.plans import FileRow

if TYPE_CHECKING:
    import queue
    import threading
    from hashlib import _Hash

_PIECE = 1 << 20
_TRIES = 3
_WORTH_A_THREAD = 8  # pieces
_AHEAD = 8  # of them in memory
_STALE_S = 86400.0
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR})


class Stored(NamedTuple):
    """A file whose content is in the store, as it was when it was read."""

    digest: str
    row: FileRow
    read_at_ns: int
    """When the reading began."""
    is_steady: bool
    """False when the file was being changed at every try: the digest says nothing about its next state."""


class NoFileAnyMore(Exception):
    """What was a file during the walk is gone, or is something else now."""


class MayNotRead(Exception):
    """This user has no permission to read the file."""


class BlobStore:
    """The store under one DRAY_HOME."""

    def __init__(self, home: str) -> None:
        self.folder = os.path.join(home, "blobs")
        self._incoming = os.path.join(self.folder, "incoming")
        self._young = itertools.count()
        self._own = os.urandom(8).hex()

    def path(self, digest: str) -> str:
        """Where the blob lies, or would."""
        return f"{self.folder}{os.sep}{digest[:2]}{os.sep}{digest[2:]}"

    def has(self, digest: str, size: int) -> bool:
        """The size is compared because a crash of the machine can leave a name without its content."""
        try:
            return os.stat(self.path(digest)).st_size == size
        except OSError:
            return False

    def folder_mtime_ns(self, two: str) -> int | None:
        """When a blob beginning with `two` was last added or removed; None when there is no such folder."""
        try:
            return os.stat(os.path.join(self.folder, two)).st_mtime_ns
        except OSError:
            return None

    def prepare(self) -> None:
        """Make the folders, and clear what killed processes have left half-written."""
        os.makedirs(self._incoming, mode=0o700, exist_ok=True)
        limit = time.time() - _STALE_S
        with os.scandir(self._incoming) as left:
            for entry in left:
                try:
                    if entry.stat(follow_symlinks=False).st_mtime < limit:
                        os.unlink(entry.path)
                except FileNotFoundError:  # another process clears up, too
                    continue

    def young(self) -> str:
        """A name for a content that is not complete."""
        return f"{self._incoming}{os.sep}{os.getpid()}-{self._own}-{next(self._young)}"

    def free(self) -> int:
        """Bytes that this user may still write."""
        import shutil

        return shutil.disk_usage(self.folder).free

    def put(self, source: str, path: str, told: Callable[[int], None]) -> Stored:
        """Store the file at `source`; `path` is its name in the manifest. `told` hears of every piece that was read.

        Raises NoFileAnyMore, MayNotRead, NoRoomForBlobs.
        """
        for _ in range(_TRIES):
            read_at_ns = time.time_ns()
            file = _open(source)
            try:
                before = _row(path, file)
                digest, size = self._store(file, before[1], told)
                after = _row(path, file)
            finally:
                os.close(file)
            is_steady = before == after and size == after[1]
            if is_steady:
                break
        return Stored(digest, (path, size, *after[2:]), read_at_ns, is_steady)

    def look(self, source: str, path: str) -> tuple[Stored, bool]:
        """What `put` would give, and whether its content is in the store already. Reads the file, writes nothing."""
        read_at_ns = time.time_ns()
        file = _open(source)
        try:
            before = _row(path, file)
            hasher = hashlib.sha256()
            size = 0
            while piece := os.read(file, _PIECE):
                size += len(piece)
                hasher.update(piece)
            after = _row(path, file)
        finally:
            os.close(file)
        digest = hasher.hexdigest()
        stored = Stored(digest, (path, size, *after[2:]), read_at_ns, before == after and size == after[1])
        return stored, self.has(digest, size)

    def keep(self, data: bytes, digest: str) -> None:
        """Store `data`, whose SHA-256 is `digest`. One look when it is there. Raises NoRoomForBlobs."""
        if not self.has(digest, len(data)):
            self.mend(data, digest)

    def mend(self, data: bytes, digest: str) -> None:
        """The same, over whatever is there: it may be damaged."""
        with Arriving(self, digest, len(data)) as blob:
            blob.write(data)
            blob.finish()

    def is_intact(self, digest: str, size: int) -> bool:
        """Whether the content is there and is what its name says: it is read as a whole."""
        if not self.has(digest, size):
            return False
        try:
            with open(self.path(digest), "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == digest
        except OSError:
            return False

    def adopt(self, source: str, digest: str, size: int) -> None:
        """Let the file `source` be the blob of that digest, which is its own; for files on the same disk."""
        self._name(source, digest, size)

    def _store(self, source: int, expected: int, told: Callable[[int], None]) -> tuple[str, int]:
        # No more room than a small file needs, and a byte to see it grow: a megabyte to be given back costs more than the rest.
        piece = os.read(source, min(_PIECE, expected + 1))
        hasher = hashlib.sha256(piece)
        told(len(piece))
        if len(piece) == expected < _PIECE:
            digest = hasher.hexdigest()
            if not self.has(digest, expected):  # a small file is known before anything is written
                self._write_small(piece, digest)
            return digest, expected
        return self._write(source, piece, hasher, told)

    def _write_small(self, data: bytes, digest: str) -> None:
        """The most frequent case, with as few calls to the system as it takes: a content that is not there, in one piece."""
        young = self.young()
        try:
            target = os.open(young, _CREATE, 0o400)
            try:
                _write_all(target, data)
            finally:
                os.close(target)
            self._place(young, digest)
        except BaseException as error:
            _unlink(young)
            if isinstance(error, OSError) and error.errno in _FULL:
                raise NoRoomForBlobs(self.folder, len(data), self.free()) from error
            raise

    def _write(
        self, source: int, piece: bytes, hasher: _Hash, told: Callable[[int], None]
    ) -> tuple[str, int]:
        """Copy `piece`, which `hasher` has seen, and what follows it in `source` into the store."""
        young = self.young()
        size = 0
        try:
            target = os.open(young, _CREATE, 0o400)
            try:
                with _Beside(hasher) as beside:
                    while piece:
                        size += _write_all(target, piece)
                        piece = os.read(source, _PIECE)
                        beside.update(piece)
                        told(len(piece))
            finally:
                os.close(target)
            self._name(young, hasher.hexdigest(), size)
        except BaseException as error:
            _unlink(young)
            if isinstance(error, OSError) and error.errno in _FULL:
                needed = max(os.fstat(source).st_size, size)
                raise NoRoomForBlobs(self.folder, needed, self.free()) from error
            raise
        return hasher.hexdigest(), size

    def _name(self, young: str, digest: str, size: int) -> None:
        if self.has(digest, size):  # leave it and the time of its folder alone
            os.unlink(young)
            return
        self._place(young, digest)

    def _place(self, young: str, digest: str) -> None:
        final = self.path(digest)
        try:
            os.replace(young, final)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(final), mode=0o700, exist_ok=True)
            os.replace(young, final)


class WrongContent(Exception):
    """What arrived is not what its digest says, or is longer."""


class Arriving:
    """A content of known digest that comes in pieces. It is in the store when `finish` returns, and else nowhere."""

    def __init__(self, store: BlobStore, digest: str, size: int) -> None:
        self._blobs = store
        self._digest = digest
        self._size = size
        self._came = 0
        self._hasher = hashlib.sha256()
        store.prepare()
        self._young = store.young()
        self._file = os.open(self._young, _CREATE, 0o400)

    def __enter__(self) -> Arriving:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        _unlink(self._young)

    def write(self, piece: bytes) -> None:
        """Take the next bytes. Raises WrongContent for more than were told, NoRoomForBlobs."""
        self._came += len(piece)
        if self._came > self._size:
            raise WrongContent(self._digest)
        self._hasher.update(piece)
        try:
            _write_all(self._file, piece)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise NoRoomForBlobs(self._blobs.folder, self._size, self._blobs.free()) from error

    def finish(self) -> None:
        """Put it in its place, over whatever damaged content may be there. Raises WrongContent."""
        if self._came != self._size or self._hasher.hexdigest() != self._digest:
            raise WrongContent(self._digest)
        final = self._blobs.path(self._digest)
        os.makedirs(os.path.dirname(final), mode=0o700, exist_ok=True)
        os.replace(self._young, final)


def _open(path: str) -> int:
    try:
        return os.open(path, _READ)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise NoFileAnyMore(path) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise MayNotRead(path) from error
        raise


def _row(path: str, file: int) -> FileRow:
    info = os.fstat(file)
    if not stat.S_ISREG(info.st_mode):
        raise NoFileAnyMore(path)
    return (path, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_mode)


class _Beside:
    """Feeds a hash in a thread of its own, once there is so much that it is worth one: copying and hashing cost about the same."""

    def __init__(self, hasher: _Hash) -> None:
        self._hasher = hasher
        self._pieces = 0
        self._thread: threading.Thread | None = None
        self._queue: queue.Queue[bytes] | None = None

    def update(self, piece: bytes) -> None:
        """As of the hash itself."""
        self._pieces += 1
        if self._pieces < _WORTH_A_THREAD:
            self._hasher.update(piece)
            return
        if self._queue is None:
            import queue
            import threading

            self._queue = queue.Queue(_AHEAD)
            self._thread = threading.Thread(target=self._work, args=(self._queue,), daemon=True)
            self._thread.start()
        self._queue.put(piece)

    def _work(self, pieces: queue.Queue[bytes]) -> None:
        while piece := pieces.get():
            self._hasher.update(piece)

    def __enter__(self) -> _Beside:
        return self

    def __exit__(self, *about: object) -> None:
        """The hash has seen everything."""
        if self._thread is not None and self._queue is not None:
            self._queue.put(b"")
            self._thread.join()


def _write_all(target: int, data: bytes) -> int:
    """A regular file takes less than asked only when the disk is nearly full; the next call then says so."""
    done = os.write(target, data)
    while done < len(data):
        done += os.write(target, data[done:])
    return done


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
