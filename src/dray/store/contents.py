"""What the script and the runner said, apart from metrics and logs; always by attempt, opening of the stream, place in it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple


class Line(NamedTuple):
    """One event and where it came from."""

    attempt: int
    stream: str
    pos: int
    t: float
    data: dict[str, Any]


class BrokenLine(NamedTuple):
    """A line that was set aside, with its first bytes."""

    attempt: int
    stream: str
    pos: int
    length: int
    why: str
    head: bytes


class Edit(NamedTuple):
    """One thing that was said afterwards, the last of its kind."""

    kind: str
    """name, note or tag."""
    key: str
    """The tag's name."""
    value: str | None
    """None for a tag: it was taken away."""
    t: float


def lines(db: sqlite3.Connection, run: int, kind: str) -> Iterator[Line]:
    """All events of a kind."""
    rows = db.execute(
        """SELECT stream.attempt, stream.name, pos, t, data FROM event JOIN stream ON stream.nr = event.stream
        WHERE event.run = ? AND kind = ?
        ORDER BY stream.attempt, stream.opened, stream.name, pos""",
        (run, kind),
    )
    return (Line(attempt, stream, pos, t, json.loads(data)) for attempt, stream, pos, t, data in rows)


def broken(db: sqlite3.Connection, run: int) -> list[BrokenLine]:
    """All lines that were set aside."""
    rows = db.execute(
        """SELECT stream.attempt, stream.name, pos, length, why, head FROM broken
        JOIN stream ON stream.nr = broken.stream WHERE broken.run = ?
        ORDER BY stream.attempt, stream.opened, stream.name, pos""",
        (run,),
    )
    return [BrokenLine(*row) for row in rows]


def last_values(db: sqlite3.Connection, run: int, kind: str) -> dict[str, Any]:
    """Params or tags: of each name the last value, in the order in which the names first came."""
    found: dict[str, Any] = {}
    for line in lines(db, run, kind):
        found.update(line.data["values"])
    return found


def edits(db: sqlite3.Connection, run: int) -> list[Edit]:
    """What was said of a run afterwards, and holds."""
    rows = db.execute("SELECT kind, key, value, t FROM edit WHERE run = ? ORDER BY kind, key", (run,))
    return [Edit(*row) for row in rows]


def file_streams(db: sqlite3.Connection, run: int) -> list[tuple[int, str, int]]:
    """Attempt, name and size of the streams whose bytes are kept as files."""
    rows = db.execute(
        'SELECT attempt, name, "offset" FROM stream WHERE run = ? ORDER BY attempt, name', (run,)
    )
    return rows.fetchall()
