"""Small files written so that no crash can leave half of one, and folders removed whatever is in them."""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any

LARGEST_DOCUMENT = 64 * 1024 * 1024


def read_text(path: str) -> str:
    """The file's text, or "" when there is none to read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def read_json(path: str, most: int = LARGEST_DOCUMENT) -> dict[str, Any] | None:
    """The object in that file, or None when it is missing, broken, or longer than `most`."""
    try:
        value = json.loads(read_regular(path, most).decode())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_regular(path: str, most: int = LARGEST_DOCUMENT) -> bytes:
    """The bytes of a regular file. Of a pipe, a device or a terabyte, where a script may have put one, we could read for ever."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if seen.st_size > most:
            raise OSError(errno.EFBIG, "too long", path)
        return file.read(most)


def make_folder(path: str) -> None:
    """Make `path` and what is missing above it, for this user only."""
    os.makedirs(path, mode=0o700, exist_ok=True)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data`, however small the pieces the system takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _write_beside(path: str, data: bytes) -> str:
    beside = "%s.%s.new" % (path, os.urandom(4).hex())
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
    except OSError:
        os.unlink(beside)
        raise
    return beside


def write_once(path: str, data: bytes) -> bool:
    """Make `path` with `data`, whole; False when somebody made it before us."""
    beside = _write_beside(path, data)
    try:
        os.link(beside, path)
        return True
    except FileExistsError:
        return False
    finally:
        os.unlink(beside)


def replace(path: str, data: bytes) -> None:
    """Put `data` at `path`, whole, over whatever was there."""
    beside = _write_beside(path, data)
    try:
        os.rename(beside, path)
    except OSError:
        os.unlink(beside)
        raise


def dump(value: Any) -> bytes:
    """`value` as one line of JSON."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def remove_tree(path: str) -> None:
    """Remove `path` and all below it; links are removed, never followed. A missing one is fine."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
    except FileNotFoundError:
        return
    for attempt in (1, 2, 3):
        try:
            _empty(path)
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError as trouble:
            if attempt == 3 or trouble.errno != errno.ENOTEMPTY:
                raise


def tree_bytes(path: str) -> int:
    """What `path` and all below it take on the disk, as far as one may look; a file of two names counts once."""
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    total = info.st_blocks * 512
    ahead = [path] if stat.S_ISDIR(info.st_mode) else []
    linked = set()
    while ahead:
        try:
            with os.scandir(ahead.pop()) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        ahead.append(entry.path)
                    elif info.st_nlink > 1:
                        if info.st_ino in linked:
                            continue
                        linked.add(info.st_ino)
                    total += info.st_blocks * 512
        except OSError:
            continue
    return total


def _empty(top: str) -> None:
    """Remove all below `top`. Folders are moved up to it first: a script may nest them deeper than any path can name."""
    ahead = [top]
    while ahead:
        folder = ahead.pop()
        _open_up(folder)
        for entry in list(os.scandir(folder)):
            try:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                elif folder == top:
                    ahead.append(entry.path)
                else:
                    place = os.path.join(top, ".%s" % os.urandom(8).hex())
                    _open_up(entry.path)
                    os.rename(entry.path, place)
                    ahead.append(place)
            except FileNotFoundError:
                continue
        if folder != top:
            os.rmdir(folder)


def _open_up(folder: str) -> None:
    """A script may have left folders without permissions."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        os.chmod(folder, 0o700)
