"""The list of all files of an exported run: written last, so its being there says that nothing is missing.

Read `Making` for how a run's folder is made, and `Place` for how one is read that may come from anybody: no path leads out
of it, no link is followed, nothing but regular files is opened, and what is read is what the list says.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dray.core.errors import printable
from dray.core.ids import PATTERN
from dray.workspace.errors import BadExport

NAME = "export.json"
VERSION = 1
MOST_LISTED = 256 << 20
"""Bytes of the list."""
MOST_FILES = 1_000_000
MOST_PATH = 4000
"""Bytes of a path below the run's folder."""
PIECE = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Row(NamedTuple):
    """What the list says of one file."""

    size: int
    sha256: str


class Listing(NamedTuple):
    """What an exported run consists of."""

    run_id: str
    missing: Mapping[str, str]
    """What is not there, and why; a path, or a word for many."""
    files: Mapping[str, Row]

    def to_bytes(self) -> bytes:
        """As it is written down: a file a line."""
        rows = [json.dumps([path, *row]) for path, row in sorted(self.files.items())]
        missing = json.dumps(dict(sorted(self.missing.items())))
        return (
            f'{{"v": {VERSION}, "run": "{self.run_id}", "missing": {missing}, "files": [\n'
            + ",\n".join(rows)
            + "\n]}\n"
        ).encode()


class Making:
    """A run's folder that is being filled; without a folder only its list is made."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.files: dict[str, Row] = {}
        self._folders: set[Path] = set()

    def add(self, path: str, content: Iterable[bytes]) -> Row:
        """Write one file."""

        def receive(write: Callable[[bytes], object]) -> None:
            for piece in content:
                write(piece)

        return self.receive(path, receive)

    def receive(self, path: str, bring: Callable[[Callable[[bytes], object]], object]) -> Row:
        """The same, of what `bring` gives to the function that it gets. What cannot be brought leaves nothing."""
        place = self.place(path)
        seen, size = hashlib.sha256(), 0

        def write(piece: bytes) -> None:
            nonlocal size
            if file is not None:
                file.write(piece)
            seen.update(piece)
            size += len(piece)

        try:
            with contextlib.nullcontext() if place is None else place.open("xb") as file:
                bring(write)
        except BaseException:
            if place is not None:
                place.unlink(missing_ok=True)
            raise
        self.files[path] = Row(size, seen.hexdigest())
        return self.files[path]

    def link(self, path: str, known: Path, size: int, sha256: str) -> bool:
        """Let the file be another name of `known`, which has that content. False where that cannot be."""
        try:
            if known.stat().st_size != size:
                return False
            place = self.place(path)
            if place is not None:
                os.link(known, place, follow_symlinks=False)
        except OSError:
            return False
        self.files[path] = Row(size, sha256)
        return True

    def forget(self, path: str) -> None:
        """Take a file away again."""
        del self.files[path]
        if self.folder is not None:
            (self.folder / path).unlink()

    def place(self, path: str) -> Path | None:
        """Where that file is to be; the folders above it are made."""
        require_inside(path)
        if self.folder is None:
            return None
        place = self.folder / path
        if place.parent not in self._folders:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(place.parent)
        return place

    def finish(self, run_id: str, missing: Mapping[str, str]) -> bytes:
        """Write the list: nothing may be added any more."""
        text = Listing(run_id, missing, self.files).to_bytes()
        if self.folder is not None:
            self.folder.joinpath(NAME).write_bytes(text)
        return text


class Place:
    """A folder that is said to be an exported run. Use it in a `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with self._about(None):
            self._fd = os.open(folder, _FOLDER)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def listing(self) -> Listing:
        """The list, checked. Raises BadExport."""
        return self._checked(self.read(NAME, MOST_LISTED))

    def read(self, path: str, most: int) -> bytes:
        """A file that is read at once."""
        with self._about(path), self.open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise ValueError(f"it is larger than {most} bytes")
            return file.read(most)

    def open(self, path: str) -> BinaryIO:
        """A regular file inside, whatever stands in the way. Raises BadExport."""
        *parents, name = path.split("/")
        folder = self._fd
        with self._about(path):
            try:
                for parent in parents:
                    inner = os.open(parent, _FOLDER, dir_fd=folder)
                    if folder != self._fd:
                        os.close(folder)
                    folder = inner
                file = os.open(name, _FILE, dir_fd=folder)
            finally:
                if folder != self._fd:
                    os.close(folder)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                os.close(file)
                raise ValueError("it is no regular file")
            return os.fdopen(file, "rb")

    def check_sizes(self, listing: Listing) -> int:
        """Raise BadExport where a file is missing or has not the size that the list says; the sum of all.

        A first look, before anything is copied: what a file is, and says, is looked at when it is opened.
        """
        for path, row in listing.files.items():
            with self._about(path):
                info = os.lstat(path, dir_fd=self._fd)
                if stat.S_ISREG(info.st_mode) and info.st_size != row.size:
                    raise ValueError(f"it has {info.st_size} bytes, and the list says {row.size}")
        return sum(row.size for row in listing.files.values())

    def pieces(self, path: str, row: Row) -> Iterator[bytes]:
        """The content of a file. Raises BadExport at its end when it is not what the list says."""
        seen, size = hashlib.sha256(), 0
        with self.open(path) as file, self._about(path):
            while piece := file.read(PIECE):
                size += len(piece)
                if size > row.size:
                    raise ValueError(f"it has more bytes than the {row.size} that the list says")
                seen.update(piece)
                yield piece
            if size != row.size or seen.hexdigest() != row.sha256:
                raise ValueError("its content is not what the list says (SHA-256)")

    def check(self, listing: Listing) -> None:
        """Read everything, and raise BadExport for the first file that is not what the list says."""
        self.check_sizes(listing)
        for path, row in listing.files.items():
            for _ in self.pieces(path, row):
                continue

    def _checked(self, text: bytes) -> Listing:
        with self._about(NAME):
            said = json.loads(text)
            if not isinstance(said, dict) or type(said.get("v")) is not int:
                raise ValueError("it is no list of files")
            if said["v"] != VERSION:
                raise ValueError(f"a newer dray wrote it, in form {said['v']:.0f}; this dray knows {VERSION}")
            run_id, missing, rows = said.get("run"), said.get("missing"), said.get("files")
            if not isinstance(run_id, str) or not PATTERN.fullmatch(run_id):
                raise ValueError(f"`{printable(str(run_id)[:100])}` is no run id")
            if not isinstance(missing, dict) or not all(isinstance(why, str) for why in missing.values()):
                raise ValueError("it does not say what is missing")
            if not isinstance(rows, list) or len(rows) > MOST_FILES:
                raise ValueError(f"it has no files, or more than {MOST_FILES}")
            return Listing(run_id, missing, _files(rows))

    @contextlib.contextmanager
    def _about(self, path: str | None) -> Iterator[None]:
        """Whatever is wrong inside is wrong with that file."""
        try:
            yield
        except json.JSONDecodeError as error:
            raise BadExport(self.folder, path, "it is not JSON") from error
        except RecursionError as error:
            raise BadExport(self.folder, path, "it is nested too deeply") from error
        except UnicodeDecodeError as error:
            raise BadExport(self.folder, path, "it is not UTF-8") from error
        except (ValueError, OverflowError) as error:
            raise BadExport(self.folder, path, str(error)) from error
        except FileNotFoundError as error:
            raise BadExport(self.folder, path, _why_not_there(path)) from error
        except NotADirectoryError as error:
            why = "a file or a link stands where a folder has to be"
            raise BadExport(self.folder, path, why) from error
        except OSError as error:
            if error.strerror is None or not _is_of_the_source(error):
                raise
            raise BadExport(self.folder, path, _why(error)) from error


def require_inside(path: str) -> None:
    """Refuse a path that leads out of the folder it is below, or that no file can have."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise ValueError(f"`{printable(path[:200])}` leads out of the folder, or is no path")
    try:
        long = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise ValueError(f"`{printable(path[:200])}` is no path") from None
    if long > MOST_PATH or any(len(os.fsencode(part)) > 255 for part in parts):
        raise ValueError(f"`{printable(path[:200])}` is too long")


def require_a_tree(files: Iterable[str], folders: Iterable[str] = ()) -> None:
    """Refuse paths of which one would be a file, or a link, and a folder too."""
    known = set(files)
    for path in (*known, *(f"{folder}/" for folder in folders)):
        at = path.find("/")
        while at >= 0:
            if path[:at] in known:
                raise ValueError(f"`{printable(path[:at])}` is a file and a folder")
            at = path.find("/", at + 1)


def _files(rows: list[object]) -> dict[str, Row]:
    files: dict[str, Row] = {}
    for row in rows:
        match row:
            case [str(path), int(size), str(sha256)] if type(size) is int:
                require_inside(path)
            case _:
                raise ValueError("a row of it is not [path, bytes, sha256]")
        if path in files or path == NAME:
            raise ValueError(f"it has `{printable(path)}` twice, or itself")
        if not 0 <= size < 1 << 63 or not _DIGEST.fullmatch(sha256):
            raise ValueError(f"the size or digest of `{printable(path)}` is none")
        files[path] = Row(size, sha256)
    require_a_tree(files)
    return files


def _why_not_there(path: str | None) -> str:
    if path == NAME:
        return "there is no such file, so it was not exported or copied to its end"
    return "it is not there" if path else "there is no such folder"


def _is_of_the_source(error: OSError) -> bool:
    return error.errno in {errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO, errno.EISDIR, errno.ENAMETOOLONG, errno.EIO}  # fmt: skip


def _why(error: OSError) -> str:
    return "it is a link" if error.errno == errno.ELOOP else (error.strerror or str(error)).lower()
