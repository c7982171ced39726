"""What a run left behind, listed and fetched: confined to the folder it is fetched to, checked by digest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, UnknownName, printable
from dray.hosts import Connection
from dray.workspace.errors import CannotWrite
from dray.workspace.events import Event, Progress

if TYPE_CHECKING:
    from dray.workspace.run import Run

_OUTPUTS = "outputs/"


class Outputs:
    """The files of a run: what it wrote to `outputs/`, and what `--outputs` named."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def known(self) -> list[tuple[str, int]]:
        """What the end says, without asking the machine."""
        return [(shown, size) for shown, (_, size) in _by_name(self._told().get("files")).items()]

    def list(self) -> Sequence[tuple[str, int]]:
        """(path, bytes), paths relative to outputs/; those that `--outputs` named relative to the code folder."""
        return [(shown, size) for shown, (_, size) in self._all().items()]

    def fetch(self, path: str, to: str | Path = ".") -> Path:
        """Bring one file into the folder `to`; returns where it is."""
        return self.fetch_all([path], to)[0]

    def fetch_all(
        self, paths: Sequence[str] | None, to: str | Path, on: Callable[[Event], None] | None = None
    ) -> Sequence[Path]:
        """Bring some files, or all, into the folder `to`; each is checked by its digest."""
        there = self._all()
        wanted = [p if p in there else p.removeprefix(_OUTPUTS) for p in paths] if paths else [*there]
        for path in wanted:
            if path not in there:
                raise UnknownName("output", path, there)
        total, done, fetched = sum(there[p][1] for p in wanted), 0, []
        with self._run._workspace.connect(self._run.record.compute) as connection:
            for path in wanted:
                try:
                    place = landing_place(Path(to), path)
                    for size in _bring(connection, self._run.id, there[path][0], place):
                        done += size
                        if on:
                            on(Progress(f"fetching {path}", done, total))
                except OSError as trouble:
                    raise CannotWrite(trouble) from None
                fetched.append(place)
        return fetched

    def _told(self) -> dict[str, Any]:
        return (self._run.record.end or {}).get("outputs") or {}

    def _all(self) -> dict[str, tuple[str, int]]:
        """Name -> (path on the machine, bytes). Asks the machine unless the end has told all."""
        told = self._told()
        files = told.get("files")
        if files is None or told.get("count") != len(files):
            with self._run._workspace.connect(self._run.record.compute) as connection:
                files = connection.call({"op": "files", "run": self._run.id}).get("files")
        return _by_name(files)


def _by_name(files: Sequence[Any] | None) -> dict[str, tuple[str, int]]:
    """What lies below outputs/ is called by its path there; the rest by its own, where that is still free."""
    rows = [(str(path), int(size)) for path, size in files or []]
    named = {path.removeprefix(_OUTPUTS): (path, size) for path, size in rows if path.startswith(_OUTPUTS)}
    for path, size in rows:
        if not path.startswith(_OUTPUTS):
            named.setdefault(path, (path, size))
    return named


def landing_place(folder: Path, path: str) -> Path:
    """Where the remote `path` goes below `folder`: never outside, never through a link."""
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise DrayError(
            f"the machine named an output `{printable(path)}`", why="that would be written outside the folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    parent = folder.joinpath(*parts[:-1])
    parent.mkdir(parents=True, exist_ok=True)
    if not parent.resolve().is_relative_to(folder.resolve()):
        raise DrayError(
            f"`{printable(str(parent))}` leads out of {folder}", why="a link there points elsewhere"
        )
    return parent / parts[-1]


def _bring(connection: Connection, run_id: str, path: str, place: Path) -> Iterator[int]:
    """Fetch one file, yielding the sizes of its pieces; it appears whole or not at all."""
    beside = place.with_name(f".{place.name[:100]}.{os.getpid()}.part")
    seen = hashlib.sha256()
    connection.ask({"op": "fetch", "run": run_id, "path": path, "offset": 0})
    try:
        with beside.open("wb") as file:
            while True:
                header, body = connection.receive()
                if "fetched" in header:
                    break
                file.write(body)
                seen.update(body)
                yield len(body)
        if header.get("sha256") != seen.hexdigest():
            raise DrayError(f"`{printable(path)}` arrived damaged", hint=f"dray outputs {run_id} --to DIR")
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
