"""A run as one value that is ready to be stored, and how it is stored: all of it in one transaction.

What lists and questions read (`newest`) is made again from it, by the functions that ingest uses.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dray.store import newest, points, progress
from dray.store.contents import Edit
from dray.store.events import Broken, Event, plain

_FACTS = (
    *("attempts", "pid", "exit_code", "signal", "started", "ended", "duration_s"),
    *("reason", "host", "environment", "complete"),
)


class WholeStream(NamedTuple):
    """One stream, read to its end."""

    attempt: int
    name: str
    size: int
    opened: float | None
    events: Sequence[Event]
    broken: Sequence[Broken]
    series: Mapping[str, points.Packed]


class WholeRun(NamedTuple):
    """Everything of a run but the bytes of its files."""

    id: str
    spec: dict[str, Any]
    facts: dict[str, Any]
    """The columns of the same names, JSON not yet text."""
    ends: Mapping[int, str]
    """JSON by attempt."""
    streams: Sequence[WholeStream]
    edits: Sequence[Edit]


def put(db: sqlite3.Connection, whole: WholeRun, imported: float) -> None:
    """Store all of a run that the history does not have; edits are applied by who calls."""
    run = _row(db, whole, imported)
    newest.tagged(db, run, whole.spec.get("tags") or {})
    rows = [(run, attempt, data) for attempt, data in whole.ends.items()]
    db.executemany("INSERT INTO ending VALUES (?, ?, ?)", rows)
    for stream in whole.streams:
        _put_stream(db, run, stream)


def _row(db: sqlite3.Connection, whole: WholeRun, imported: float) -> int:
    spec, facts = whole.spec, whole.facts
    row: dict[str, Any] = {
        "id": whole.id,
        "name": None if spec.get("name") is None else plain(spec["name"]),
        "experiment": plain(spec["experiment"]),
        "compute": plain(spec["compute"]),
        "created": facts["created"],
        "spec": json.dumps(spec),
        "state": facts["status"],
        "reason_kind": progress.reason_kind(facts["reason"]),
        "ending": whole.ends.get(facts["end"]),
        "imported": imported,
    }
    for name in _FACTS:
        value = facts[name]
        row[name] = json.dumps(value) if isinstance(value, dict) else value
    query = f"INSERT INTO run ({','.join(row)}) VALUES ({','.join('?' * len(row))})"  # noqa: S608 - ours
    return db.execute(query, list(row.values())).lastrowid or 0


def _put_stream(db: sqlite3.Connection, run: int, stream: WholeStream) -> None:
    made = db.execute(
        'INSERT INTO stream (run, attempt, name, "offset", opened) VALUES (?, ?, ?, ?, ?)',
        (run, stream.attempt, stream.name, stream.size, stream.opened),
    )
    nr = made.lastrowid or 0
    for name, packed in stream.series.items():
        points.insert(db, run, nr, name, packed)
        newest.summarised(db, run, nr, name, packed.span, packed.n, packed.last)
    db.executemany(
        "INSERT INTO event (stream, pos, run, kind, t, data) VALUES (?, ?, ?, ?, ?, ?)",
        [(nr, e.pos, run, e.kind, e.t, json.dumps(e.data, separators=(",", ":"))) for e in stream.events],
    )
    newest.said(db, run, nr, stream.events)
    db.executemany(
        "INSERT INTO broken (stream, pos, run, length, why, head) VALUES (?, ?, ?, ?, ?, ?)",
        [(nr, b.pos, run, b.length, b.why, b.head) for b in stream.broken],
    )
