"""Whole runs as plain files, a folder each: made beside its place and renamed when it is whole.

Read `Exporting.one` first. What the history holds is written by the store; here come the code and the outputs, and the list.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dray.core.errors import DrayError, LinkLost
from dray.hosts import Connection
from dray.hosts.errors import HostUnreachable, MachineRefused
from dray.workspace import beside
from dray.workspace.errors import BadExport, CannotWrite, ExportThere, RunNotEnded
from dray.workspace.events import Event, Progress, Said
from dray.workspace.imported import ImportedOutputs
from dray.workspace.listing import MOST_LISTED, NAME, Making, Place, require_inside
from dray.workspace.outputs import OF_THE_PLACE, ready_folder

if TYPE_CHECKING:
    from dray.workspace.facade import Workspace
    from dray.workspace.run import Run

LEFT_OUT = "left out when it was exported"
NO_ANSWER = "its machine could not be asked when it was exported"
GONE = "its machine did not give it when it was exported"
NOT_KEPT = "it was not kept where it was exported"
MANIFEST = "manifest.json"
CODE = "code/"
OUTPUTS = "outputs/"


class Exported(NamedTuple):
    """What became of one run that was to be exported."""

    run_id: str
    folder: Path | None
    """Where it is now; None: nowhere, and `trouble` says why."""
    was_there: bool = False
    """The same had been there already, and was left alone."""
    missing: Mapping[str, str] = {}
    """What could not be exported, and why; a path, or a word for many."""
    trouble: DrayError | None = None

    @property
    def is_whole(self) -> bool:
        """Everything is there, but for what nobody wanted and code that was never kept."""
        gone = (NO_ANSWER, GONE)
        return self.trouble is None and not any(why in gone for why in self.missing.values())


class Exporting:
    """Several runs on their way into one folder; a machine is asked over one connection, and not again when it is silent."""

    def __init__(
        self,
        workspace: Workspace,
        to: Path,
        *,
        outputs: bool,
        code: bool,
        force: bool,
        on: Callable[[Event], None] | None,
    ) -> None:
        self._workspace = workspace
        self._to = to
        self._wants_outputs = outputs
        self._wants_code = code
        self._force = force
        self._tell = on or (lambda event: None)
        self._connections: dict[str, Connection | None] = {}
        self._contents: dict[str, Path] = {}

    def all(self, runs: Iterable[Run]) -> Iterator[Exported]:
        """Export one after the other; what is wrong with one keeps none of the others away."""
        found = {run.id: run for run in runs}
        ready_folder(self._to)
        beside.clear(self._to)
        try:
            for count, run in enumerate(found.values()):
                self._tell(Progress("exporting", count, len(found)))
                yield self.one(run)
        finally:
            for connection in self._connections.values():
                if connection is not None:
                    connection.close()

    def one(self, run: Run) -> Exported:
        """One run. Raises what would be wrong with all of them."""
        place = self._to / run.id
        try:
            missing = _missing_before(run)
            self._bring_up_to_date(run, missing)
            was_there = os.path.lexists(place) and self._is_there(run, place, missing)
            if not was_there:
                with beside.made_beside(place) as folder:
                    self._fill(run, Making(folder), missing)
                    _settle(folder, place)
        except DrayError as error:
            return Exported(run.id, None, trouble=error)
        except OSError as error:
            if error.errno in OF_THE_PLACE:
                return Exported(run.id, None, trouble=CannotWrite(error))
            raise CannotWrite(error) from error
        return Exported(run.id, place, was_there, missing)

    def _fill(self, run: Run, making: Making, missing: dict[str, str]) -> bytes:
        """All of the run, and the list of it."""
        self._workspace.store.write_files(run.id, making.add)
        self._add_code(run, making, missing)
        self._add_outputs(run, making, missing)
        if making.folder is not None:
            self._remember(making, self._to / run.id)
        return making.finish(run.id, missing)

    def _is_there(self, run: Run, place: Path, missing: dict[str, str]) -> bool:
        """Whether the same is there already. False: something may be replaced. Raises ExportThere."""
        listed = self._fill(run, Making(None), found := dict(missing))
        why, replaceable = _differs(place, listed)
        if why is None:
            missing.update(found)
            return True
        if not (self._force and replaceable):
            raise ExportThere(place, why, replaceable=replaceable)
        return False

    def _bring_up_to_date(self, run: Run, missing: dict[str, str]) -> None:
        store = self._workspace.store
        store.cursors(run.id)  # where log files are shorter than they were, that is known now
        run._reread()
        if not run._is_here:
            if self._connection(run) is None:
                missing["streams"] = NO_ANSWER
            else:
                with self._asking(run, missing, "streams"):
                    run.refresh()
        if not run.ended:
            raise RunNotEnded(run.id, str(run.status))

    # The code

    def _add_code(self, run: Run, making: Making, missing: dict[str, str]) -> None:
        from dray.snapshot import KeptCode, entries

        digest = run.record.spec.snapshot
        if not digest:
            return
        if not self._wants_code:
            missing["code"] = LEFT_OUT
            return
        kept = KeptCode(self._workspace.home)
        text = kept.manifest(digest)
        if text is None:
            missing["code"] = NOT_KEPT
            return
        try:
            rows = entries(text)["files"]
            for path, *_ in rows:
                require_inside(CODE + path)
        except ValueError:
            missing["code"] = NOT_KEPT
            return
        making.add(MANIFEST, [text])
        for path, content, size, is_program in rows:
            if not self._link(making, CODE + path, content, size):
                pieces = kept.content(content, size)
                if pieces is None:
                    missing[CODE + path] = NOT_KEPT
                    continue
                if making.add(CODE + path, pieces).sha256 != content:
                    making.forget(CODE + path)
                    missing[CODE + path] = NOT_KEPT
                    continue
                place = making.place(CODE + path)
                if place is not None:
                    place.chmod(0o555 if is_program else 0o444)

    def _link(self, making: Making, path: str, content: str, size: int) -> bool:
        """Let the file be the same as one that an earlier run brought: a thousand runs of one code need it once."""
        known = self._contents.get(content)
        return known is not None and making.link(path, known, size, content)

    def _remember(self, making: Making, place: Path) -> None:
        for path, row in making.files.items():
            if path.startswith(CODE):
                self._contents.setdefault(row.sha256, place / path)

    # The outputs

    def _add_outputs(self, run: Run, making: Making, missing: dict[str, str]) -> None:
        told = (run.record.end or {}).get("outputs") or {}
        if not told.get("count") or "outputs" in missing:
            return  # it left none, or was over before it could; or they were not there when it was imported
        if not self._wants_outputs:
            missing["outputs"] = LEFT_OUT
            return
        connection = None
        if run.record.imported is None:
            connection = self._connection(run)
            if connection is None:
                missing["outputs"] = NO_ANSWER
                return
        with self._asking(run, missing, "outputs"), run.outputs.source(connection) as source:
            for path, (remote, _) in run.outputs.of(source).items():
                if OUTPUTS + path in missing:
                    continue
                self._tell(Progress(f"exporting {run.id}: {path}", 0, 0))
                try:
                    making.receive(OUTPUTS + path, partial(source.receive, path, remote))
                except (LinkLost, HostUnreachable):
                    raise
                except (DrayError, ValueError):
                    missing[OUTPUTS + path] = GONE

    @contextlib.contextmanager
    def _asking(self, run: Run, missing: dict[str, str], what: str) -> Iterator[None]:
        """A machine that stops answering is not asked again."""
        try:
            yield
        except (LinkLost, HostUnreachable) as error:
            self._give_up(run.record.compute, error)
            missing[what] = NO_ANSWER
        except MachineRefused:
            missing[what] = GONE

    def _connection(self, run: Run) -> Connection | None:
        """The conversation with the run's machine; None when it does not answer."""
        compute = run.record.compute
        if compute not in self._connections:
            try:
                connection = self._workspace.connect(compute)
                self._connections[compute] = connection
                connection.call({"op": "probe"})
            except DrayError as error:
                self._give_up(compute, error)
        return self._connections[compute]

    def _give_up(self, compute: str, error: DrayError) -> None:
        connection = self._connections.get(compute)
        if connection is not None:
            connection.close()
        self._connections[compute] = None
        self._tell(Said(f"{compute} could not be asked: {error.what}"))


def _settle(folder: Path, place: Path) -> None:
    """Give the folder its name."""
    if os.path.lexists(place):
        beside.replace(folder, place)
    else:
        folder.rename(place)


def _missing_before(run: Run) -> dict[str, str]:
    """What an imported run came without; of its code, the blobs say more."""
    if run.record.imported is None:
        return {}
    with ImportedOutputs(run) as here:
        return {what: why for what, why in here.missing.items() if not what.startswith("code")}


def _differs(place: Path, listed: bytes) -> tuple[str | None, bool]:
    """Why what is at `place` is not that export (None: it is), and whether it is an export at all."""
    try:
        with Place(place) as there:
            text = there.read(NAME, MOST_LISTED)
            if text != listed:
                return "another export of that run is there", True
            there.check(there.listing())
    except BadExport as error:
        if not (place / NAME).exists() or place.is_symlink():
            return "something that is no export is there", False
        return f"the export that is there is damaged: {error.why}", True
    return None, True
