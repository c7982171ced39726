"""Keeps a folder here like the outputs of a run, from now until its end; then every file is checked by its digest.

Read `Mirror.to_the_end`. A file is at its place here only in a state that it had there: new and rewritten files come beside it and appear by one
rename, and only a file that grows there grows in its place here too. Nothing is ever removed here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dray.core.errors import DrayError, LinkLost, printable
from dray.hosts import Connection
from dray.hosts.errors import HostUnreachable, MachineRefused
from dray.workspace import fetching
from dray.workspace.errors import BadAnswer
from dray.workspace.events import Event, Progress, Said
from dray.workspace.linking import Patience
from dray.workspace.outputs import Fetched, cannot_write, landing_place, ready_folder, shown_name

if TYPE_CHECKING:
    from dray.workspace.run import Run

EVERY_S = 1.0
_SPAN = 1 << 16
_PIECE = 1 << 20

Choose = Callable[[Sequence[tuple[str, int]]], Sequence[tuple[str, int]]]


class _There(NamedTuple):
    """A file of the run, as its machine lists it."""

    remote: str
    size: int
    changed: int
    inode: int


class Mirror:
    """One folder that is kept like the outputs of one run."""

    def __init__(
        self, run: Run, to: Path, choose: Choose, on: Callable[[Event], None], may_replace: Callable[[Path], bool]
    ) -> None:  # fmt: skip
        """`choose` says which of the (name, bytes) are wanted; `may_replace` is asked about files that we did not put there."""
        self._run = run
        self._folder = to
        self._choose = choose
        self._on = on
        self._may_replace = may_replace
        self._patience = (
            Patience(run._workspace.target(run.record.compute).host.patience_s)
            if run.record.imported is None
            else Patience(0)
        )
        self._seen: dict[str, _There] = {}
        """What is here, as it was there when it came."""
        self._digest = ""
        self._refused: dict[str, _There] = {}
        """What could not be put here, as it was there: tried again when it has changed, and told once."""
        self._put = _Put(run, to)

    def to_the_end(self) -> Iterator[Fetched]:
        """Mirror until the run has ended; then what became of each file, checked. Raises LinkLost when the machine is away for long."""
        self._folder = ready_folder(self._folder)
        if not self._run.ended and self._run.record.imported is None:
            self._while_it_goes_on()
            self._patiently(self._run.refresh)
        yield from self._patiently(self._finish)
        self._put.forget()

    def _while_it_goes_on(self) -> None:
        connection: Connection | None = None
        try:
            while True:
                try:
                    if connection is None:
                        connection = self._run._workspace.connect(self._run.record.compute)
                    is_over = self._round(connection)
                    back = self._patience.back()
                    if back:
                        self._on(Said(back))
                    if is_over:
                        return
                except (LinkLost, HostUnreachable) as lost:
                    if connection is not None:
                        connection.close()
                        connection = None
                    if self._patience.lost(lost):
                        self._on(
                            Said(
                                f"{lost.what}; the run goes on, and so does this as soon as the link is back"
                            )
                        )
                    continue
                time.sleep(EVERY_S)
        finally:
            if connection is not None:
                connection.close()

    def _patiently(self, act: Callable[[], Any]) -> Any:
        while True:
            try:
                return act()
            except (LinkLost, HostUnreachable) as lost:
                self._patience.lost(lost)

    def _finish(self) -> list[Fetched]:
        """All files once more, now that they do not change: what is here already only has to have the right digest."""
        outputs = self._run.outputs
        wanted = [name for name, _ in self._choose(outputs.list())]
        left = sorted(self._seen.keys() - set(wanted))
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            self._on(Said(f"the run removed {', '.join(map(printable, left[:3]))}{more}; here it is kept"))
        if not wanted:
            return []
        return [
            *outputs.fetch_each(
                wanted, self._folder, self._on, may_replace=lambda place: self._put.is_ours(place) or self._may_replace(place)
            )
        ]  # fmt: skip

    # -- one look

    def _round(self, connection: Connection) -> bool:
        """Bring what is new; True when the run had ended before it was looked at."""
        answer = connection.call({"op": "files", "run": self._run.id, "mirror": True, "unless": self._digest})
        if "absent" in answer or "never" in answer:
            return self._run.refresh().ended
        if "same" not in answer:
            there = self._listed(connection, answer.get("files"))
            self._follow_renames(there)
            self._bring(connection, there)
            self._digest = str(answer.get("digest"))
        return bool(answer.get("ended"))

    def _listed(self, connection: Connection, rows: Any) -> dict[str, _There]:
        """Name -> file, of those that are wanted."""
        found = {}
        try:
            for path, size, changed, inode in rows:
                found[shown_name(str(path))] = _There(str(path), int(size), int(changed), int(inode))
        except (TypeError, ValueError):
            raise BadAnswer(connection.where, "outputs", "its list of files makes no sense") from None
        wanted = self._choose([(name, one.size) for name, one in found.items()])
        return {name: found[name] for name, _ in wanted}

    def _follow_renames(self, there: Mapping[str, _There]) -> None:
        """What was renamed there, as a finished checkpoint is, is renamed here: its bytes need not come again."""
        gone = {
            one.inode: name
            for name, one in self._seen.items()
            if name not in there or there[name].inode != one.inode
        }
        for name in there.keys() - self._seen.keys():
            old = gone.pop(there[name].inode, None)
            if old is None:
                continue
            with contextlib.suppress(OSError, DrayError):
                before, place = landing_place(self._folder, old), landing_place(self._folder, name)
                if self._put.is_ours(before) and (not place.exists() or self._put.is_ours(place)):
                    before.replace(place)
                    self._seen[name] = self._seen.pop(old)
                    self._on(Said(f"{printable(old)} is called {printable(name)} now"))

    def _bring(self, connection: Connection, there: Mapping[str, _There]) -> None:
        whole: dict[str, _There] = {}
        for name, one in there.items():
            if one in (self._seen.get(name), self._refused.get(name)):
                continue
            if not self._grow(connection, name, one):
                whole[name] = one
        for outcome in self._fetched(whole):
            if outcome.place is not None:
                self._put.has_put(outcome.place)
                self._seen[outcome.path] = whole[outcome.path]
            elif outcome.trouble is not None and not _is_gone(outcome.trouble):
                if outcome.path not in self._refused:  # told again at the end, if it still is so
                    self._on(Said(outcome.trouble.what))
                self._refused[outcome.path] = whole[outcome.path]
        self._put.save()

    def _fetched(self, wanted: Mapping[str, _There]) -> Iterator[Fetched]:
        total, done = sum(one.size for one in wanted.values()), 0
        work = fetching.Fetching(
            self._run.outputs._answering, self._run.id, self._folder,
            lambda place: self._put.is_ours(place) or self._may_replace(place),
            lambda name, came: self._on(Progress(f"fetching {name}", done + came, total)),
            lambda text: self._on(Said(text)),
        )  # fmt: skip
        for outcome in work.each((name, one.remote, one.size) for name, one in wanted.items()):
            yield outcome
            done += outcome.size

    # -- files that grow

    def _grow(self, connection: Connection, name: str, one: _There) -> bool:
        """Append what came to the file there, if what is here is its beginning. False: it has to come as a whole."""
        try:
            place = landing_place(self._folder, name)
            size = os.lstat(place).st_size
        except (OSError, DrayError):
            return False
        if place.is_symlink() or not place.is_file() or not 0 < size <= one.size:
            return False
        # What we put there is known to be its beginning but for rewriting; of a file of unknown origin all is compared.
        span = min(size, _SPAN) if self._put.is_ours(place) else size
        try:
            with place.open("r+b") as file:
                before = _hash_of(file, size - span)
                request = {
                    "op": "fetch",
                    "run": self._run.id,
                    "path": one.remote,
                    "offset": size,
                    "span": span,
                }
                connection.ask({**request, "prefix": before.hexdigest()})
                if not self._appended(connection, file, name, size, before):
                    return False
        except MachineRefused:
            return True  # it has just gone there
        except OSError as error:
            raise cannot_write(place, error.strerror or str(error)) from None
        self._put.has_put(place)
        self._seen[name] = one
        return True

    def _appended(self, connection: Connection, file: Any, name: str, at: int, seen: Any) -> bool:
        header, _ = connection.receive()
        if "differs" in header:
            return False
        start, size = at, header.get("bytes")
        if header.get("offset") != at or not isinstance(size, int) or size < at:
            raise BadAnswer(connection.where, name, "its answer makes no sense")
        fetching.check_room(self._folder, size - at)
        file.seek(at)
        while True:
            header, body = connection.receive()
            if "fetched" in header:
                break
            if "piece" not in header or header.get("offset") != at or at + len(body) > size:
                raise BadAnswer(connection.where, name, "it sent more than it said")
            file.write(body)
            file.flush()
            seen.update(body)
            at += len(body)
            self._on(Progress(f"fetching {name}", at, size))
        if header.get("sha256") != seen.hexdigest():
            file.truncate(start)
            return False
        return True


class _Put:
    """Which files of the folder are ours, by their inodes: kept in the cache, so that a mirror that was killed is gone on with."""

    def __init__(self, run: Run, folder: Path) -> None:
        name = hashlib.sha256(f"{run.id}/{folder.absolute()}".encode("utf-8", "surrogatepass")).hexdigest()[
            :24
        ]
        self._path = run._workspace.home / "cache" / "mirrors" / f"{name}.json"
        self._files: set[tuple[int, int]] = set()
        self._saved: set[tuple[int, int]] = set()
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._files = {(int(device), int(inode)) for device, inode in json.loads(self._path.read_text())}

    def is_ours(self, place: Path) -> bool:
        """Whether that file is there because of us."""
        try:
            seen = os.lstat(place)
        except OSError:
            return False
        return (seen.st_dev, seen.st_ino) in self._files

    def has_put(self, place: Path) -> None:
        """It is ours from now on."""
        with contextlib.suppress(OSError):
            seen = os.lstat(place)
            self._files.add((seen.st_dev, seen.st_ino))

    def save(self) -> None:
        """For whoever goes on after us. What cannot be noted costs another transfer, at most."""
        if self._files == self._saved:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside = self._path.with_suffix(f".{os.getpid()}")
            beside.write_text(json.dumps(sorted(self._files)))
            beside.replace(self._path)
            self._saved = set(self._files)

    def forget(self) -> None:
        """All is here, and checked."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def _is_gone(trouble: DrayError) -> bool:
    return isinstance(trouble, MachineRefused) and trouble.refusal in ("no-file", "os-error")


def _hash_of(file: Any, start: int) -> Any:
    seen = hashlib.sha256()
    file.seek(start)
    while data := file.read(_PIECE):
        seen.update(data)
    return seen
