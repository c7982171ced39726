"""A thinned metric shows every spike: each of its rows is the span and the mean of the points that it stands for."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.store import NoSuchRun, Store, newest, points, progress
from dray.store.points import FULL, Series
from dray.store.thinning import Thinned
from tests.store.world import EVENTS, line, metric, new_run


def _put(store: Store, run_id: str, stream: int, series: Series, cuts: list[int]) -> None:
    """Store the points as ingest would, in pieces that end at `cuts`."""
    with store._db.writing() as db:
        run = progress.number(db, run_id)
        row = (stream, run, f"events.{stream}.jsonl", float(stream))
        db.execute(
            'INSERT INTO stream (nr, run, attempt, name, "offset", opened) VALUES (?, ?, 1, ?, 1, ?)', row
        )
        for start, end in zip([0, *cuts], [*cuts, len(series.values)], strict=True):
            if start < end:
                piece = Series(series.steps[start:end], series.times[start:end], series.values[start:end])
                span = points.append(db, run, stream, "loss", piece)
                newest.measured(db, run, stream, "loss", span, piece)


def _check(found: Thinned, whole: Series) -> None:
    """`whole` has the steps 0, 1, 2 ..., so the steps of the rows say where each of them ends."""
    assert found.points == len(whole.values)
    assert len(found.values) == len(found.lows) == len(found.highs) == len(found.steps)
    start, sizes = 0, []
    for step, value, low, high in zip(found.steps, found.values, found.lows, found.highs, strict=True):
        assert step is not None
        end = step - (whole.steps[0] or 0) + 1
        numbers = [number for number in whole.values[start:end] if not math.isnan(number)]
        sizes.append(end - start)
        if numbers:
            assert (low, high) == (min(numbers), max(numbers))
            assert math.isclose(value, sum(numbers) / len(numbers), rel_tol=1e-9, abs_tol=1e-9)
        else:
            assert math.isnan(value) and math.isnan(low) and math.isnan(high)
        start = end
    assert start == len(whole.values)
    assert found.sizes == sizes


_values = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(_values, max_size=400),
    st.integers(1, 500),
    st.integers(-5, 400),
    st.integers(-5, 400),
    st.booleans(),
)
def test_each_row_is_the_span_of_its_points(
    values: list[float], wanted: int, lo: int, hi: int, odd: bool
) -> None:
    count = len(values)
    whole = Series(list(range(count)), [float(n) for n in range(count)], values)
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        run_id = new_run(store)
        _put(store, run_id, 1, whole, [count // 3, count // 2] if odd else [])

        found = store.thinned(run_id, "loss", wanted)
        _check(found, whole)
        assert len(found.values) <= wanted
        if count <= wanted:
            # A sum of -0.0 is 0.0: the sign of zero is not kept, and no drawing shows it.
            assert found.steps == whole.steps and repr(found.values) == repr(
                [value + 0.0 for value in values]
            )

        inside = [n for n in range(count) if lo <= n <= hi]
        part = Series(list(inside), [float(n) for n in inside], [values[n] for n in inside])
        _check(store.thinned(run_id, "loss", wanted, lo, hi), part)


@pytest.mark.parametrize("wanted", [1, 2, 7, 9, 40, 1000, 100_000])
@pytest.mark.parametrize("oldest", [False, True])
def test_many_blocks_are_thinned_to_about_as_many_rows_as_asked_for(
    store: Store, run_id: str, wanted: int, oldest: bool
) -> None:
    count = 9 * FULL + 300
    values = [math.sin(n / 500) if n % 1000 else math.nan for n in range(count)]
    values[3 * FULL : 4 * FULL] = [math.nan] * FULL
    values[5 * FULL : 7 * FULL] = [n / 7 for n in range(2 * FULL)]
    values[6 * FULL + 77] = 1e6
    whole = Series(list(range(count)), [n / 2 for n in range(count)], values)
    _put(store, run_id, 1, whole, [])
    if oldest:  # as layout 1 left it
        with store._db.writing() as db:
            db.execute("UPDATE block SET total = NULL")

    found = store.thinned(run_id, "loss", wanted, times=True)
    part = store.thinned(run_id, "loss", wanted, 1000, 8 * FULL + 50)

    _check(found, whole)
    assert min(wanted, 9) <= len(found.values) <= wanted + 3 or len(found.values) == count
    assert max(high for high in found.highs if high == high) == 1e6
    assert found.times == [(step or 0) / 2 for step in found.steps]
    some = slice(1000, 8 * FULL + 51)
    _check(part, Series(whole.steps[some], whole.times[some], values[some]))
    assert part.times == []


def test_a_row_never_reaches_from_one_stream_into_the_next(store: Store, run_id: str) -> None:
    for stream, value in ((1, 1.0), (2, 2.0)):
        count = 3 * FULL + 100
        _put(store, run_id, stream, Series(list(range(count)), [0.0] * count, [value] * count), [])

    for wanted in (1, 3, 50, 500):
        found = store.thinned(run_id, "loss", wanted)
        assert found.lows == found.highs == found.values == sorted(found.values)
        assert set(found.values) == {1.0, 2.0}


def test_points_without_steps_are_counted(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, EVENTS, 0, b"".join(metric(None, x=float(n)) for n in range(10)))

    values = [3.0, 4.0, 5.0]
    assert store.thinned(run_id, "x", 100, 3, 5) == Thinned(
        [None] * 3, [], values, values, values, 3, [1, 1, 1]
    )
    assert store.thinned(run_id, "x", 2).steps == [None, None]


def test_infinities_and_a_metric_that_is_not_there(store: Store, run_id: str) -> None:
    said = line("opened", {"rank": 0}) + metric(1, x="Infinity") + metric(2, x="-Infinity") + metric(3, x=1.0)
    store.ingest(run_id, 1, EVENTS, 0, said)

    found = store.thinned(run_id, "x", 1)

    assert (found.lows, found.highs, found.points) == ([-math.inf], [math.inf], 3)
    assert store.thinned(run_id, "y") == Thinned([], [], [], [], [], 0, [])
    with pytest.raises(NoSuchRun):
        store.thinned("aaaaaaaaaa", "x")


def test_a_million_points_are_thinned_at_once(store: Store, run_id: str) -> None:
    count = 1_000_000
    _put(store, run_id, 1, Series(list(range(count)), [0.0] * count, [float(n) for n in range(count)]), [])
    begun = time.perf_counter()

    found = store.thinned(run_id, "loss", 300)

    assert time.perf_counter() - begun < 0.2
    assert 240 <= len(found.values) <= 300
    assert (found.lows[0], found.highs[-1]) == (0.0, 999_999.0)
