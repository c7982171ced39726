"""What a run left behind, listed and fetched: confined to the folder it is fetched to, checked by digest."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dray.core.errors import DrayError, LinkLost, UnknownName, printable
from dray.hosts import Connection
from dray.store import StoreError
from dray.workspace.errors import CannotWrite
from dray.workspace.events import Event, Progress

if TYPE_CHECKING:
    from dray.workspace.run import Run

_OUTPUTS = "outputs/"
# What the system has against one place alone; never the answer to a `write` in the middle of a file.
OF_THE_PLACE = {errno.EACCES, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG}
_ELSEWHERE = "name another folder with `--to`"


class Fetched(NamedTuple):
    """What became of one file that was wanted."""

    path: str
    size: int
    place: Path | None
    """Where it is now; None: it could not be brought, and `trouble` says why."""
    trouble: DrayError | None = None
    was_there: bool = False
    """The same file had been there already, and was left alone."""


class Outputs:
    """The files of a run: what it wrote to `outputs/`, and what `--outputs` named. Iterating gives their paths."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"<Outputs of {self._run.id}: {', '.join(path for path, _ in self.known()) or 'none known'}>"

    def __iter__(self) -> Iterator[str]:
        return (path for path, _ in self.list())

    def known(self) -> list[tuple[str, int]]:
        """What the end says, without asking the machine."""
        return [(shown, size) for shown, (_, size) in _by_name(self._told().get("files")).items()]

    def list(self) -> Sequence[tuple[str, int]]:
        """(path, bytes), paths relative to outputs/; those that `--outputs` named relative to the code folder."""
        return [(shown, size) for shown, (_, size) in self._all().items()]

    def fetch(self, path: str, to: str | Path = ".", *, force: bool = False) -> Path:
        """Bring one file into the folder `to`; returns where it is. A different file there is replaced with `force` only."""
        return self.fetch_all([path], to, force=force)[0]

    def fetch_all(
        self,
        paths: Sequence[str] | None,
        to: str | Path,
        on: Callable[[Event], None] | None = None,
        *,
        force: bool = False,
    ) -> Sequence[Path]:
        """Bring some files, or all, into the folder `to`; each is checked by its digest.

        What can be brought is, whatever becomes of the others; then the first error is raised.
        """
        fetched = [*self.fetch_each(paths, to, on, may_replace=lambda place: force)]
        for one in fetched:
            if one.trouble is not None:
                raise one.trouble
        return [one.place for one in fetched if one.place is not None]

    def fetch_each(
        self,
        paths: Sequence[str] | None,
        to: str | Path,
        on: Callable[[Event], None] | None = None,
        *,
        may_replace: Callable[[Path], bool],
    ) -> Iterator[Fetched]:
        """The same, one by one. `may_replace` is asked about a place where a different file is. Raises what stops all."""
        there = self._all()
        wanted = [p if p in there else p.removeprefix(_OUTPUTS) for p in paths] if paths else [*there]
        for path in wanted:
            if path not in there:
                raise UnknownName("output", path, there)
        folder = ready_folder(Path(to))
        total, done = sum(there[p][1] for p in wanted), 0

        def tell(path: str, came: int) -> None:
            if on:
                on(Progress(f"fetching {path}", done + came, total))

        with self.source() as source:
            fetching = _Fetching(source, self._run, folder, may_replace, tell)
            for path in wanted:
                remote, size = there[path]
                yield fetching.one(path, remote, size)
                done += size

    @contextlib.contextmanager
    def source(self, connection: Connection | None = None) -> Iterator[Source]:
        """Where the bytes of outputs come from; `connection`, if there is one already, is left open."""
        if self._run.record.imported is not None:
            from dray.workspace.imported import ImportedOutputs

            with ImportedOutputs(self._run) as here:
                yield here
        elif connection is not None:
            yield _OfMachine(connection, self._run.id)
        else:
            with self._run._workspace.connect(self._run.record.compute) as fresh:
                yield _OfMachine(fresh, self._run.id)

    def of(self, source: Source) -> dict[str, tuple[str, int]]:
        """Name -> (path on the machine, bytes), as the end says; where it does not say all, as `source` does."""
        told = self._told()
        files = told.get("files")
        if files is None or told.get("count") != len(files):
            files = source.listing()
        return _by_name(files)

    def _told(self) -> dict[str, Any]:
        return (self._run.record.end or {}).get("outputs") or {}

    def _all(self) -> dict[str, tuple[str, int]]:
        """The same. Asks the machine unless the end has told all."""
        told = self._told()
        files = told.get("files")
        if files is not None and told.get("count") == len(files):
            return _by_name(files)
        with self.source() as source:
            return self.of(source)


class Source(Protocol):
    """Has the outputs of one run."""

    def listing(self) -> Sequence[Any]:
        """(path on the machine, bytes) of all of them."""

    def receive(self, path: str, remote: str, write: Callable[[bytes], object]) -> str:
        """Give the bytes of `path` to `write`; their digest, after it was checked."""


class _OfMachine:
    """The machine itself."""

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._connection = connection
        self._run_id = run_id

    def listing(self) -> Sequence[Any]:
        return self._connection.call({"op": "files", "run": self._run_id}).get("files") or []

    def receive(self, path: str, remote: str, write: Callable[[bytes], object]) -> str:
        seen = hashlib.sha256()
        self._connection.ask({"op": "fetch", "run": self._run_id, "path": remote, "offset": 0})
        while True:
            header, body = self._connection.receive()
            if "fetched" in header:
                break
            write(body)
            seen.update(body)
        if header.get("sha256") != seen.hexdigest():
            raise DrayError(
                f"`{printable(path)}` arrived damaged", hint=f"dray outputs {self._run_id} --to DIR"
            )
        return seen.hexdigest()


def _by_name(files: Sequence[Any] | None) -> dict[str, tuple[str, int]]:
    """What lies below outputs/ is called by its path there; the rest by its own, where that is still free."""
    rows = [(str(path), int(size)) for path, size in files or []]
    named = {path.removeprefix(_OUTPUTS): (path, size) for path, size in rows if path.startswith(_OUTPUTS)}
    for path, size in rows:
        if not path.startswith(_OUTPUTS):
            named.setdefault(path, (path, size))
    return named


class _Fetching:
    """One conversation in which files come into one folder."""

    def __init__(
        self,
        source: Source,
        run: Run,
        folder: Path,
        may_replace: Callable[[Path], bool],
        tell: Callable[[str, int], None],
    ) -> None:
        self._source = source
        self._run_id = run.id
        self._is_final = run.ended
        self._store = run._workspace.store
        self._folder = folder
        self._may_replace = may_replace
        self._tell = tell

    def one(self, path: str, remote: str, size: int) -> Fetched:
        """Bring one file. What is wrong with this one alone is told and not raised."""
        place = self._folder / path
        try:
            place = landing_place(self._folder, path)
            return Fetched(path, size, place, was_there=not self._bring(path, remote, size, place))
        except LinkLost:
            raise
        except DrayError as error:
            return Fetched(path, size, None, error)
        except OSError as error:
            # The system names the temporary file, which says nothing to the user.
            trouble = _cannot(place, error.strerror or str(error))
            if error.errno not in OF_THE_PLACE:
                raise trouble from None
            return Fetched(path, size, None, trouble)

    def _bring(self, path: str, remote: str, size: int, place: Path) -> bool:
        """Let the file appear at `place`, whole or not at all; False when it is there already."""
        if place.is_dir():
            raise _cannot(place, "a folder of that name is there")
        # Its size may tell that it is another file before anything travels.
        differs = place.exists() and place.stat().st_size != size
        if differs:
            self._agree(place)
        beside = place.with_name(f".{place.name[:100]}.{os.getpid()}.part")
        try:
            digest = self._receive(path, remote, beside)
            was_there = not differs and place.exists() and _digest(place) == digest
            if not was_there:
                if not differs and place.exists():
                    self._agree(place)
                beside.replace(place)
            self._note(remote, place.stat().st_size, digest)
            return not was_there
        finally:
            beside.unlink(missing_ok=True)

    def _note(self, remote: str, size: int, digest: str) -> None:
        """It is safe here, so `dray gc` may forget it there. What cannot be noted is brought all the same."""
        if self._is_final:  # else its script may write to it once more
            with contextlib.suppress(StoreError):
                self._store.mark_fetched(self._run_id, remote, size, digest)

    def _agree(self, place: Path) -> None:
        if not self._may_replace(place):
            raise _cannot(
                place,
                "a different file of that name is there",
                hint=f"`--force` to replace it, or {_ELSEWHERE}",
            )

    def _receive(self, path: str, remote: str, beside: Path) -> str:
        """Write what comes to `beside`; its digest."""
        came = 0

        def write(body: bytes) -> None:
            nonlocal came
            file.write(body)
            came += len(body)
            self._tell(path, came)

        with beside.open("wb") as file:
            return self._source.receive(path, remote, write)


def ready_folder(folder: Path) -> Path:
    """`folder`, made if need be. Refuses what no file at all can be put into, before a machine is asked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        is_file = isinstance(error, (FileExistsError, NotADirectoryError))
        raise _cannot(folder, "a file is in the way" if is_file else error.strerror or str(error)) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _cannot(folder, "you may not write there")
    return folder


def _cannot(place: Path, why: str, hint: str = _ELSEWHERE) -> CannotWrite:
    error = CannotWrite(OSError(0, why, str(place)))
    error.hint = hint
    return error


def _digest(place: Path) -> str:
    with place.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def landing_place(folder: Path, path: str) -> Path:
    """Where the remote `path` goes below `folder`: never outside, never through a link."""
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise DrayError(
            f"the machine named an output `{printable(path)}`", why="that would be written outside the folder"
        )
    parent = folder.joinpath(*parts[:-1])
    parent.mkdir(parents=True, exist_ok=True)
    if not parent.resolve().is_relative_to(folder.resolve()):
        raise DrayError(
            f"`{printable(str(parent))}` leads out of {folder}", why="a link there points elsewhere"
        )
    return parent / parts[-1]
