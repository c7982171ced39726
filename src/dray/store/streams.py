"""Where the reading of each stream stands, and what its next bytes change: exactly once, whoever brings them.

Read `ingest` first. Bytes and cursor are stored in one transaction; what another follower has stored meanwhile is cut off.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from dray.store import events, newest, points, progress
from dray.store.database import Database
from dray.store.errors import CursorGap, UnsafeName
from dray.store.logs import Logs

STATE_STREAM = "state.jsonl"
TELEMETRY_STREAM = "telemetry.jsonl"

_NAME = re.compile(r"[a-z]+\.[A-Za-z0-9_.-]{1,80}")
_LONGEST = 200  # a file name may have 255 bytes
_MOST_ATTEMPTS = 1_000_000


class Shared(NamedTuple):
    """`size` bytes of a log that need not come as bytes: `path` is its file on this very machine, and only grows."""

    path: str
    size: int


Piece = tuple[int, str, int, bytes | Shared]
"""Attempt, stream, offset, bytes."""


class _Prepared(NamedTuple):
    """A piece from a certain cursor on, read but not stored."""

    cursor: int
    after: int
    raw: bytes
    batch: events.Batch | None


def ingest(db: Database, logs: Logs, run_id: str, pieces: Sequence[Piece], *, final: bool) -> list[int]:
    """Store `pieces` in one transaction; the cursor of each one's stream after it. Safe to repeat.

    Of an event stream only what is `decided` is taken: put what is left in front of the next piece. With `final` a last line
    without newline is set aside, because nobody will end it.
    """
    for attempt, name, offset, _ in pieces:
        check_stream(attempt, name)
        if type(offset) is not int or offset < 0:
            raise UnsafeName("place in a stream", repr(offset))
    pieces = [(*piece[:3], _at_hand(logs, run_id, piece)) for piece in pieces]
    with db.reading() as connection:
        run = progress.number(connection, run_id)
        seen = {(attempt, name): cursor for attempt, name, cursor in _cursors(connection, run)}
    prepared = []
    # Reading lines is the work, so it is done before the lock is taken; if another follower is faster, done again.
    for piece in pieces:
        ready = _prepare(piece, seen.get(piece[:2], 0), final)
        prepared.append(ready)
        if ready is not None:
            seen[piece[:2]] = ready.after
    with db.writing() as connection:
        run = progress.number(connection, run_id)
        return [
            _store(connection, logs, run, run_id, piece, ready, final)
            for piece, ready in zip(pieces, prepared, strict=True)
        ]


def check_stream(attempt: int, name: str) -> None:
    """Refuse what must not become a path: names come from machines that we do not control."""
    if type(attempt) is not int or not 1 <= attempt <= _MOST_ATTEMPTS:
        raise UnsafeName("number of an attempt", repr(attempt))
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise UnsafeName("name of a stream", name)


def holds_events(name: str) -> bool:
    """True for streams of lines; the bytes of all others are kept as files."""
    return name.endswith(".jsonl") and not name.startswith(("log.", "media."))


def kinds_of(name: str) -> frozenset[str]:
    """What the lines of that stream may be."""
    known = {STATE_STREAM: events.RUNNER_KINDS, TELEMETRY_STREAM: events.TELEMETRY_KINDS}
    return known.get(name, events.SCRIPT_KINDS)


def cursors(db: Database, logs: Logs, run_id: str) -> dict[str, int]:
    """`{"1/log.script": offset}`: from where each stream is to be read on.

    If a log file is shorter than we believe (a power cut; a hand that deleted it), its cursor goes back to what is there.
    """
    with db.reading() as connection:
        run = progress.number(connection, run_id)
        found = _cursors(connection, run)
    short = [row for row in found if not holds_events(row[1]) and logs.size(run_id, *row[:2]) < row[2]]
    if short and db.writable:
        with db.writing() as connection:
            run = progress.number(connection, run_id)
            for attempt, name, _ in short:
                connection.execute(
                    'UPDATE stream SET "offset" = min("offset", ?) WHERE run = ? AND attempt = ? AND name = ?',
                    (logs.size(run_id, attempt, name), run, attempt, name),
                )
            connection.execute("UPDATE run SET complete = 0 WHERE nr = ? AND imported IS NULL", (run,))
            found = _cursors(connection, run)
    return {f"{attempt}/{name}": cursor for attempt, name, cursor in found}


def size(db: Database, logs: Logs, run_id: str, attempt: int, name: str) -> int:
    """How many bytes of a `log.*` or `media.*` stream are here."""
    check_stream(attempt, name)
    with db.reading() as connection:
        row = _row(connection, progress.number(connection, run_id), attempt, name)
    if row is None or logs.size(run_id, attempt, name) >= row[1]:
        return row[1] if row else 0
    cursors(db, logs, run_id)  # puts the cursor right, so that the next follow brings what is missing
    return logs.size(run_id, attempt, name)


def _cursors(connection: sqlite3.Connection, run: int) -> list[tuple[int, str, int]]:
    query = 'SELECT attempt, name, "offset" FROM stream WHERE run = ? ORDER BY attempt, name'
    return connection.execute(query, (run,)).fetchall()


def _row(connection: sqlite3.Connection, run: int, attempt: int, name: str) -> tuple[int, int] | None:
    query = 'SELECT nr, "offset" FROM stream WHERE run = ? AND attempt = ? AND name = ?'
    row: tuple[int, int] | None = connection.execute(query, (run, attempt, name)).fetchone()
    return row


def _at_hand(logs: Logs, run_id: str, piece: Piece) -> bytes | Shared:
    """The piece's content: shared where the file system can, its bytes otherwise."""
    attempt, name, offset, chunk = piece
    if not isinstance(chunk, Shared):
        return chunk
    if not holds_events(name) and logs.share(run_id, attempt, name, chunk.path):
        return chunk
    with open(chunk.path, "rb") as file:
        file.seek(offset)
        return file.read(chunk.size)


def _prepare(piece: Piece, cursor: int, final: bool) -> _Prepared | None:
    """What `piece` adds behind `cursor`; None when there are bytes missing between the two."""
    _, name, offset, chunk = piece
    if offset > cursor:
        return None
    if isinstance(chunk, Shared):
        return _Prepared(cursor, max(cursor, offset + chunk.size), b"", None)
    fresh = chunk[cursor - offset :]
    if not holds_events(name):
        return _Prepared(cursor, cursor + len(fresh), fresh, None)
    whole = fresh[: events.decided(fresh)]
    tail = fresh[len(whole) :]
    if not whole and not (final and tail):
        return _Prepared(cursor, cursor, b"", None)
    batch = events.parse(whole, cursor, kinds_of(name))
    if final and tail:
        batch.broken.append(events.torn(tail, cursor + len(whole)))
        whole = fresh
    return _Prepared(cursor, cursor + len(whole), b"", batch)


def _store(
    connection: sqlite3.Connection,
    logs: Logs,
    run: int,
    run_id: str,
    piece: Piece,
    ready: _Prepared | None,
    final: bool,
) -> int:
    attempt, name, offset, _ = piece
    row = _row(connection, run, attempt, name)
    cursor = row[1] if row else 0
    if ready is None or ready.cursor != cursor:
        ready = _prepare(piece, cursor, final)
        if ready is None:
            raise CursorGap(run_id, f"{attempt}/{name}", cursor, offset)
    if ready.after == cursor:
        return cursor
    if row is None:
        made = connection.execute(
            'INSERT INTO stream (run, attempt, name, "offset") VALUES (?, ?, ?, ?)',
            (run, attempt, name, ready.after),
        )
        stream = made.lastrowid or 0
    else:
        stream = row[0]
        connection.execute('UPDATE stream SET "offset" = ? WHERE nr = ?', (ready.after, stream))
    if ready.batch is None and not ready.raw:
        return ready.after  # the file is shared: its bytes are there already
    if ready.batch is None:
        logs.write(run_id, attempt, name, cursor, ready.raw)
    else:
        _store_batch(connection, run, stream, ready.batch)
        if name == STATE_STREAM:
            progress.heard(connection, run, attempt, ready.batch.events)
    return ready.after


def _store_batch(connection: sqlite3.Connection, run: int, stream: int, batch: events.Batch) -> None:
    if batch.opened is not None:
        query = "UPDATE stream SET opened = ? WHERE nr = ? AND opened IS NULL"
        connection.execute(query, (batch.opened, stream))
    for name, series in batch.points.items():
        span = points.append(connection, run, stream, name, series)
        newest.measured(connection, run, stream, name, span, series)
    connection.executemany(
        "INSERT INTO event (stream, pos, run, kind, t, data) VALUES (?, ?, ?, ?, ?, ?)",
        [(stream, e.pos, run, e.kind, e.t, json.dumps(e.data, separators=(",", ":"))) for e in batch.events],
    )
    newest.said(connection, run, stream, batch.events)
    connection.executemany(
        "INSERT INTO broken (stream, pos, run, length, why, head) VALUES (?, ?, ?, ?, ?, ?)",
        [(stream, b.pos, run, b.length, b.why, b.head) for b in batch.broken],
    )
