"""Metric points: packed without loss, merged as they come, few blocks whatever the pieces."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.store import Store, points
from dray.store.points import FULL, Series
from tests.store.world import EVENTS, metric, new_run

_int64 = st.integers(-(2**63), 2**63 - 1)


def _same(one: Series, other: Series) -> bool:
    """Equal, NaN and the sign of zero included."""
    return repr(one) == repr(other)


@given(st.lists(st.tuples(st.one_of(st.none(), _int64), st.floats(allow_nan=False), st.floats()), min_size=1))
def test_a_block_gives_back_what_was_put_in(rows: list[tuple[int | None, float, float]]) -> None:
    series = Series(*map(list, zip(*rows, strict=True)))

    encoding, *columns = points.pack(series)

    assert _same(points.unpack(encoding, len(rows), *columns), series)


@pytest.mark.parametrize("kind", ["even", "still", "odd", "none", "mixed", "far", "back"])
def test_a_full_block_gives_back_what_was_put_in_and_is_small(kind: str) -> None:
    steps: dict[str, list[int | None]] = {
        "even": list(range(5, 5 + 3 * FULL, 3)),
        "still": [7] * FULL,
        "odd": [n * n for n in range(FULL)],
        "none": [None] * FULL,
        "mixed": [None if n % 3 else n for n in range(FULL)],
        "far": [2**63 - 1 if n % 2 else -(2**63) for n in range(FULL)],
        "back": list(range(FULL, 0, -1)),
    }
    chance = random.Random(1)
    times = [1767225600.0 + n / 100 for n in range(FULL)]
    series = Series(steps[kind], times, [chance.random() for _ in range(FULL)])

    encoding, *columns = points.pack(series)

    assert encoding == points.PACKED
    assert _same(points.unpack(encoding, FULL, *columns), series)
    assert sum(map(len, columns)) < 20 * FULL


@settings(max_examples=20, deadline=None)
@given(st.lists(st.one_of(st.just(1), st.integers(1, 200), st.just(5000)), min_size=1, max_size=40))
def test_pieces_of_any_size_give_the_same_series(sizes: list[int]) -> None:
    import tempfile

    total = sum(sizes)
    whole = Series(list(range(total)), [float(n) for n in range(total)], [n / 3 for n in range(total)])
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder)) as store,
        store._db.writing() as db,
    ):
        db.execute("INSERT INTO stream (nr, run, attempt, name, offset, opened) VALUES (1, 1, 1, 's', 0, 0)")
        first = 0
        for size in sizes:
            piece = Series(*(column[first : first + size] for column in whole))  # type: ignore[arg-type]  # as above
            points.append(db, 1, 1, "loss", piece)
            first += size

        assert _same(points.read(db, 1)["loss"], whole)
        rows = db.execute("SELECT n, low, high FROM series").fetchall()
        blocks = db.execute('SELECT "first", n, low, high FROM block ORDER BY "first"').fetchall()
    assert rows == [(total, 0.0, (total - 1) / 3)]
    assert [(low, high) for _, _, low, high in blocks] == [(f / 3, (f + n - 1) / 3) for f, n, _, _ in blocks]


def test_a_live_follow_makes_few_rows_and_writes_little(store: Store, run_id: str) -> None:
    cursor = 0
    for step in range(3000):
        piece = metric(step, loss=step / 7)
        cursor = store.ingest(run_id, 1, EVENTS, cursor, piece)

    with store._db.reading() as db:
        (blocks,) = db.execute("SELECT count(*) FROM block").fetchone()
    assert blocks <= 8
    assert store.metrics(run_id)["loss"].values == [step / 7 for step in range(3000)]


def test_some_metrics_can_be_asked_for(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, EVENTS, 0, metric(1, a=1.0, b=2.0, c=3.0))

    assert list(store.metrics(run_id)) == ["a", "b", "c"]
    assert list(store.metrics(run_id, ["c", "a", "nothing"])) == ["a", "c"]
    assert list(store.metrics(run_id, [*map(str, range(200)), "b"])) == ["b"]
    assert store.metrics(run_id, []) == {}


def test_the_latest_of_many_runs_is_known(store: Store) -> None:
    ids = [new_run(store) for _ in range(5)]
    for n, run_id in enumerate(ids):
        store.ingest(run_id, 1, EVENTS, 0, metric(1, loss=0.5) + metric(None, loss=n))

    assert store.latest(ids) == {run_id: {"loss": (float(n), None)} for n, run_id in enumerate(ids)}


def test_the_span_leaves_nan_aside() -> None:
    nan, inf = float("nan"), float("inf")

    assert points.span([3.0, nan, 1.0]) == (1.0, 3.0)
    assert points.span([nan]) == (None, None)
    assert points.span([inf, -inf, 0.0]) == (-inf, inf)
