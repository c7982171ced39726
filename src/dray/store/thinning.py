"""A metric of many points, thinned for a drawing: rows of neighbours become one, with the least and the greatest of them.

Read `thin` first. Nothing is left out of the envelope, so a single spike in a million points is seen. Where a row stands for
about a block or more, blocks are taken whole, and what is stored beside them says all that is needed; otherwise their
values are unpacked. Times are unpacked only when asked for.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dray.store import points

_COARSE = points.FULL // 2
_NAN = math.nan


class Thinned(NamedTuple):
    """Columns of the same length; each row stands for one point, or for several that follow each other in one stream."""

    steps: list[int | None]
    """Of the last point of each row."""
    times: list[float]
    """Of the last point of each row; empty unless asked for."""
    values: list[float]
    """The mean; not-a-number only where there is nothing else."""
    lows: list[float]
    highs: list[float]
    points: int
    """So many there are in the range."""
    sizes: list[int]
    """How many of them each row stands for."""


class _Block(NamedTuple):
    """A block of which some points are wanted; its values and times are still packed."""

    key: int
    series: int
    n: int
    low: float | None
    high: float | None
    total: float | None
    """None when not-a-number is among the values, or an older dray stored them."""
    encoding: int
    steps: Sequence[int | None]
    inside: Sequence[int]
    """Which points are wanted, by their place in the block."""


class _Sum(NamedTuple):
    """Some points that follow each other, as one."""

    points: int
    numbers: int
    total: float
    low: float
    high: float
    block: _Block
    last: int
    """Place of the last of them in `block`, the last block they reach into."""


def thin(
    db: sqlite3.Connection,
    run: int,
    name: str,
    wanted: int,
    low: float | None,
    high: float | None,
    times: bool,
) -> Thinned:
    """The metric in about `wanted` rows."""

    def column(which: str, block: _Block) -> list[float]:
        (packed,) = db.execute(f"SELECT {which} FROM block WHERE rowid = ?", (block.key,)).fetchone()  # noqa: S608 - ours
        return points.unpack_floats(block.encoding, packed)

    blocks = list(
        _blocks(db, run, name, -math.inf if low is None else low, math.inf if high is None else high)
    )
    count = sum(len(block.inside) for block in blocks)
    size = max(1, -(-count // max(wanted, 1)))
    if size >= _COARSE:
        rows = list(_joined((_whole(block, column) for block in blocks), size))
    else:
        rows = list(_pieces(blocks, size, column))
    return Thinned(
        [row.block.steps[row.last] for row in rows],
        list(_times(rows, column)) if times else [],
        [row.total / row.numbers if row.numbers else _NAN for row in rows],
        [row.low for row in rows],
        [row.high for row in rows],
        count,
        [row.points for row in rows],
    )


def _blocks(db: sqlite3.Connection, run: int, name: str, low: float, high: float) -> Iterator[_Block]:
    """Blocks with points between the two steps, in order. A point without a step lies where it was counted."""
    rows = db.execute(
        """SELECT block.rowid, block.series, block.n, block.low, block.high, total, encoding, steps, "first"
        FROM series JOIN stream ON stream.nr = series.stream JOIN block ON block.series = series.nr
        WHERE series.run = ? AND series.name = ? ORDER BY stream.attempt, stream.opened, stream.name, "first" """,
        (run, name),
    )
    for key, series, n, least, most, total, encoding, packed, first in rows:
        steps = points.unpack_steps(encoding, n, packed)
        inside: Sequence[int] = range(n)
        if low > -math.inf or high < math.inf:
            inside = [
                p for p, step in enumerate(steps) if low <= (first + p if step is None else step) <= high
            ]
        if inside:
            yield _Block(key, series, n, least, most, total, encoding, steps, inside)


_Column = Callable[[str, _Block], list[float]]


def _whole(block: _Block, column: _Column) -> _Sum:
    """All wanted points of a block as one."""
    if len(block.inside) == block.n and block.total is not None:
        assert block.low is not None
        assert block.high is not None
        return _Sum(block.n, block.n, block.total, block.low, block.high, block, block.n - 1)
    values = column('"values"', block)
    return _summed([values[place] for place in block.inside], block, block.inside[-1])


def _pieces(blocks: Iterable[_Block], size: int, column: _Column) -> Iterator[_Sum]:
    """Each `size` points of a stream as one."""
    waiting: list[float] = []
    before: _Block | None = None
    for block in blocks:
        if waiting and before and before.series != block.series:
            yield _summed(waiting, before, before.inside[-1])
            waiting = []
        values = column('"values"', block)
        if len(block.inside) < block.n:
            values = [values[place] for place in block.inside]
        end = 0
        while end < len(values):
            start, end = end, min(end + size - len(waiting), len(values))
            waiting = waiting + values[start:end] if waiting else values[start:end]
            if len(waiting) == size:
                yield _summed(waiting, block, block.inside[end - 1])
                waiting = []
        before = block
    if waiting and before:
        yield _summed(waiting, before, before.inside[-1])


def _joined(sums: Iterable[_Sum], size: int) -> Iterator[_Sum]:
    """Neighbours of a stream together, as many as come nearest to `size` points."""
    row: _Sum | None = None
    for one in sums:
        if row is None:
            row = one
        elif row.points + one.points / 2 >= size or row.block.series != one.block.series:
            yield row
            row = one
        else:
            row = _both(row, one)
    if row is not None:
        yield row


def _both(one: _Sum, other: _Sum) -> _Sum:
    if not one.numbers or not other.numbers:  # the span of nothing is not-a-number
        some = other if other.numbers else one
        return some._replace(points=one.points + other.points, block=other.block, last=other.last)
    return _Sum(
        one.points + other.points,
        one.numbers + other.numbers,
        one.total + other.total,
        min(one.low, other.low),
        max(one.high, other.high),
        other.block,
        other.last,
    )


def _summed(values: list[float], block: _Block, last: int) -> _Sum:
    count, total = len(values), sum(values)
    if total != total:  # not-a-number is among them, or both infinities
        values = [value for value in values if value == value]
        total = sum(values)
    if not values:
        return _Sum(count, 0, 0.0, _NAN, _NAN, block, last)
    return _Sum(count, len(values), total, min(values), max(values), block, last)


def _times(rows: Iterable[_Sum], column: _Column) -> Iterator[float]:
    """When the last point of each row was logged; each block is unpacked once."""
    key, times = -1, [_NAN]
    for row in rows:
        if row.block.key != key:
            key, times = row.block.key, column("times", row.block)
        yield times[row.last]
