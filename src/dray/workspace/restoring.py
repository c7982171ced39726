"""Puts the exact code of a run into a folder: whole and checked, or not at all.

Read `restore` first. It is laid out beside its place under another name, compared with its digest, and only then moved there.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError
from dray.runner.files import remove_tree
from dray.snapshot import Snapshot, is_same, lay_out, leads_out
from dray.workspace.code import Code
from dray.workspace.errors import CannotWrite, FolderNotEmpty
from dray.workspace.events import Event, Progress

if TYPE_CHECKING:
    from dray.workspace.run import Run

_PART = ".dray-restore-"


@dataclass(frozen=True, slots=True)
class Restored:
    """Where the code of a run is now, and what is to be known about it."""

    folder: Path
    digest: str
    files: int
    bytes: int
    leads_out: tuple[tuple[str, str], ...]
    """Links that point to something that did not travel: (path, target)."""
    left_out: tuple[tuple[str, str], ...]
    """What did not travel at the submit: (path, rule), the first thousand."""
    git: dict[str, Any] | None
    moved_to: Path | None = None
    """Where that is now which was there before."""

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "folder": str(self.folder),
            "snapshot": self.digest,
            "files": self.files,
            "bytes": self.bytes,
            "leads_out": [{"path": path, "to": target} for path, target in self.leads_out],
            "left_out": [{"path": path, "rule": rule} for path, rule in self.left_out],
            "git": self.git,
            "moved_to": str(self.moved_to) if self.moved_to else None,
        }


def restore(
    run: Run, to: str | Path, on: Callable[[Event], None] | None = None, *, force: bool = False
) -> Restored:
    """Lay the code of `run` out in the folder `to`, which is made, or is there and empty.

    With `force` a folder that is not empty moves away, to a name beside it. Raises FolderNotEmpty, CodeGone, NoCode,
    CannotWrite; then nothing has changed at `to`.
    """
    tell: Callable[[Event], None] = on or (lambda event: None)
    folder = Path(to).expanduser()
    must_move = _look(folder, force=force)
    code = Code(run._workspace, run.record, tell).whole()
    try:
        moved = _Placing(folder, code, tell).place(must_move=must_move)
    except OSError as error:
        raise CannotWrite(OSError(error.errno, error.strerror or str(error), str(folder))) from error
    spec = run.record.spec
    links = [(path, target) for path, target in code.manifest["links"] if leads_out(path, target)]
    return Restored(
        folder=folder,
        digest=code.digest,
        files=code.files,
        bytes=code.bytes,
        leads_out=tuple(links),
        left_out=spec.left_out,
        git=dict(spec.git) if spec.git else None,
        moved_to=moved,
    )


def _look(folder: Path, *, force: bool) -> bool:
    """Refuse a place where nothing can be put, before anything is fetched. True: what is there has to move."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        if folder.is_symlink():
            raise _cannot(folder, "it is a link that leads nowhere") from None
        return False
    except NotADirectoryError:
        raise _cannot(folder, "a file is in the way") from None
    except OSError as error:
        raise _cannot(folder, error.strerror or str(error)) from None
    if not names:
        return False
    stands = _stands_in(folder)
    if stands or not force:
        hint = "name a new folder with `--to`"
        if not stands:
            hint += f"; `--force` moves what is there to `{_free_name(folder).name}`"
        raise FolderNotEmpty(str(folder), names, hint)
    return True


class _Placing:
    """One folder of code on its way to its place."""

    def __init__(self, folder: Path, code: Snapshot, tell: Callable[[Event], None]) -> None:
        self._folder = folder
        self._code = code
        self._tell = tell

    def place(self, *, must_move: bool) -> Path | None:
        """Let the code appear; where what had been there is now. Raises OSError."""
        # Not beside a link that names the place, but beside the place.
        real = Path(os.path.realpath(self._folder))
        if must_move:
            with self._ready(real.parent) as part:
                aside = _free_name(real)
                real.rename(aside)
                try:
                    part.rename(real)
                except BaseException:
                    aside.rename(real)
                    raise
            return aside
        if real.is_dir():  # empty, and somebody's: its permissions stay, and so does who stands in it
            with self._ready(real) as part:
                _move_up(part, real)
            return None
        with _made(real.parent), self._ready(real.parent) as part:
            part.rename(real)
        return None

    @contextmanager
    def _ready(self, parent: Path) -> Iterator[Path]:
        """The code, complete and checked, in a folder below `parent` that is gone afterwards, unless it was moved."""
        part = parent / f"{_PART}{secrets.token_hex(4)}"
        part.mkdir()
        try:
            self._fill(part)
            yield part
        finally:
            remove_tree(str(part))

    def _fill(self, part: Path) -> None:
        done = 0

        def told(size: int) -> None:
            nonlocal done
            done += size
            self._tell(Progress("restoring the code", done, self._code.bytes))

        space = os.statvfs(part)
        if space.f_bavail * space.f_frsize < self._code.bytes:
            raise _cannot(self._folder, "the disk has not enough room")
        lay_out(self._code.manifest, str(self._code.home), str(part), told)
        self._tell(Progress("comparing the code with its digest", 0, None))
        if not is_same(self._code.manifest, str(part)):
            raise DrayError(
                "the restored code is not what its digest says",
                why="the file system did not keep the names or permissions, or files changed meanwhile",
                hint="name a folder on another disk with `--to`",
            )


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """`folder` and what is missing above it; after trouble they are gone again."""
    missing = [above for above in (folder, *folder.parents) if not above.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for above in missing:
            with suppress(OSError):  # somebody has put something there meanwhile
                above.rmdir()
        raise


def _move_up(part: Path, folder: Path) -> None:
    """All of `part` into `folder`, which holds nothing else; or none of it."""
    if os.listdir(folder) != [part.name]:
        raise FileExistsError(errno.EEXIST, "something was put there meanwhile", str(folder))
    moved: list[Path] = []
    try:
        for entry in list(part.iterdir()):
            place = folder / entry.name
            entry.rename(place)
            moved.append(place)
    except BaseException:
        for place in moved:
            remove_tree(str(place))
        raise


def _free_name(folder: Path) -> Path:
    """A name beside `folder` that nobody has: `code.before-1`."""
    real = Path(os.path.realpath(folder))
    number = 1
    while os.path.lexists(real.with_name(f"{real.name}.before-{number}")):
        number += 1
    return real.with_name(f"{real.name}.before-{number}")


def _stands_in(folder: Path) -> bool:
    """Whether the caller's working folder is `folder` or below it: that is not moved away under its feet."""
    try:
        return Path(os.path.realpath(os.getcwd())).is_relative_to(os.path.realpath(folder))
    except OSError:
        return False


def _cannot(folder: Path, why: str) -> CannotWrite:
    return CannotWrite(OSError(0, why, str(folder)))
