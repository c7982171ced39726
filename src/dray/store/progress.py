"""How a run moves from state to state, by the machine's words and by the client's own.

A higher attempt beats a lower one; within an attempt an ended state stays. So the order in which followers bring the
streams of several attempts does not matter.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from dray.core.states import ENDED, RunState
from dray.store.errors import NoSuchRun
from dray.store.events import Event, plain

_ORDER = {state.value: place for place, state in enumerate(RunState)}
_ENDED = frozenset(state.value for state in ENDED)
_BIGGEST = 2**63
_AT_ONCE = 500
_FACTS = {
    "host": "UPDATE run SET host = ? WHERE nr = ?",
    "environment": "UPDATE run SET environment = ? WHERE nr = ?",
}


def number(db: sqlite3.Connection, run_id: str) -> int:
    """The run's key in all tables. Raises NoSuchRun."""
    row = db.execute("SELECT nr FROM run WHERE id = ?", (run_id,)).fetchone() if run_id.isascii() else None
    if row is None:
        raise NoSuchRun(run_id)
    return int(row[0])


def known(db: sqlite3.Connection, run_id: str) -> bool:
    """Whether the history has that run."""
    return db.execute("SELECT 1 FROM run WHERE id = ?", (run_id,)).fetchone() is not None


def numbers(db: sqlite3.Connection, run_ids: Iterable[str]) -> dict[str, int]:
    """The keys of many runs. Raises NoSuchRun for the first that is not there."""
    ids = list(dict.fromkeys(run_ids))
    found: dict[str, int] = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = [plain(run_id) for run_id in ids[start : start + _AT_ONCE]]
        query = f"SELECT id, nr FROM run WHERE id IN ({','.join('?' * len(some))})"  # noqa: S608 - question marks
        found.update(db.execute(query, some))
    missing = next((run_id for run_id in ids if run_id not in found), None)
    if missing is not None:
        raise NoSuchRun(missing)
    return {run_id: found[run_id] for run_id in ids}


def heard(db: sqlite3.Connection, run: int, attempt: int, said: Iterable[Event]) -> None:
    """Apply the runner's words to the run's row."""
    for event in said:
        if event.kind not in {"state", *_FACTS} or not _begin(db, run, attempt):
            continue
        if event.kind == "state":
            _move(db, run, event)
        else:
            db.execute(_FACTS[event.kind], (json.dumps(event.data), run))


def set_state(db: sqlite3.Connection, run_id: str, state: RunState, reason: Mapping[str, Any] | None) -> None:
    """The client's own word: only forward, and never away from an ended state."""
    run = number(db, run_id)
    (current,) = db.execute("SELECT state FROM run WHERE nr = ?", (run,)).fetchone()
    if current in _ENDED or _ORDER[state.value] < _ORDER[current]:
        return
    why = None if reason is None else json.dumps(dict(reason))
    query = "UPDATE run SET state = ?, reason = ?, reason_kind = ? WHERE nr = ?"
    db.execute(query, (state.value, why, reason_kind(reason), run))


def end(db: sqlite3.Connection, run_id: str, attempt: int, ending: Mapping[str, Any], complete: bool) -> None:
    """Store `end.json` of an attempt. The first one of an attempt counts; `complete` may be added later."""
    run = number(db, run_id)
    data = json.dumps(dict(ending))
    db.execute("INSERT OR IGNORE INTO ending VALUES (?, ?, ?)", (run, attempt, data))
    if not _begin(db, run, attempt):
        return
    (state, ended) = db.execute("SELECT state, ending IS NOT NULL FROM run WHERE nr = ?", (run,)).fetchone()
    if not ended and state not in _ENDED:
        reason = ending.get("reason")
        db.execute(
            "UPDATE run SET state = ?, reason = ?, reason_kind = ?, exit_code = ?, signal = ?, started = coalesce(?, started), ended = ?,"
            " duration_s = ?, ending = ? WHERE nr = ?",
            (
                *(_ended_state(ending), json.dumps(reason) if isinstance(reason, dict) else None),
                reason_kind(reason),
                *(_whole(ending.get("code")), _whole(ending.get("signal")), _real(ending.get("started"))),
                *(_real(ending.get("ended")), _real(ending.get("duration_s")), data, run),
            ),
        )
    if complete:
        db.execute("UPDATE run SET complete = 1 WHERE nr = ?", (run,))


def _begin(db: sqlite3.Connection, run: int, attempt: int) -> bool:
    """Make `attempt` the one that the run's row speaks of; False when a later one is there already."""
    (current,) = db.execute("SELECT attempts FROM run WHERE nr = ?", (run,)).fetchone()
    if attempt > current:
        db.execute(
            "UPDATE run SET attempts = ?, reason = NULL, reason_kind = NULL, pid = NULL, exit_code = NULL, signal = NULL, started = NULL,"
            " ended = NULL, duration_s = NULL, host = NULL, environment = NULL, ending = NULL, complete = 0,"
            " state = ? WHERE nr = ?",
            (attempt, RunState.PREPARING.value, run),
        )
    return bool(attempt >= current)


def _move(db: sqlite3.Connection, run: int, event: Event) -> None:
    state = event.data["state"]
    # An end is believed from `end.json` alone; a word that we do not know is kept as an event, and moves nothing.
    if state not in _ORDER or state in _ENDED:
        return
    (current,) = db.execute("SELECT state FROM run WHERE nr = ?", (run,)).fetchone()
    if state == "running":
        query = "UPDATE run SET started = coalesce(started, ?), pid = coalesce(?, pid) WHERE nr = ?"
        db.execute(query, (event.t, _whole(event.data.get("pid")), run))
    if current not in _ENDED and _ORDER[state] >= _ORDER[current]:
        db.execute("UPDATE run SET state = ? WHERE nr = ?", (state, run))


def _ended_state(ending: Mapping[str, Any]) -> str:
    # Whatever a newer runner may call it: the run is over, and how cannot be known here.
    state = ending.get("state")
    return state if isinstance(state, str) and state in _ENDED else RunState.LOST.value


def reason_kind(reason: object) -> str | None:
    """Why a run ended, in one word that can be asked for."""
    kind = reason.get("kind") if isinstance(reason, Mapping) else None
    return plain(kind) if isinstance(kind, str) else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and -_BIGGEST <= value < _BIGGEST else None


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e300 else None
