"""A run of the history as plain files, the same bytes each time. docs/reference/export.md says what each of them is.

Read `files` first. It gives paths and contents; who asks writes them down, or only compares them. What machines hold
(outputs) and what other rooms hold (code) is not known here.
"""

from __future__ import annotations

import heapq
import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from dray.store import contents, points, progress, runs, streams
from dray.store.logs import Logs

VERSION = 1
RUN = "run.json"
EDITS = "edits.json"
HEADER = "name,step,time,value\n"
FACTS = (
    *("created", "reason", "attempts", "pid", "exit_code", "signal", "started", "ended", "duration_s"),
    *("host", "environment", "complete"),
)
_PIECE = 1 << 20

Files = Iterator[tuple[str, Iterator[bytes]]]
"""Path below the run's folder, and content in pieces. Each content is to be read before the next path is asked for."""


def files(db: sqlite3.Connection, logs: Logs, run_id: str) -> Files:
    """All that the history holds of a run."""
    run = progress.number(db, run_id)
    rows = db.execute(
        'SELECT nr, attempt, name, "offset", opened FROM stream WHERE run = ? ORDER BY attempt, name', (run,)
    ).fetchall()
    yield RUN, iter([_document(_run(db, run_id, run, rows))])
    edits = contents.edits(db, run)
    if edits:
        yield EDITS, iter([_document([edit._asdict() for edit in edits])])
    for attempt, data in _ends(db, run):
        yield end_path(attempt), iter([data.encode() + b"\n"])
    for nr, attempt, name, size, _ in rows:
        if not streams.holds_events(name):
            yield stream_path(attempt, name), _bytes(logs, run_id, attempt, name, size)
            continue
        if _has(db, "event", nr) or _has(db, "broken", nr):
            yield stream_path(attempt, name), _lines(db, nr)
        if _has(db, "series", nr):
            yield metrics_path(attempt, name), _table(db, nr)


def end_path(attempt: int) -> str:
    """Where `end.json` of an attempt is."""
    return f"attempts/{attempt}/end.json"


def stream_path(attempt: int, name: str) -> str:
    """Where a log, a picture, or what a stream of lines said apart from metrics is."""
    return f"attempts/{attempt}/streams/{name}"


def metrics_path(attempt: int, name: str) -> str:
    """Where the points of a stream are."""
    return f"attempts/{attempt}/metrics/{name.removesuffix('.jsonl')}.csv"


def _run(db: sqlite3.Connection, run_id: str, run: int, rows: Sequence[Any]) -> dict[str, Any]:
    record = runs.get(db, run_id)
    return {
        "v": VERSION,
        "spec": json.loads(record.spec_json),
        "status": record.status.value,
        **{name: getattr(record, name) for name in FACTS},
        # The attempt whose end is the run's; none where it was the client that said how the run ended.
        "end": record.attempts if record.end is not None else None,
        "streams": [
            {"attempt": attempt, "name": name, "bytes": size, "opened": opened}
            for _, attempt, name, size, opened in rows
        ],
    }


def _ends(db: sqlite3.Connection, run: int) -> list[tuple[int, str]]:
    return db.execute("SELECT attempt, data FROM ending WHERE run = ? ORDER BY attempt", (run,)).fetchall()


def _document(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def _has(db: sqlite3.Connection, table: str, stream: int) -> bool:
    query = f"SELECT 1 FROM {table} WHERE stream = ? LIMIT 1"  # noqa: S608 - ours
    return db.execute(query, (stream,)).fetchone() is not None


def _bytes(logs: Logs, run_id: str, attempt: int, name: str, size: int) -> Iterator[bytes]:
    for start in range(0, size, _PIECE):
        yield logs.read(run_id, attempt, name, start, min(_PIECE, size - start))


def _lines(db: sqlite3.Connection, stream: int) -> Iterator[bytes]:
    """Events and broken lines, in the order of the stream."""
    said = db.execute("SELECT pos, kind, t, data FROM event WHERE stream = ? ORDER BY pos", (stream,))
    broken = db.execute(
        "SELECT pos, why, length, head FROM broken WHERE stream = ? ORDER BY pos", (stream,)
    ).fetchall()
    events = ((pos, _event(kind, t, data)) for pos, kind, t, data in said)
    for pos, line in heapq.merge(events, ((pos, _broken(*row)) for pos, *row in broken)):
        yield f'{{"pos":{pos},{line}}}\n'.encode()


def _event(kind: str, t: float, data: str) -> str:
    # An unknown one is stored whole, as it came.
    event = data if kind == "unknown" else f'{{"v":1,"t":{t!r},"type":{json.dumps(kind)},"data":{data}}}'
    # A script may have logged a bare NaN, which is no JSON: other programs see a text in its place.
    return f'"event":{event if _is_strict(data) else json.dumps(event)}'


def _is_strict(text: str) -> bool:
    if "NaN" not in text and "Infinity" not in text:
        return True
    try:
        json.loads(text, parse_constant=_refuse)
    except ValueError:
        return False
    return True


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _broken(why: str, length: int, head: bytes) -> str:
    # A character for each byte, so that what was text can be read.
    row = {"broken": why, "bytes": length, "head": head.decode("latin-1")}
    return json.dumps(row, separators=(",", ":"))[1:-1]


def _table(db: sqlite3.Connection, stream: int) -> Iterator[bytes]:
    """The points of a stream, one a line."""
    yield HEADER.encode()
    for name, series in points.pieces(db, stream):
        cell = _cell(name)
        values = map(repr, series.values)
        if not math.isfinite(sum(series.values)):
            values = map(_word, series.values)
        steps = ("" if step is None else step for step in series.steps)
        rows = zip(steps, series.times, values, strict=True)
        yield "".join([f"{cell},{step},{t!r},{value}\n" for step, t, value in rows]).encode()


def _word(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _cell(text: str) -> str:
    if any(char in text for char in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
