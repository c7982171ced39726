"""The list of runs: made, found, listed and forgotten."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dray.core.errors import UnknownName, UsageError
from dray.core.states import ACTIVE, RunState
from dray.store import newest
from dray.store.errors import AmbiguousRun, NoSuchRun, RunExists, UnsafeName
from dray.store.events import plain

if TYPE_CHECKING:
    from dray.core.spec import RunSpec
    from dray.core.where_tree import Sort, Tree

_SHOWN = 10
_NEAR = 200
_AT_ONCE = 500
_AFTER_ANY_ID = "\U0010ffff"
_MOST_COMPLETED = 2000
_COLUMNS = (
    "nr, id, name, experiment, compute, created, spec, state, reason, attempts, pid, exit_code, signal, started, ended,"
    " duration_s, host, environment, ending, complete, as_of, unreachable, note, imported"
)

Filter = tuple[str, list[Any]]
"""A condition on `run` and the values of its question marks."""


class RunRecord(NamedTuple):
    """What the history knows of one run, as it was when it was asked. Times are seconds since 1970."""

    id: str
    name: str | None
    """As it was given at submit, or afterwards."""
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
    note: str | None
    """What somebody wrote about it afterwards."""
    imported: float | None
    """When it came in from an export; None: it was submitted from here, or found on a machine."""
    notes: tuple[str, ...]
    """What the machine had to say."""

    @property
    def spec(self) -> RunSpec:
        """What was asked for. Made anew each time: a list of 100,000 runs seldom needs it."""
        from dray.core.spec import RunSpec

        return RunSpec.from_json(json.loads(self.spec_json))

    @property
    def said_name(self) -> str | None:
        """The name that was given at submit; `name` is what it is called now."""
        return self.spec.name


def create(db: sqlite3.Connection, spec: RunSpec) -> None:
    """Put a new run in the list, in state `created`."""
    check_id(spec.id)
    try:
        made = db.execute(
            "INSERT INTO run (id, name, experiment, compute, created, spec, state) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(spec.id, None if spec.name is None else plain(spec.name)),
                *(plain(spec.experiment), plain(spec.compute), spec.created or time.time()),
                *(json.dumps(spec.to_json()), RunState.CREATED.value),
            ),
        )
    except sqlite3.IntegrityError as error:
        raise RunExists(spec.id) from error
    newest.tagged(db, made.lastrowid or 0, spec.tags)


def check_id(run_id: str) -> None:
    """Refuse what is no id of a run: it becomes the name of a folder."""
    from dray.core.ids import PATTERN

    if not PATTERN.fullmatch(run_id):
        raise UnsafeName("run id", run_id)


def move(db: sqlite3.Connection, run_id: str, compute: str) -> None:
    """Name another compute for it."""
    query = "UPDATE run SET compute = ?, spec = json_set(spec, '$.compute', ?) WHERE id = ?"
    db.execute(query, (compute, compute, run_id))


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
    filters: Sequence[Filter],
    where: Tree | None,
    sort: Sequence[Sort],
    limit: int | None,
    offset: int,
) -> list[RunRecord]:
    """Runs, newest first unless `sort` says otherwise."""
    if where is None and not sort:
        wanted = f"WHERE {' AND '.join(sql for sql, _ in filters)} " if filters else ""
        values = [value for _, some in filters for value in some]
        bounds = [-1 if limit is None else max(limit, 0), max(offset, 0)]
        return _select(db, f"{wanted}ORDER BY created DESC, nr DESC LIMIT ? OFFSET ?", [*values, *bounds])
    from dray.store import query  # with the language, which few looks at the history need

    # Their numbers first: rows are wide, and sorting would carry them all along.
    numbers = query.select(db, _with(db, filters, where), sort, limit, offset)
    found: dict[int, RunRecord] = {}
    for start in range(0, len(numbers), _AT_ONCE):
        some = numbers[start : start + _AT_ONCE]
        found.update(_numbered(db, f"WHERE nr IN ({','.join('?' * len(some))})", some))
    return [found[number] for number in numbers]


def counted(db: sqlite3.Connection, filters: Sequence[Filter], where: Tree | None) -> int:
    """How many runs there are."""
    from dray.store import query

    return query.count(db, _with(db, filters, where))


def filters(experiment: str | None, status: RunState | str | None, active: bool) -> list[Filter]:
    """What is asked of runs so often that it needs no expression. Raises UnknownName for an unknown status."""
    found: list[Filter] = []
    if experiment is not None:
        found.append(("experiment = ?", [plain(experiment)]))
    if status is not None:
        found.append(("state = ?", [_known_state(status).value]))
    if active:
        found.append((f"state IN ({','.join('?' * len(ACTIVE))})", sorted(state.value for state in ACTIVE)))
    return found


def begun_with(db: sqlite3.Connection, prefix: str, limit: int) -> list[tuple[str, str | None]]:
    """Ids and names of runs of which either begins with `prefix`, the newest first."""
    if not prefix:
        query = "SELECT id, name FROM run ORDER BY created DESC, nr DESC LIMIT ?"
        return db.execute(query, (limit,)).fetchall()
    start = plain(prefix)
    rows: dict[str, tuple[float, str | None]] = {}
    for word in ("id", "name"):
        query = f"SELECT id, created, name FROM run WHERE {word} >= ? AND {word} < ? LIMIT ?"  # noqa: S608 - ours
        for run_id, created, name in db.execute(query, (start, start + _AFTER_ANY_ID, _MOST_COMPLETED)):
            rows[run_id] = (created, name)
    newest_first = sorted(rows, key=lambda run_id: -rows[run_id][0])
    return [(run_id, rows[run_id][1]) for run_id in newest_first[:limit]]


def snapshots(db: sqlite3.Connection) -> set[str]:
    """Digests of the code of all runs."""
    specs = db.execute("SELECT spec FROM run")
    return {digest for (spec,) in specs if (digest := json.loads(spec).get("snapshot"))}


class Code(NamedTuple):
    """Which code a run has, and who can tell what that is made of."""

    number: int
    """Grows with every new run, and is never used again."""
    id: str
    snapshot: str
    created: float
    compute: str
    is_imported: bool
    is_ended: bool


def code_since(db: sqlite3.Connection, number: int) -> list[Code]:
    """The code of all runs that are newer than run number `number`, the oldest first."""
    query = """SELECT nr, id, json_extract(spec, '$.snapshot'), created, compute, imported IS NOT NULL, state
        FROM run WHERE nr > ? ORDER BY nr"""
    return [
        Code(nr, run_id, snapshot or "", created, compute, bool(imported), RunState(state).is_ended)
        for nr, run_id, snapshot, created, compute, imported, state in db.execute(query, (number,))
    ]


def forget(db: sqlite3.Connection, run: int, run_id: str) -> None:
    """Delete all rows of a run; its files are noted as left over, to be deleted next."""
    db.execute("DELETE FROM block WHERE series IN (SELECT nr FROM series WHERE run = ?)", (run,))
    newest.forget(db, run)
    for table in ("series", "event", "broken", "stream", "ending", "edit", "fetched"):
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
    return [record for _, record in _numbered(db, rest, values)]


def _numbered(db: sqlite3.Connection, rest: str, values: Sequence[Any]) -> list[tuple[int, RunRecord]]:
    rows = db.execute(f"SELECT {_COLUMNS} FROM run {rest}", values).fetchall()  # noqa: S608 - both are ours
    notes = _notes(db, [row[0] for row in rows])
    return [(row[0], _record(row, tuple(notes.get(row[0], ())))) for row in rows]


def _with(db: sqlite3.Connection, filters: Sequence[Filter], where: Tree | None) -> list[Filter]:
    from dray.store import query

    return list(filters) if where is None else [*filters, query.where(db, where, time.time())]


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
