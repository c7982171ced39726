"""Metric points as blocks: arrays of steps, times and values instead of a row a point.

Read `append` first. Small blocks at the end of a series are merged as it grows, so that a live follow, which brings
a point at a time, ends with the same few blocks as one big read; each point is written a handful of times at most.

A column of a block is bytes, little-endian. `times` and `values` are 64-bit floats, so NaN and infinities are kept as
they are. `steps` begins with a letter: N (all null), A (from, by: one follows the other evenly), I (64-bit integers),
M (a byte a point, 1 where there is a step, then the integers). With encoding 1 all three are shuffled (first bytes
of all numbers, then second bytes ...) and deflated; a full block always is.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

FULL = 4096
SMALL = 64
RAW, PACKED = 0, 1

Span = tuple[float | None, float | None]
"""The least and the greatest value; None where there are none."""

Point = tuple[int | None, float, float]
"""Step, time, value."""


class Series(NamedTuple):
    """The points of one metric, oldest first; three columns of the same length."""

    steps: list[int | None]
    times: list[float]
    values: list[float]

    def extend(self, other: Series) -> None:
        """Put `other` behind."""
        self.steps.extend(other.steps)
        self.times.extend(other.times)
        self.values.extend(other.values)


def append(db: sqlite3.Connection, run: int, stream: int, name: str, fresh: Series) -> Span:
    """Put `fresh` behind what is stored of the metric `name` of `stream`; the span of `fresh`."""
    row = db.execute("SELECT nr, n FROM series WHERE stream = ? AND name = ?", (stream, name)).fetchone()
    if row is None:
        made = db.execute(
            "INSERT INTO series (run, stream, name, n) VALUES (?, ?, ?, 0)", (run, stream, name)
        )
        series, count = made.lastrowid or 0, 0
    else:
        series, count = row
    low, high = span(fresh.values)
    first, points = _with_tail(db, series, count, fresh)
    if first < count:
        db.execute('DELETE FROM block WHERE series = ? AND "first" >= ?', (series, first))
    _write(db, series, first, points)
    # MIN and MAX of several arguments are NULL when one is.
    db.execute(
        "UPDATE series SET n = ?, low = coalesce(min(low, ?), low, ?), high = coalesce(max(high, ?), high, ?),"
        " last_step = ?, last_time = ?, last_value = ? WHERE nr = ?",
        (
            *(count + len(fresh.values), low, low, high, high),
            *(fresh.steps[-1], fresh.times[-1], fresh.values[-1], series),
        ),
    )
    return low, high


class Packed(NamedTuple):
    """A series ready to be stored: the rows of its blocks, and what is asked of it without a look into them."""

    blocks: list[tuple[Any, ...]]
    n: int
    span: Span
    last: Point


def insert(db: sqlite3.Connection, run: int, stream: int, name: str, packed: Packed) -> None:
    """Store a series of which there is nothing yet."""
    made = db.execute(
        "INSERT INTO series (run, stream, name, n, low, high, last_step, last_time, last_value)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run, stream, name, packed.n, *packed.span, *packed.last),
    )
    rows = [(made.lastrowid, *block) for block in packed.blocks]
    db.executemany("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def pieces(db: sqlite3.Connection, stream: int) -> Iterator[tuple[str, Series]]:
    """All points of one stream, a block at a time: by metric, then as they were written."""
    rows = db.execute(
        """SELECT name, block.encoding, block.n, block.steps, block.times, block."values"
        FROM series JOIN block ON block.series = series.nr WHERE stream = ? ORDER BY name, "first" """,
        (stream,),
    )
    return ((name, unpack(*block)) for name, *block in rows)


def read(db: sqlite3.Connection, run: int, names: Iterable[str] | None = None) -> dict[str, Series]:
    """All points of a run by metric, ordered by attempt, then by the stream's opening, then as they were written."""
    found: dict[str, Series] = {}
    wanted = None if names is None else set(names)
    query = """SELECT series.name, block.encoding, block.n, block.steps, block.times, block."values"
        FROM series JOIN stream ON stream.nr = series.stream JOIN block ON block.series = series.nr
        WHERE series.run = ? {} ORDER BY series.name, stream.attempt, stream.opened, stream.name, block."first" """
    if wanted is None or len(wanted) > 100:
        rows = db.execute(query.format(""), (run,))
    else:
        rows = db.execute(query.format(f"AND series.name IN ({','.join('?' * len(wanted))})"), (run, *wanted))
    for name, *block in rows:
        if wanted is None or name in wanted:
            found.setdefault(name, Series([], [], [])).extend(unpack(*block))
    return found


def latest(db: sqlite3.Connection, run: int) -> dict[str, tuple[float, int | None]]:
    """The last point's value and step of each metric of a run."""
    rows = db.execute(
        """SELECT series.name, last_value, last_step FROM series JOIN stream ON stream.nr = series.stream
        WHERE series.run = ? ORDER BY series.name, stream.attempt, stream.opened, stream.name""",
        (run,),
    )
    # A later row of the same name replaces the earlier one. SQLite stores NaN as NULL.
    return {name: (float("nan") if value is None else value, step) for name, value, step in rows}


def span(values: list[float]) -> Span:
    """The least and the greatest, NaN left aside."""
    return summary(values)[:2]


def summary(values: list[float]) -> tuple[float | None, float | None, float | None]:
    """The least, the greatest and the sum; no sum where it would be NaN."""
    total = sum(values)
    if total == total:
        return (min(values), max(values), total) if values else (None, None, None)
    # A NaN is among them, or both infinities: `min` would depend on the order.
    values = [value for value in values if value == value]
    return (min(values), max(values), None) if values else (None, None, None)


def pack(points: Series) -> tuple[int, bytes, bytes, bytes]:
    """Encoding and the three columns."""
    steps, times, values = _pack_steps(points.steps), _bytes("d", points.times), _bytes("d", points.values)
    if len(points.values) < FULL:
        return RAW, steps, times, values
    # The letter in front of the steps stays in front.
    return PACKED, steps[:1] + _deflate(steps[1:]), _deflate(times), _deflate(values)


def unpack(encoding: int, n: int, steps: bytes, times: bytes, values: bytes) -> Series:
    """What `pack` was given."""
    return Series(
        list(unpack_steps(encoding, n, steps)),
        unpack_floats(encoding, times),
        unpack_floats(encoding, values),
    )


def unpack_floats(encoding: int, column: bytes) -> list[float]:
    """The times or the values alone."""
    return _floats(_inflate(column) if encoding == PACKED else column)


def unpack_steps(encoding: int, n: int, column: bytes) -> Sequence[int | None]:
    """The steps alone; those that follow each other evenly cost nothing."""
    kind, body = column[:1], column[1:]
    if encoding == PACKED:
        body = _inflate(body)
    if kind == b"N":
        return [None] * n
    if kind == b"M":
        numbers = _integers(body[n:])
        return [number if there else None for there, number in zip(body[:n], numbers, strict=True)]
    if kind == b"A":
        start, by = _integers(body)
        return [start] * n if by == 0 else range(start, start + by * n, by)
    return _integers(body)


def _with_tail(db: sqlite3.Connection, series: int, count: int, fresh: Series) -> tuple[int, Series]:
    """`fresh` with the last blocks in front that are worth rewriting, and the ordinal where that begins."""
    first, points = count, fresh
    while first:
        n, low, *block = db.execute(
            'SELECT n, "first", encoding, n, steps, times, "values" FROM block WHERE series = ? AND "first" < ?'
            ' ORDER BY "first" DESC LIMIT 1',
            (series, first),
        ).fetchone()
        # Only as much as is new anyway: then a point is rewritten once each time its block doubles.
        if n >= FULL or n > max(len(points.values), SMALL - len(points.values)):
            break
        tail = unpack(*block)
        tail.extend(points)
        first, points = low, tail
    return first, points


def _write(db: sqlite3.Connection, series: int, first: int, points: Series) -> None:
    for start in range(0, len(points.values), FULL):
        piece = Series(*(column[start : start + FULL] for column in points))  # type: ignore[arg-type]  # mixed columns
        row = (series, *block(first + start, piece))
        db.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def block(first: int, piece: Series) -> tuple[Any, ...]:
    """A row of the table of blocks, but for the series it belongs to. `piece` has at most FULL points."""
    low, high, total = summary(piece.values)
    return (first, len(piece.values), low, high, *pack(piece), total)


def _pack_steps(steps: list[int | None]) -> bytes:
    nulls = steps.count(None)
    if nulls == len(steps):
        return b"N"
    if nulls:
        mask = bytes(step is not None for step in steps)
        return b"M" + mask + _bytes("q", [step or 0 for step in steps])
    numbers = [step for step in steps if step is not None]
    by = numbers[1] - numbers[0] if len(numbers) > 1 else 0
    if abs(by) < 2**63 and (numbers == [numbers[0]] * len(numbers) if by == 0 else _is_even(numbers, by)):
        return b"A" + _bytes("q", [numbers[0], by])
    return b"I" + _bytes("q", numbers)


def _is_even(numbers: list[int], by: int) -> bool:
    return numbers == list(range(numbers[0], numbers[0] + by * len(numbers), by))


def _bytes(kind: str, numbers: Iterable[float]) -> bytes:
    packed = array(kind, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _floats(data: bytes) -> list[float]:
    numbers = array("d", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _integers(data: bytes) -> list[int]:
    numbers = array("q", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _deflate(column: bytes) -> bytes:
    import zlib  # a library of its own, which most looks at the history never need

    return zlib.compress(b"".join(column[byte::8] for byte in range(8)), 1)


def _inflate(packed: bytes) -> bytes:
    import zlib

    shuffled = zlib.decompress(packed)
    n = len(shuffled) // 8
    column = bytearray(len(shuffled))
    for byte in range(8):
        column[byte::8] = shuffled[byte * n : (byte + 1) * n]
    return bytes(column)
