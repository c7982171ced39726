"""All that the history knows of a run as plain JSON data, so that two histories can be compared.

Left out is what only this client did: when it looked, and whether it got an answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from typing import Any

from dray.store import contents, points, progress, runs, streams
from dray.store.logs import Logs

_KINDS = (
    "opened",
    "state",
    "host",
    "environment",
    "note",
    "params",
    "tags",
    "table",
    "image",
    "text",
    "unknown",
)
_FIELDS = (
    *("reason", "attempts", "pid", "exit_code", "signal", "started", "ended", "duration_s"),
    *("host", "environment", "end", "complete"),
)
_PIECE = 1 << 20


def export_state(db: sqlite3.Connection, logs: Logs, run_id: str) -> dict[str, Any]:
    """The same for the same streams, however they were cut and whoever brought them."""
    run = progress.number(db, run_id)
    record = runs.get(db, run_id)
    broken = contents.broken(db, run)
    return {
        "spec": json.loads(record.spec_json),
        "status": record.status.value,
        **{name: getattr(record, name) for name in _FIELDS},
        "ends": {
            str(attempt): json.loads(data)
            for attempt, data in db.execute(
                "SELECT attempt, data FROM ending WHERE run = ? ORDER BY attempt", (run,)
            ).fetchall()
        },
        "events": {kind: [line._asdict() for line in contents.lines(db, run, kind)] for kind in _KINDS},
        "broken": [{**line._asdict(), "head": line.head.hex()} for line in broken],
        "params": contents.last_values(db, run, "params"),
        "tags": contents.last_values(db, run, "tags"),
        "metrics": {name: _columns(series) for name, series in points.read(db, run).items()},
        "latest": {name: [_word(value), step] for name, (value, step) in points.latest(db, run).items()},
        "streams": _streams(db, logs, run, run_id),
    }


def _columns(series: points.Series) -> dict[str, list[Any]]:
    values = [_word(value) for value in series.values]
    return {"steps": list(series.steps), "times": list(series.times), "values": values}


def _word(value: float) -> float | str:
    # As on the wire: NaN equals nothing, not even itself, and JSON has none of these.
    return (
        value
        if math.isfinite(value)
        else ("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
    )


def _streams(db: sqlite3.Connection, logs: Logs, run: int, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attempt, name, size in contents.file_streams(db, run):
        found[f"{attempt}/{name}"] = {"bytes": size}
        if not streams.holds_events(name):
            digest = hashlib.sha256()
            for start in range(0, size, _PIECE):
                digest.update(logs.read(run_id, attempt, name, start, min(_PIECE, size - start)))
            found[f"{attempt}/{name}"]["sha256"] = digest.hexdigest()
    return found
