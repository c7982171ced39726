"""The bytes of `log.*` and `media.*` streams, one file each. What lies behind the cursor in history.db counts for nothing.

Names reach this module checked; it only joins them.
"""

from __future__ import annotations

import os
from pathlib import Path

_PIECE = 65536
# Without O_BINARY Windows would change line ends; a link at the place is none of ours.
_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Logs:
    """The folder `logs/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, run_id: str, attempt: int, stream: str) -> Path:
        """Where the bytes of a stream are, or will be."""
        return self.folder / run_id / str(attempt) / stream

    def size(self, run_id: str, attempt: int, stream: str) -> int:
        """Bytes in the file; 0 when there is none."""
        try:
            return os.stat(self.path(run_id, attempt, stream)).st_size
        except OSError:
            return 0

    def write(self, run_id: str, attempt: int, stream: str, offset: int, data: bytes) -> None:
        """Put `data` at `offset`. Two followers write the same bytes at the same place, so no order is needed."""
        path = self.path(run_id, attempt, stream)
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS, 0o666)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS, 0o666)
        try:
            os.lseek(file, offset, os.SEEK_SET)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)

    def share(self, run_id: str, attempt: int, stream: str, source: str) -> bool:
        """Make the stream's file another name of `source`, which only grows. False where that is impossible."""
        path = self.path(run_id, attempt, stream)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, path, follow_symlinks=False)
        except FileExistsError:
            return os.path.samefile(source, path)
        except (OSError, NotImplementedError):
            return False  # another disk, or a file system without links
        return True

    def take(self, run_id: str, attempt: int, stream: str, source: Path) -> None:
        """Make the stream's file that of `source`, which nobody writes to any more: shared, else copied."""
        if not self.share(run_id, attempt, stream, os.fspath(source)):
            import shutil

            shutil.copyfile(source, self.path(run_id, attempt, stream))

    def read(self, run_id: str, attempt: int, stream: str, start: int, size: int) -> bytes:
        """Up to `size` bytes from `start`; fewer only at the end of the file."""
        try:
            with open(self.path(run_id, attempt, stream), "rb") as file:
                file.seek(start)
                return file.read(max(size, 0))
        except FileNotFoundError:
            return b""

    def tail_start(self, run_id: str, attempt: int, stream: str, end: int, lines: int) -> int:
        """Where the last `lines` lines of the first `end` bytes begin. A last line without newline is a line."""
        if lines <= 0:
            return end
        found = 0
        place = end
        while place > 0:
            start = max(place - _PIECE, 0)
            piece = self.read(run_id, attempt, stream, start, place - start)
            at = len(piece)
            if place == end and piece.endswith(b"\n"):
                at -= 1  # it ends the last line, and begins none
            while (at := piece.rfind(b"\n", 0, at)) >= 0:
                found += 1
                if found == lines:
                    return start + at + 1
            place = start
        return 0

    def remove(self, run_id: str) -> None:
        """Delete all files of a run. Safe to repeat."""
        import shutil  # slow to import, seldom needed

        folder = self.folder / run_id
        if folder.exists():
            shutil.rmtree(folder)
