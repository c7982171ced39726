"""What a run left behind, listed and fetched: confined to the folder it is fetched to, checked by digest."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dray.core.errors import DrayError, UnknownName, printable
from dray.hosts import Connection
from dray.store import StoreError
from dray.workspace.errors import CannotWrite
from dray.workspace.events import Event, Progress, Said

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
    digest: str | None = None
    """Of the file that is there now."""


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
        from dray.workspace import fetching

        folder = ready_folder(Path(to))
        rows = [(path, *there[path]) for path in wanted]
        total, done = sum(size for _, _, size in rows), 0
        fetching.check_room(folder, total - fetching.here_already(folder, self._run.id, rows))
        hear = on or (lambda event: None)
        is_final = self._run.ended  # else its script may write to a file once more
        work = fetching.Fetching(
            self._answering,
            self._run.id,
            folder,
            may_replace,
            lambda path, came: hear(Progress(f"fetching {path}", done + came, total)),
            lambda text: hear(Said(text)),
        )
        for outcome in work.each(rows):
            if is_final and outcome.digest is not None:
                # It is safe here, so `dray gc` may forget it there. What cannot be noted is brought all the same.
                with contextlib.suppress(StoreError):
                    remote = there[outcome.path][0]
                    self._run._workspace.store.mark_fetched(
                        self._run.id, remote, outcome.size, outcome.digest
                    )
            yield outcome
            done += there[outcome.path][1]

    def mirror(
        self,
        to: str | Path,
        on: Callable[[Event], None] | None = None,
        *,
        paths: Sequence[str] | None = None,
        force: bool = False,
    ) -> Sequence[Fetched]:
        """Keep the folder `to` like the outputs while the run goes on; returns after its end, when each file was checked by its digest.

        `paths` are names or patterns; `force` replaces different files that were there before. Nothing is removed from `to`.
        """
        from fnmatch import fnmatchcase

        def choose(files: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
            return [row for row in files if not paths or any(fnmatchcase(row[0], one) for one in paths)]

        return [*self.mirror_each(to, on, choose=choose, may_replace=lambda place: force)]

    def mirror_each(
        self,
        to: str | Path,
        on: Callable[[Event], None] | None = None,
        *,
        choose: Callable[[Sequence[tuple[str, int]]], Sequence[tuple[str, int]]],
        may_replace: Callable[[Path], bool],
    ) -> Iterator[Fetched]:
        """The same. `choose` says which of (path, bytes) are wanted."""
        from dray.workspace.mirroring import Mirror

        return Mirror(self._run, Path(to), choose, on or (lambda event: None), may_replace).to_the_end()

    def _answering(self) -> Answering:
        """A conversation with whoever has the bytes."""
        if self._run.record.imported is not None:
            from dray.workspace.imported import ImportedAnswers

            return ImportedAnswers(self._run)
        return self._run._workspace.connect(self._run.record.compute)

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


class Answering(Protocol):
    """Answers `fetch` requests in their order (docs/design.md, the wire): a machine, or what stands for it."""

    where: str

    def ask(self, header: dict[str, Any]) -> None:
        """Send one request."""

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next frame of the answers. Raises DrayError in the place of an answer."""

    def close(self) -> None:
        """What was asked for is not wanted any more."""


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
            if "piece" in header:
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


def shown_name(path: str) -> str:
    """What an output is called: by its path below outputs/."""
    return path.removeprefix(_OUTPUTS)


def ready_folder(folder: Path) -> Path:
    """`folder`, made if need be. Refuses what no file at all can be put into, before a machine is asked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        is_file = isinstance(error, (FileExistsError, NotADirectoryError))
        raise cannot_write(
            folder, "a file is in the way" if is_file else error.strerror or str(error)
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise cannot_write(folder, "you may not write there")
    return folder


def cannot_write(place: Path, why: str, hint: str = _ELSEWHERE) -> CannotWrite:
    """The error for one place."""
    error = CannotWrite(OSError(0, why, str(place)))
    error.hint = hint
    return error


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
