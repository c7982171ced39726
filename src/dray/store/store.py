"""The history as one object. Each method is one step: stored whole, or not at all.

The work is done in the modules beside this one: `runs` (the list), `progress` (states), `streams` (bytes in),
`points` (metrics), `newest` (what holds now), `contents` (everything else that was said), `query` (expressions), `edits`
(what is said afterwards), `logs` (files).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from dray.core.states import RunState
from dray.runner import mounts
from dray.store import contents, newest, points, progress, runs, streams, submitting
from dray.store.database import Database
from dray.store.errors import RunExists, StoreError
from dray.store.events import plain
from dray.store.logs import Logs

if TYPE_CHECKING:
    from dray.core.spec import RunSpec
    from dray.core.where_tree import Field, Sort, Tree
    from dray.store import thinning
    from dray.store.runs import Code
    from dray.store.whole import WholeRun


class Store:
    """A history, open. Close it, or use it in a `with`; a process that just ends does no harm."""

    def __init__(self, database: Database, home: Path) -> None:
        self.home = home
        self._db = database
        self._logs = Logs(home / "logs")
        self._submitting = home / "submitting"
        self._edits = home / "edits.jsonl"
        self._imported = home / "imported"

    @classmethod
    def open(cls, home: Path, *, mountinfo: str = mounts.MOUNTINFO) -> Store:
        """Open the history in the folder `home`, which is made if need be.

        Raises HomeIsAFile, HomeUnusable, HomeReadOnly (nothing there to read), DiskFull, HistoryTooNew, HistoryDamaged.
        A history that can only be read is opened all the same; writing to it raises HomeReadOnly.
        """
        home = Path(os.path.abspath(home))  # the caller may go elsewhere meanwhile
        store = cls(Database(home, mountinfo), home)
        if store.is_writable:
            with contextlib.suppress(StoreError):  # tidying may wait; what was asked for may still work
                store._sweep()
        return store

    @staticmethod
    def set_aside(home: Path) -> Path | None:
        """Put a damaged history.db out of the way, for a new one to be built; where it is now, None if there was none."""
        target = None
        for number in range(1, 10_000):
            target = home / f"history.db.damaged-{number}"
            if not target.exists():
                break
        for end in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{home / 'history.db'}{end}", f"{target}{end}")
        return target if target is not None and target.exists() else None

    @property
    def is_writable(self) -> bool:
        """False when the home, or the history in it, may only be read."""
        return self._db.writable

    def is_in_place(self) -> bool:
        """False when the history was removed or replaced since we opened it: then it may name runs that we cannot see."""
        return self._db.is_in_place()

    def close(self) -> None:
        """Let go of the file. Safe to repeat."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The list of runs

    def create_run(self, spec: RunSpec) -> None:
        """Put a new run in the history, in state `created`. Raises RunExists."""
        with self._db.writing() as db:
            runs.create(db, spec)
            # The id was used and removed before, and its files are still on their way out.
            if db.execute("DELETE FROM leftover WHERE id = ?", (spec.id,)).rowcount:
                self._discard(spec.id)

    def move(self, run_id: str, compute: str) -> None:
        """It is found on `compute` from now on: the same machine under another name."""
        with self._db.writing() as db:
            runs.move(db, run_id, compute)

    def run(self, run_id: str) -> runs.RunRecord:
        """The run with exactly this id. Raises NoSuchRun."""
        with self._db.reading() as db:
            return runs.get(db, run_id)

    def find(self, word: str) -> runs.RunRecord:
        """The run that a person means: an id, a name, a unique beginning of an id, `@last`, `@last-1`.

        Raises NoSuchRun, or AmbiguousRun when several runs fit.
        """
        with self._db.reading() as db:
            return runs.find(db, word)

    def runs(
        self,
        experiment: str | None = None,
        status: RunState | str | None = None,
        limit: int | None = None,
        active: bool = False,
        *,
        where: Tree | None = None,
        sort: Sequence[Sort] = (),
        offset: int = 0,
    ) -> list[runs.RunRecord]:
        """Runs, newest first or as `sort` says; `active`: only those that have not ended.

        `where` and `sort` are what `dray.core.where` makes of text. Raises UnknownName for an unknown status.
        """
        wanted = runs.filters(experiment, status, active)
        with self._db.reading() as db:
            return runs.listed(db, wanted, where, sort, limit, offset)

    def count(
        self,
        experiment: str | None = None,
        status: RunState | str | None = None,
        active: bool = False,
        *,
        where: Tree | None = None,
    ) -> int:
        """How many runs `runs` would list without a limit."""
        wanted = runs.filters(experiment, status, active)
        with self._db.reading() as db:
            return runs.counted(db, wanted, where)

    def columns(self, run_ids: Sequence[str], fields: Sequence[Field]) -> dict[str, dict[Field, Any]]:
        """Of each run the values of those `fields` that it has, in a few questions for all of them."""
        from dray.store import query

        with self._db.reading() as db:
            numbers = progress.numbers(db, run_ids)
            found = query.columns(db, list(numbers.values()), fields)
            return {run_id: found[number] for run_id, number in numbers.items()}

    def values(self, field: Field, limit: int = 10) -> list[tuple[Any, int]]:
        """The values of a field that most runs have, with how many runs have each."""
        from dray.store import values

        with self._db.reading() as db:
            return values.common(db, field, "", limit)

    def span(self, field: Field) -> tuple[Any, Any] | None:
        """The least and the greatest number, time or duration that any run has there."""
        from dray.store import values

        with self._db.reading() as db:
            return values.span(db, field)

    def complete_runs(self, prefix: str = "", limit: int = 50) -> list[tuple[str, str | None]]:
        """Ids, with their names, of runs whose id or name begins so; the newest first."""
        with self._db.reading() as db:
            return runs.begun_with(db, prefix, limit)

    def referenced_snapshots(self) -> set[str]:
        """Digests of the code of all runs: what nobody may throw away."""
        with self._db.reading() as db:
            return runs.snapshots(db)

    def code_since(self, number: int = 0) -> list[Code]:
        """The code of all runs that were made after run number `number`: what must not be thrown away."""
        with self._db.reading() as db:
            return runs.code_since(db, number)

    def remove(self, run_id: str) -> None:
        """Forget a run and its log files. After a crash it is either listed whole or not at all."""
        with self._db.writing() as db:
            runs.forget(db, progress.number(db, run_id), run_id)
        self._sweep()

    # What a run does

    def set_state(self, run_id: str, state: RunState, reason: Mapping[str, Any] | None = None) -> None:
        """The client's own word. Goes only forward: what the machine said, and an end, stay."""
        with self._db.writing() as db:
            progress.set_state(db, run_id, state, reason)

    def end(self, run_id: str, attempt: int, end: Mapping[str, Any], complete: bool = False) -> None:
        """Store an attempt's `end.json`. `complete`: all bytes of its streams are stored too."""
        streams.check_stream(attempt, streams.STATE_STREAM)
        with self._db.writing() as db:
            progress.end(db, run_id, attempt, end, complete)

    def mark_complete(self, run_id: str) -> None:
        """All bytes of an ended run are stored."""
        with self._db.writing() as db:
            db.execute("UPDATE run SET complete = 1 WHERE nr = ?", (progress.number(db, run_id),))

    def looked(self, run_id: str, as_of: float, unreachable: str | None = None) -> None:
        """The machine was asked at `as_of`; `unreachable` says why it did not answer (then `as_of` stays as it was)."""
        with self._db.writing() as db:
            query = "UPDATE run SET as_of = CASE WHEN ? THEN ? ELSE as_of END, unreachable = ? WHERE nr = ?"
            said = None if unreachable is None else plain(unreachable)
            db.execute(query, (unreachable is None, as_of, said, progress.number(db, run_id)))

    # Streams

    def cursors(self, run_id: str) -> dict[str, int]:
        """`{"1/log.script": offset}`: from where each stream is to be read on."""
        return streams.cursors(self._db, self._logs, run_id)

    def ingest(
        self, run_id: str, attempt: int, stream: str, offset: int, chunk: bytes, *, final: bool = False
    ) -> int:
        """Store the bytes of a stream from `offset` on; returns the new cursor. Safe to repeat.

        What is stored already is left out. Of a `*.jsonl` stream only whole lines are taken, so the cursor may be less
        than the end of `chunk`: put the rest in front of the next piece. `final`: there will be no more, so a last line
        without newline is set aside. Raises CursorGap when bytes between cursor and `offset` are missing.
        """
        return self.ingest_many(run_id, [(attempt, stream, offset, chunk)], final=final)[0]

    def ingest_many(self, run_id: str, pieces: Sequence[streams.Piece], *, final: bool = False) -> list[int]:
        """The same for many pieces (attempt, stream, offset, bytes) of a run in one step; all of them, or none."""
        return streams.ingest(self._db, self._logs, run_id, pieces, final=final)

    # Logs and pictures

    def log_streams(self, run_id: str) -> list[tuple[int, str]]:
        """Attempt and name of each stream whose bytes are kept: `log.script`, `log.environment`, `media.*`."""
        with self._db.reading() as db:
            found = contents.file_streams(db, progress.number(db, run_id))
        return [(attempt, name) for attempt, name, _ in found if not streams.holds_events(name)]

    def log_size(self, run_id: str, attempt: int, stream: str) -> int:
        """Bytes of the stream that are here; 0 for one that is not."""
        return streams.size(self._db, self._logs, run_id, attempt, stream)

    def read_log(self, run_id: str, attempt: int, stream: str, start: int, size: int) -> bytes:
        """At most `size` bytes from `start`; empty at the end of what is here."""
        end = self.log_size(run_id, attempt, stream)
        return self._logs.read(run_id, attempt, stream, start, min(size, end - start)) if start < end else b""

    def tail_start(self, run_id: str, attempt: int, stream: str, lines: int) -> int:
        """The offset where the last `lines` lines begin."""
        end = self.log_size(run_id, attempt, stream)
        return self._logs.tail_start(run_id, attempt, stream, end, lines)

    def log_path(self, run_id: str, attempt: int, stream: str) -> Path:
        """The file of a stream. Only its first `log_size` bytes count."""
        runs.check_id(run_id)
        streams.check_stream(attempt, stream)
        return self._logs.path(run_id, attempt, stream)

    # What was said

    def metrics(self, run_id: str, names: Iterable[str] | None = None) -> dict[str, points.Series]:
        """All points by metric, ordered by attempt, by the opening of the stream, as written."""
        with self._db.reading() as db:
            return points.read(db, progress.number(db, run_id), names)

    def thinned(
        self,
        run_id: str,
        name: str,
        points: int = 1000,
        lo: float | None = None,
        hi: float | None = None,
        *,
        times: bool = False,
    ) -> thinning.Thinned:
        """A metric in about so many rows, each with the mean, the least and the greatest of the points it stands for.

        `lo` and `hi` are steps (of points without steps, their number); what lies outside is left out.
        """
        from dray.store import thinning

        with self._db.reading() as db:
            return thinning.thin(db, progress.number(db, run_id), plain(name), points, lo, hi, times)

    def latest(self, run_ids: Iterable[str]) -> dict[str, dict[str, tuple[float, int | None]]]:
        """Of each run the value and step of the last point of each metric."""
        with self._db.reading() as db:
            numbers = progress.numbers(db, run_ids)
            found = newest.latest(db, list(numbers.values()))
            return {run_id: found[number] for run_id, number in numbers.items()}

    def names(
        self, kind: Literal["metrics", "params", "tags"], prefix: str = "", limit: int | None = None
    ) -> list[str]:
        """Names of metrics, parameters or tags of any run, those that begin with `prefix`."""
        with self._db.reading() as db:
            return newest.names(db, kind.removesuffix("s"), plain(prefix), limit)

    def params(self, run_id: str) -> dict[str, Any]:
        """The last value of each parameter."""
        with self._db.reading() as db:
            return contents.last_values(db, progress.number(db, run_id), "params")

    def tags(self, run_id: str) -> dict[str, str]:
        """The tags given at submit, then those that the script set, then those set afterwards: the last one counts."""
        with self._db.reading() as db:
            edits = contents.edits(db, progress.number(db, run_id))
            tags = self._said_tags(db, run_id)
        changed = {edit.key: edit.value for edit in edits if edit.kind == "tag"}
        kept = {name: value for name, value in tags.items() if plain(name) not in changed}
        return kept | {name: value for name, value in changed.items() if value is not None}

    def said_tags(self, run_id: str) -> dict[str, str]:
        """The tags as the run itself has them: given at submit, and set by the script."""
        with self._db.reading() as db:
            return self._said_tags(db, run_id)

    # What is said afterwards

    def edit(
        self,
        run_id: str,
        *,
        name: str | None = None,
        note: str | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> None:
        """Name a run, write a note about it, set its tags, whatever it said itself; for good, also through a rebuild.

        What is None is left as it is. An empty name or note takes it away, and so does None for a tag.
        """
        from dray.store import edits

        with self._db.writing() as db:
            progress.number(db, run_id)
            if name is None and note is None and not tags:
                return
            edits.catch_up(db, self._edits)
            edits.append(self._edits, edits.line(run_id, time.time(), name, tags or {}, note))
            edits.catch_up(db, self._edits)

    def edits(self, run_id: str) -> list[contents.Edit]:
        """What was said of a run afterwards, and holds."""
        with self._db.reading() as db:
            return contents.edits(db, progress.number(db, run_id))

    def replay_edits(self) -> int:
        """Apply all that was ever said afterwards, for a history that was made anew; how many edits of its runs.

        Safe to repeat.
        """
        from dray.store import edits

        with self._db.writing() as db:
            return edits.catch_up(db, self._edits, everything=True)

    # What came home

    def mark_fetched(self, run_id: str, path: str, size: int, sha256: str) -> None:
        """The output `path` is on this client now, whole: what is thrown away on the machine is not lost."""
        with self._db.writing() as db:
            row = (progress.number(db, run_id), plain(path), size, sha256, time.time())
            db.execute("INSERT OR REPLACE INTO fetched VALUES (?, ?, ?, ?, ?)", row)

    def fetched(self, run_id: str) -> dict[str, tuple[int, str]]:
        """Size and digest of each output that was brought home, by its path on the machine."""
        with self._db.reading() as db:
            query = "SELECT path, bytes, sha256 FROM fetched WHERE run = ? ORDER BY path"
            rows = db.execute(query, (progress.number(db, run_id),))
            return {path: (size, sha256) for path, size, sha256 in rows}

    def mark_imported(self, run_id: str, t: float) -> None:
        """All of this run is here, and no machine is to be asked about it."""
        with self._db.writing() as db:
            query = "UPDATE run SET imported = ?, complete = 1 WHERE nr = ?"
            db.execute(query, (t, progress.number(db, run_id)))

    def states(self, run_id: str) -> list[tuple[int, str, float]]:
        """Attempt, state and time of each state that the machine told."""
        return [(line.attempt, line.data["state"], line.t) for line in self._lines(run_id, "state")]

    def tables(self, run_id: str) -> list[contents.Line]:
        """What `log_table` gave."""
        return self._lines(run_id, "table")

    def images(self, run_id: str) -> list[contents.Line]:
        """What `log_image` gave; the bytes are in the stream that each names."""
        return self._lines(run_id, "image")

    def texts(self, run_id: str) -> list[contents.Line]:
        """What was given as a metric and was no number."""
        return self._lines(run_id, "text")

    def processes(self, run_id: str) -> list[contents.Line]:
        """The first line of each event stream: host, pid, rank."""
        return self._lines(run_id, "opened")

    def telemetry(self, run_id: str) -> list[contents.Line]:
        """What was sampled of the machine while it ran, oldest first: docs/design.md, "Streams"."""
        return self._lines(run_id, "sample")

    def gpus(self, run_id: str) -> dict[str, Any] | None:
        """The GPUs that its machine had, as its runner told them; None when it told of none."""
        told = self._lines(run_id, "gpus")
        return told[-1].data if told else None

    def unknown_events(self, run_id: str) -> list[contents.Line]:
        """Events of a newer runner; `data` is the whole event as it came."""
        return self._lines(run_id, "unknown")

    def broken(self, run_id: str) -> list[contents.BrokenLine]:
        """Lines that were set aside, with the reason."""
        with self._db.reading() as db:
            return contents.broken(db, progress.number(db, run_id))

    def export_state(self, run_id: str) -> dict[str, Any]:
        """All of a run as plain JSON data, for comparing two histories."""
        from dray.store import export

        with self._db.reading() as db:
            return export.export_state(db, self._logs, run_id)

    # Elsewhere and back

    def write_files(self, run_id: str, put: Callable[[str, Iterator[bytes]], object]) -> None:
        """Give `put` all of a run as plain files: path and content of each, the same bytes every time."""
        from dray.store import to_files

        with self._db.reading() as db:
            for path, content in to_files.files(db, self._logs, run_id):
                put(path, content)

    def imported_folder(self, run_id: str) -> Path:
        """Where the files of a run from elsewhere are: the truth about it, as a run folder is about others."""
        runs.check_id(run_id)
        return self._imported / run_id

    def import_run(self, whole: WholeRun, files: Path, t: float, *, edits_are_known: bool = False) -> None:
        """Take in a run from elsewhere, in one step. `files` becomes its `imported_folder`, or is it already.

        `edits_are_known`: what was said of it afterwards is in the journal, and only has to be read there. Raises RunExists.
        """
        place = self.imported_folder(whole.id)
        moved = False
        try:
            with self._db.writing() as db:
                if progress.known(db, whole.id):
                    raise RunExists(whole.id)
                db.execute("DELETE FROM leftover WHERE id = ?", (whole.id,))
                self._logs.remove(whole.id)
                if files != place:
                    self._discard(whole.id)
                    moved = True
                    files.rename(place)
                self._take_logs(whole, place)
                self._put(db, whole, t, edits_are_known=edits_are_known)
        except BaseException:
            if moved:  # nothing of it is in the history
                self._discard(whole.id)
            raise

    def _put(self, db: sqlite3.Connection, whole: WholeRun, t: float, *, edits_are_known: bool) -> None:
        from dray.store import edits
        from dray.store.whole import put

        put(db, whole, t)
        if edits_are_known:
            edits.apply(db, whole.id, whole.edits)
        elif whole.edits:
            edits.catch_up(db, self._edits)
            edits.append(self._edits, edits.lines(whole.id, whole.edits))
            edits.catch_up(db, self._edits)

    def _take_logs(self, whole: WholeRun, place: Path) -> None:
        from dray.store.to_files import stream_path

        for stream in whole.streams:
            if not streams.holds_events(stream.name):
                source = place / stream_path(stream.attempt, stream.name)
                self._logs.take(whole.id, stream.attempt, stream.name, source)

    # Submitting

    @contextlib.contextmanager
    def submitting(self, run_id: str) -> Iterator[None]:
        """Hold this while submitting: others then know that a run in state `created` has somebody who cares for it."""
        runs.check_id(run_id)
        with self._db.in_our_words():
            held = contextlib.ExitStack()
            held.enter_context(submitting.hold(self._submitting, run_id))
        with held:
            yield

    def is_submitting(self, run_id: str) -> bool:
        """True while a living process holds `submitting` of this run."""
        runs.check_id(run_id)
        return submitting.is_held(self._submitting, run_id)

    def _catch_up(self) -> None:
        """Apply edits that were written down by a process that was killed before it could apply them."""
        from dray.store import edits

        with self._db.reading() as db:
            behind = edits.size(self._edits) != edits.applied(db)
        if behind:
            with self._db.writing() as db:
                edits.catch_up(db, self._edits)

    def _said_tags(self, db: sqlite3.Connection, run_id: str) -> dict[str, str]:
        said = contents.last_values(db, progress.number(db, run_id), "tags")
        return {**runs.get(db, run_id).spec.tags, **said}

    def _lines(self, run_id: str, kind: str) -> list[contents.Line]:
        with self._db.reading() as db:
            return list(contents.lines(db, progress.number(db, run_id), kind))

    def _sweep(self) -> None:
        """Finish what a process was killed in the middle of: edits to apply, log files of removed runs to delete."""
        with self._db.reading() as db:
            waiting = db.execute("SELECT id FROM leftover").fetchall()
        if os.path.exists(self._edits):
            self._catch_up()
        for (run_id,) in waiting:
            # Under the lock: nobody can make a run of this id, or write a log, between the two.
            with self._db.writing() as db:
                if db.execute("DELETE FROM leftover WHERE id = ?", (run_id,)).rowcount:
                    self._discard(run_id)

    def _discard(self, run_id: str) -> None:
        """Delete the files of a run that is not in the history."""
        self._logs.remove(run_id)
        folder = self.imported_folder(run_id)
        if folder.exists():
            import shutil

            shutil.rmtree(folder)
