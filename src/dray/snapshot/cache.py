"""Remembers the digests of files that have not changed, so that an unchanged folder is walked and not read.

A file counts as unchanged while its size, mtime, ctime, inode and mode are the same. Like git, an entry is not trusted whose
file was changed in the very moment it was read: a second change could leave the same times behind (`RACY_NS`).

The cache of a folder is one file, replaced in one step; whatever is wrong with it, it is ignored and made again. It holds
two lines (version; SHA-256 of the rest), a line with the boot id, the number of files and the blob folders, then column by
column the numbers, the digests and, between NULs, the paths: read without a loop over the files.
"""

from __future__ import annotations

import hashlib
import os
import sys
from array import array
from collections.abc import Sequence

from dray.snapshot.plans import FileRow

RACY_NS = 2_000_000_000
"""The coarsest clock of the file systems in use (FAT's) has steps of two seconds."""

_MAGIC = b"dray-stat-cache 1 " + sys.byteorder.encode() + b"\n"
_COLUMNS = "qqqQq"
"""size, mtime_ns, ctime_ns, inode (some file systems use all 64 bits of it), mode"""


def is_racy(row: FileRow, read_at_ns: int) -> bool:
    """True when a change after the reading at `read_at_ns` might not show in the times of `row`."""
    changed_ns = row[3] if os.name == "posix" else row[2]  # elsewhere ctime is the time of creation
    return changed_ns + RACY_NS > read_at_ns


class StatCache:
    """The cache of one code folder."""

    def __init__(self, home: str, root: str) -> None:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        self.path = os.path.join(home, "cache", f"{name}.stats")
        self.rows: list[FileRow] = []
        self.digests: list[str] = []
        self.blob_folders: dict[str, int] = {}
        """Two letters -> mtime of that folder when all blobs in it that this cache names were known to be there."""

    @classmethod
    def load(cls, home: str, root: str) -> StatCache:
        """What is remembered of `root`; empty when that is nothing, or cannot be trusted."""
        cache = cls(home, root)
        try:
            with open(cache.path, "rb") as file:
                data = file.read()
        except OSError:
            return cache
        start = len(_MAGIC) + 65
        if data.startswith(_MAGIC) and data[len(_MAGIC) : start] == _checksum(data[start:]):
            cache._parse(data[start:])
        return cache

    def lookup(self, rows: list[FileRow]) -> Sequence[str | None]:
        """The digest of each of `rows`, None where it has to be read."""
        if rows == self.rows:  # nothing has changed, the case to be quick for
            return self.digests
        known = dict(zip(self.rows, self.digests, strict=True))
        return [known.get(row) for row in rows]

    def _parse(self, body: bytes) -> None:
        head, _, rest = body.partition(b"\n")
        boot, count_text, *folders = head.decode().split(" ")
        count = int(count_text)
        columns = [array(code, rest[8 * count * n : 8 * count * (n + 1)]) for n, code in enumerate(_COLUMNS)]
        at = 8 * count * len(columns)
        digests = rest[at : at + 32 * count].hex()
        paths = rest[at + 32 * count :].decode("utf-8", "surrogateescape").split("\0") if count else []
        self.rows = list(zip(paths, *columns, strict=True))
        self.digests = [digests[n : n + 64] for n in range(0, 64 * count, 64)]
        if boot == _boot_id():  # a crash of the machine may have taken the contents of young blobs
            self.blob_folders = {word[:2]: int(word[3:]) for word in folders}

    def save(self, entries: Sequence[tuple[FileRow, str]], blob_folders: dict[str, int]) -> None:
        """Replace what is remembered. A cache that cannot be written costs time, not the run."""
        words = [_boot_id(), str(len(entries)), *(f"{two}:{at}" for two, at in sorted(blob_folders.items()))]
        rows = [row for row, _ in entries]
        try:
            numbers = [list(column) for column in zip(*[row[1:] for row in rows], strict=True)] or [[]] * 5
            columns = [array(code, column).tobytes() for code, column in zip(_COLUMNS, numbers, strict=True)]
        except OverflowError:  # a time in another millennium
            return
        digests = bytes.fromhex("".join([digest for _, digest in entries]))
        paths = "\0".join([row[0] for row in rows]).encode("utf-8", "surrogateescape")
        self._write(b"".join([" ".join(words).encode(), b"\n", *columns, digests, paths]))

    def _write(self, body: bytes) -> None:
        young = f"{self.path}.{os.getpid()}.{os.urandom(4).hex()}"
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            with open(young, "xb") as file:
                file.write(_MAGIC + _checksum(body) + body)
            os.replace(young, self.path)
        except OSError:
            try:
                os.unlink(young)
            except OSError:
                return


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b"\n"


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "-"
