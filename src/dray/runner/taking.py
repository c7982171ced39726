"""Takes in the blobs that a submit brings: many small ones in a frame, large ones in pieces that a later submit can go on from.

Read `Taking` first. What came of a large blob lies in `<machine>/incoming/<digest>`, under a flock while somebody writes there; a
blob appears in its place by one rename, and only if its digest is right.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from typing import TYPE_CHECKING, Any

from .files import make_folder, write_all
from .machine import Machine
from .trouble import Trouble

if TYPE_CHECKING:
    from hashlib import _Hash

_MOST_UNPACKED = 8 << 20
_MOST_KEPT = 64  # partial blobs that one submit goes on with: each is an open file
_STALE_S = 3 * 86400.0
_PIECE = 1 << 20


class Taking:
    """The contents that one submit has to bring: digest -> bytes. Use as a context manager; what is cut is kept."""

    def __init__(self, machine: Machine, wanted: dict[str, int]) -> None:
        self.machine = machine
        self.wanted = dict(wanted)
        self._growing: dict[str, _Growing] = {}
        self._again: list[str] = []
        self._made: set[str] = set()
        self._own = os.urandom(4).hex()

    def __enter__(self) -> Taking:
        make_folder(self.machine.incoming)
        self._take_up()
        return self

    def __exit__(self, *about: object) -> None:
        for growing in self._growing.values():
            growing.close()

    def lacks(self) -> dict[str, Any]:
        """The answer to the client: what to send now, and from which byte on."""
        partial = {digest: growing.size for digest, growing in self._growing.items() if growing.size}
        return {"lacks": list(self.wanted), "partial": partial}

    def once_more(self) -> bool:
        """Whether `lacks` is to be said again, because of blobs whose kept beginning was not theirs."""
        if not self._again or self.wanted.keys() != set(self._again):
            return False
        self._again = []
        return True

    def frame(self, header: dict[str, Any], body: bytes) -> None:
        """Take one frame: `blobs` says which bytes of which blobs follow each other in it. Raises Trouble."""
        try:
            rows = [(str(digest), int(offset), int(size)) for digest, offset, size in header["blobs"]]
        except (KeyError, TypeError, ValueError):
            raise Trouble("unwanted-blob", "something came that is no blob") from None
        total = sum(size for _, _, size in rows)
        data = memoryview(_unpacked(body, total) if header.get("packed") else body)
        if total != len(data) or any(size < 0 for _, _, size in rows):
            raise Trouble("unwanted-blob", "a frame of blobs is not as long as it says")
        at = 0
        for digest, offset, size in rows:
            if digest not in self.wanted:
                raise Trouble("unwanted-blob", "a blob came that was not asked for")
            self._take(digest, offset, data[at : at + size])
            at += size

    def _take(self, digest: str, offset: int, data: memoryview) -> None:
        whole = self.wanted[digest]
        if offset == 0 and len(data) == whole and digest not in self._growing:
            self._take_whole(digest, data)
            return
        growing = self._growing.get(digest)
        if growing is None:
            growing = self._growing[digest] = _Growing(self.machine, digest)
        if offset == 0 and growing.size:
            growing.restart()
        if offset != growing.size or offset + len(data) > whole:
            raise Trouble("unwanted-blob", "a piece of a blob came that does not join on")
        growing.add(data)
        if growing.size == whole:
            self._finish(digest, growing)

    def _take_whole(self, digest: str, data: memoryview) -> None:
        """The most frequent case, with as few calls to the system as it takes."""
        if hashlib.sha256(data).hexdigest() != digest:
            raise Trouble("wrong-digest", "a blob arrived damaged")
        beside = "%s/%s.%s" % (self.machine.incoming, digest, self._own)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        try:
            try:
                write_all(fd, data)
            finally:
                os.close(fd)
            os.rename(beside, self._place(digest))
        except OSError:
            os.unlink(beside)
            raise
        del self.wanted[digest]

    def _place(self, digest: str) -> str:
        path = self.machine.blob(digest)
        if digest[:2] not in self._made:
            make_folder(os.path.dirname(path))
            self._made.add(digest[:2])
        return path

    def _finish(self, digest: str, growing: _Growing) -> None:
        del self._growing[digest]
        try:
            if growing.digest() == digest:
                growing.name(self._place(digest))
                del self.wanted[digest]
                return
            growing.discard()
        finally:
            growing.close()
        if not growing.was_there:
            raise Trouble("wrong-digest", "a blob arrived damaged")
        self._again.append(digest)

    def _take_up(self) -> None:
        """Find what cut submits have left: go on with what is wanted, remove what nobody has come back for."""
        now = time.time()
        for name in os.listdir(self.machine.incoming):
            if name in self.wanted and len(self._growing) < _MOST_KEPT:
                kept = _Growing(self.machine, name)
                if kept.is_own:
                    kept.close()  # somebody is writing it at this moment
                    kept.discard()
                elif kept.size >= self.wanted[name]:
                    self._finish_kept(name, kept)
                else:
                    self._growing[name] = kept
            else:
                _sweep(os.path.join(self.machine.incoming, name), now)

    def _finish_kept(self, digest: str, kept: _Growing) -> None:
        """All of it had come, and its submit was cut before it could be named; or it is no beginning of it at all."""
        if kept.size == self.wanted[digest] and kept.digest() == digest:
            kept.name(self._place(digest))
            del self.wanted[digest]
        else:
            kept.discard()
        kept.close()


class _Growing:
    """The file that a large blob grows in: the kept one of its digest, or one of our own when somebody else writes that."""

    def __init__(self, machine: Machine, digest: str) -> None:
        self.path = os.path.join(machine.incoming, digest)
        fd = _locked(self.path)
        self.is_own = fd is None
        if fd is None:
            self.path += "." + os.urandom(4).hex()
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
        self._fd = fd
        self.size = os.fstat(fd).st_size
        self.was_there = self.size > 0
        self._seen: _Hash | None = None

    def add(self, data: memoryview) -> None:
        """Append."""
        seen = self._hash()
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], self.size + done)
        seen.update(data)
        self.size += len(data)

    def _hash(self) -> _Hash:
        """Of all that is there; the kept beginning is read when it turns out to be of use."""
        if self._seen is None:
            self._seen = hashlib.sha256()
            at = 0
            while at < self.size:
                piece = os.pread(self._fd, min(_PIECE, self.size - at), at)
                if not piece:
                    break
                self._seen.update(piece)
                at += len(piece)
        return self._seen

    def digest(self) -> str:
        """Of all that is there."""
        return self._hash().hexdigest()

    def restart(self) -> None:
        """From the first byte on."""
        os.ftruncate(self._fd, 0)
        self.size, self._seen, self.was_there = 0, None, False

    def name(self, path: str) -> None:
        """Let it appear at `path`."""
        os.fchmod(self._fd, 0o400)
        os.rename(self.path, path)

    def discard(self) -> None:
        """It is of no use to anybody."""
        os.unlink(self.path)

    def close(self) -> None:
        """Let go of it; another submit may go on."""
        os.close(self._fd)


def _locked(path: str) -> int | None:
    """The file at `path`, made if need be, and ours alone; None when somebody else has it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return fd
            except FileNotFoundError:
                pass  # whoever had it has just finished: it is a blob by now
        except OSError:
            os.close(fd)
            return None
        os.close(fd)


def _sweep(path: str, now: float) -> None:
    """Remove what was left long ago, and is in nobody's hands."""
    try:
        if now - os.stat(path).st_mtime < _STALE_S:
            return
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:
        pass  # somebody is at it, or has removed it
    finally:
        os.close(fd)


def _unpacked(body: bytes, size: int) -> bytes:
    """The `size` bytes that `body` was made from, and not one more: a small frame can hold gigabytes. Raises Trouble."""
    import zlib

    if not 0 <= size <= _MOST_UNPACKED:
        raise Trouble("unwanted-blob", "a packed frame cannot have %d bytes" % size)
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(body, size + 1)
    except zlib.error:
        raise Trouble("wrong-digest", "a packed frame arrived damaged") from None
    if len(data) != size or not unpacker.eof or unpacker.unused_data:
        raise Trouble("unwanted-blob", "a packed frame is not as long as it says")
    return data
