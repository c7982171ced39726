"""The list of runs: made, found, listed and forgotten."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dray.core.errors import UnknownName, UsageError
from dray.core.states import ACTIVE, RunState
from dray.store.errors import AmbiguousRun, NoSuchRun, RunExists, UnsafeName
from dray.store.events import plain

if TYPE_CHECKING:
    from dray.core.spec import RunSpec

_SHOWN = 10
_NEAR = 200
_AT_ONCE = 500
_AFTER_ANY_ID = "\U0010ffff"
_COLUMNS = (
    "nr, id, name, experiment, compute, created, spec, state, reason, attempts, pid, exit_code, signal, started, ended,"
    " duration_s, host, environment, ending, complete, as_of, unreachable"
)


class RunRecord(NamedTuple):
    """What the history knows of one run, as it was when it was asked. Times are seconds since 1970."""

    id: str
    name: str | None
    experiment: str
    compute: str
    created: float
    spec_json: str
    status: RunState
    reason: dict[str, Any] | None
    """`kind` and `text`, docs/design.md "The end"."""
    attempts: int
    pid: int | None
    exit_code: int | None
    signal: int | None
    started: float | None
    ended: float | None
    duration_s: float | None
    host: dict[str, Any] | None
    environment: dict[str, Any] | None
    end: dict[str, Any] | None
    complete: bool
    """The run has ended, and all its bytes are here."""
    as_of: float | None
    """When the machine was last asked; None: never."""
    unreachable: str | None
    """Why the last question got no answer."""
    notes: tuple[str, ...]

    @property
    def spec(self) -> RunSpec:
        """What was asked for. Made anew each time: a list of 100,000 runs seldom needs it."""
        from dray.core.spec import RunSpec

        return RunSpec.from_json(json.loads(self.spec_json))


def create(db: sqlite3.Connection, spec: RunSpec) -> None:
    """Put a new run in the list, in state `created`."""
    check_id(spec.id)
    try:
        db.execute(
            "INSERT INTO run (id, name, experiment, compute, created, spec, state) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(spec.id, None if spec.name is None else plain(spec.name)),
                *(plain(spec.experiment), plain(spec.compute), spec.created or time.time()),
                *(json.dumps(spec.to_json()), RunState.CREATED.value),
            ),
        )
    except sqlite3.IntegrityError as error:
        raise RunExists(spec.id) from error


def check_id(run_id: str) -> None:
    """Refuse what is no id of a run: it becomes the name of a folder."""
    from dray.core.ids import PATTERN

    if not PATTERN.fullmatch(run_id):
        raise UnsafeName("run id", run_id)


def get(db: sqlite3.Connection, run_id: str) -> RunRecord:
    """The run with exactly this id."""
    found = _select(db, "WHERE id = ?", (plain(run_id),))
    if not found:
        raise NoSuchRun(run_id, _near(db))
    return found[0]


def find(db: sqlite3.Connection, word: str) -> RunRecord:
    """The run that a person means: an id, a name, a unique beginning of an id, `@last`, `@last-1` ..."""
    if word.startswith("@"):
        return _counted_back(db, word)
    text = plain(word)
    by_id = _select(db, "WHERE id = ?", (text,))
    if by_id:
        return by_id[0]
    # A name beats a beginning of an id: somebody chose it.
    for where, values in (("name = ?", (text,)), ("id >= ? AND id < ?", (text, text + _AFTER_ANY_ID))):
        found = (
            _select(db, f"WHERE {where} ORDER BY created DESC, nr DESC LIMIT {_SHOWN}", values)
            if text
            else []
        )
        if len(found) == 1:
            return found[0]
        if found:
            (total,) = db.execute(f"SELECT count(*) FROM run WHERE {where}", values).fetchone()  # noqa: S608 - ours
            raise AmbiguousRun(word, [(run.id, run.created, run.experiment) for run in found], total)
    raise NoSuchRun(word, _near(db))


def listed(
    db: sqlite3.Connection,
    experiment: str | None,
    status: RunState | str | None,
    limit: int | None,
    active: bool,
) -> list[RunRecord]:
    """Runs, newest first."""
    wanted: list[str] = []
    values: list[Any] = []
    if experiment is not None:
        wanted.append("experiment = ?")
        values.append(plain(experiment))
    if status is not None:
        wanted.append("state = ?")
        values.append(_known_state(status).value)
    if active:
        wanted.append(f"state IN ({','.join('?' * len(ACTIVE))})")
        values += sorted(state.value for state in ACTIVE)
    where = f"WHERE {' AND '.join(wanted)} " if wanted else ""
    if limit is not None:
        values.append(max(limit, 0))
    return _select(db, f"{where}ORDER BY created DESC, nr DESC{'' if limit is None else ' LIMIT ?'}", values)


def forget(db: sqlite3.Connection, run: int, run_id: str) -> None:
    """Delete all rows of a run; its files are noted as left over, to be deleted next."""
    db.execute("DELETE FROM block WHERE series IN (SELECT nr FROM series WHERE run = ?)", (run,))
    for table in ("series", "event", "broken", "stream", "ending"):
        db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608 - ours
    db.execute("DELETE FROM run WHERE nr = ?", (run,))
    db.execute("INSERT OR IGNORE INTO leftover VALUES (?)", (run_id,))


def _counted_back(db: sqlite3.Connection, word: str) -> RunRecord:
    kind, _, count = word.partition("-")
    if (
        kind != "@last"
        or (count and not (count.isdecimal() and count.isascii() and len(count) < 10))
        or word[-1] == "-"
    ):
        raise UsageError(
            f"`{plain(word)}` names no run", why="after @ comes `last`, or `last-1` for the one before"
        )
    found = _select(db, "ORDER BY created DESC, nr DESC LIMIT 1 OFFSET ?", (int(count or 0),))
    if not found:
        raise NoSuchRun(word)
    return found[0]


def _known_state(status: RunState | str) -> RunState:
    try:
        return RunState(status)
    except ValueError:
        raise UnknownName("status", str(status), [state.value for state in RunState]) from None


def _near(db: sqlite3.Connection) -> list[str]:
    """Names and ids of the newest runs, for "did you mean"."""
    rows = db.execute("SELECT name, id FROM run ORDER BY created DESC, nr DESC LIMIT ?", (_NEAR,)).fetchall()
    return list(dict.fromkeys(word for row in rows for word in row if word))


def _select(db: sqlite3.Connection, rest: str, values: Sequence[Any]) -> list[RunRecord]:
    rows = db.execute(f"SELECT {_COLUMNS} FROM run {rest}", values).fetchall()  # noqa: S608 - both are ours
    notes = _notes(db, [row[0] for row in rows])
    return [_record(row, tuple(notes.get(row[0], ()))) for row in rows]


def _notes(db: sqlite3.Connection, runs: Sequence[int]) -> dict[int, list[str]]:
    notes: dict[int, list[str]] = {}
    for start in range(0, len(runs), _AT_ONCE):
        some = runs[start : start + _AT_ONCE]
        marks = ",".join("?" * len(some))
        query = f"""SELECT event.run, data FROM event JOIN stream ON stream.nr = event.stream
            WHERE kind = 'note' AND event.run IN ({marks}) ORDER BY attempt, pos"""  # noqa: S608 - question marks
        for run, data in db.execute(query, some):
            notes.setdefault(run, []).append(json.loads(data)["text"])
    return notes


def _record(row: Sequence[Any], notes: tuple[str, ...]) -> RunRecord:
    record = RunRecord._make((*row[1:], notes))  # in the order of _COLUMNS
    return record._replace(
        status=RunState(record.status),
        reason=_loaded(row[8]),
        host=_loaded(row[16]),
        environment=_loaded(row[17]),
        end=_loaded(row[18]),
        complete=bool(record.complete),
    )


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)
