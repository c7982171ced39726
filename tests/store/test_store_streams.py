"""Bytes in: exactly once, however a stream is cut, whoever brings the pieces, whatever is in them."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.store import CursorGap, NoSuchRun, Store, UnsafeName, events
from tests.store.world import EVENTS, line, metric, new_run, state

# What a script can make of a line: good ones, and all kinds of bad ones.
_names = st.sampled_from(["loss", "acc", "x" * 10_000, "", "\ud800", "\\ud800", "a\x00b", "caf\u00e9", "NaN"])
_numbers = st.one_of(
    st.floats(allow_nan=False),
    st.integers(),
    st.sampled_from(["NaN", "Infinity", "-Infinity", 10**400, -0.0, 1e308]),
)
_steps = st.one_of(
    st.none(), st.integers(-5, 100), st.sampled_from([2**63 - 1, -(2**63), 2**63, 1.5, "7", True])
)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
_lines = st.one_of(
    st.builds(
        lambda step, values: line("metrics", {"step": step, "values": values}),
        _steps,
        st.dictionaries(_names, _numbers, max_size=3),
    ),
    st.builds(metric, st.integers(0, 9), loss=st.floats(0, 1)),
    st.builds(
        lambda kind, data, t, v: line(kind, data, t, v=v),
        st.sampled_from(["opened", "params", "tags", "table", "image", "text", "state", "metrics", "new"]),
        st.one_of(_json, st.fixed_dictionaries({"values": st.dictionaries(_names, _json, max_size=2)})),
        st.one_of(st.floats(), st.integers(), st.none()),
        st.sampled_from([1, 1, 1, 2, 1.0, "1", None]),
    ),
    st.binary(max_size=20).map(lambda junk: junk.replace(b"\n", b" ") + b"\n"),
    st.sampled_from(
        [
            b"\n",
            b"{}\n",
            b"1,2\n",
            b'{"a":1\n',
            b'"b":2}\n',
            metric(1, loss=1.0).rstrip() + b"," + metric(2, loss=2.0),
            b'{"v":1,"t":1,"type":"x","data":[{}\n',
            b"{}]}\n",
            b"[" * 100_000 + b"\n",
            b'{"v":1,"t":1,"type":"x","data":' + b"[" * 101 + b"]" * 101 + b"}\n",
            b'{"v":1,"t":1,"type":"x","data":' + b"9" * 5000 + b"}\n",
            b" " + metric(3, loss=3.0),
            metric(4, loss=4.0).rstrip() + b"\r\n",
            b"\xef\xbb\xbf" + metric(5, loss=5.0),
            b'{"v":1,"t":1e999,"type":"metrics","data":{"step":1,"values":{"loss":1}}}\n',
            b'{"v":1,"t":1,"type":"metrics","data":{"values":{"loss":1,"acc":NaN}}}\n',
            '{"v":1,"t":1,"type":"text","data":{"name":"\u2028\x85","value":"\u00e9"}}\n'.encode(),
        ]
    ),
)
_quiet = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@_quiet
@given(st.lists(_lines, max_size=12).map(b"".join), st.lists(st.integers(0, 4000), max_size=8))
def test_a_log_read_in_any_pieces_stores_the_same_events(stream: bytes, cuts: list[int]) -> None:
    def follow(store: Store, run_id: str, until: list[int]) -> dict[str, Any]:
        cursor = 0
        for end in until:
            # As a follower does: from the cursor on, what there is by now.
            cursor = store.ingest(run_id, 1, EVENTS, cursor, stream[cursor : max(end, cursor)])
        assert cursor == len(stream)
        return store.export_state(run_id)

    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        at_once = follow(store, new_run(store), [len(stream)])
        in_pieces = follow(store, new_run(store), [*sorted(cuts), len(stream)])

    assert {**at_once, "spec": 0} == {**in_pieces, "spec": 0}
    json.dumps(at_once)


@_quiet
@given(st.lists(_lines, max_size=12))
def test_one_bad_line_hides_no_other(lines: list[bytes]) -> None:
    together = events.parse(b"".join(lines), 0)

    alone = [events.parse(line, sum(map(len, lines[:n]))) for n, line in enumerate(lines)]
    assert together.broken == [broken for batch in alone for broken in batch.broken]
    assert repr(together.events) == repr([event for batch in alone for event in batch.events])
    for name, series in together.points.items():
        values = [value for batch in alone if name in batch.points for value in batch.points[name].values]
        assert repr(series.values) == repr(values)
    assert sum(len(b.points) for b in alone) == 0 or together.points


@_quiet
@given(
    st.lists(st.one_of(_lines, st.builds(metric, st.integers(0, 9), loss=st.floats(0, 1))), max_size=10).map(
        b"".join
    ),
    st.lists(st.tuples(st.booleans(), st.integers(0, 4000), st.integers(0, 4000)), max_size=20),
    st.sampled_from([EVENTS, "log.script"]),
)
def test_two_followers_in_any_order_store_everything_once(
    stream: bytes, turns: list[tuple[bool, int, int]], name: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with Store.open(home) as first, Store.open(home) as second:
            alone, shared = new_run(first), new_run(first)
            first.ingest(alone, 1, name, 0, stream)
            # Each follower has read to a cursor of its own, which the other one has passed meanwhile.
            for which, start, length in turns:
                store = first if which else second
                cursor = store.cursors(shared).get(f"1/{name}", 0)
                begin = min(start, cursor)
                store.ingest(shared, 1, name, begin, stream[begin : begin + length])
            second.ingest(shared, 1, name, 0, stream)

            assert {**first.export_state(alone), "spec": 0} == {**second.export_state(shared), "spec": 0}


def test_a_piece_that_was_stored_already_changes_nothing(store: Store, run_id: str) -> None:
    stream = metric(1, loss=0.5) + metric(2, loss=0.25)
    assert store.ingest(run_id, 1, EVENTS, 0, stream) == len(stream)

    assert store.ingest(run_id, 1, EVENTS, 0, stream) == len(stream)
    assert store.ingest(run_id, 1, EVENTS, 0, stream[:10]) == len(stream)
    assert store.ingest(run_id, 1, EVENTS, 3, b"") == len(stream)

    assert store.metrics(run_id)["loss"].values == [0.5, 0.25]


def test_missing_bytes_are_asked_for(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, "log.script", 0, b"hello")

    with pytest.raises(CursorGap) as caught:
        store.ingest_many(run_id, [(1, "log.environment", 0, b"x"), (1, "log.script", 6, b"!")])

    assert (caught.value.cursor, caught.value.offset) == (5, 6)
    assert store.cursors(run_id) == {"1/log.script": 5}


def test_a_piece_may_follow_another_of_its_stream_in_the_same_step(store: Store, run_id: str) -> None:
    first, second = metric(1, loss=0.5), metric(2, loss=0.25)

    got = store.ingest_many(
        run_id, [(1, EVENTS, 0, first), (1, "log.script", 0, b"ab"), (1, EVENTS, len(first), second)]
    )

    assert got == [len(first), 2, len(first + second)]
    assert store.metrics(run_id)["loss"].steps == [1, 2]


def test_a_torn_line_waits_and_is_set_aside_at_the_end(store: Store, run_id: str) -> None:
    whole, tail = metric(1, loss=0.5), metric(2, loss=0.25)[:-1]
    cursor = store.ingest(run_id, 1, EVENTS, 0, whole + tail)
    assert cursor == len(whole)
    assert store.broken(run_id) == []

    cursor = store.ingest(run_id, 1, EVENTS, cursor, tail, final=True)

    assert cursor == len(whole + tail)
    assert store.ingest(run_id, 1, EVENTS, 0, whole + tail, final=True) == cursor
    assert [(b.pos, b.length) for b in store.broken(run_id)] == [(len(whole), len(tail))]
    assert store.metrics(run_id)["loss"].values == [0.5]


def test_broken_lines_say_what_is_wrong_with_them(store: Store, run_id: str) -> None:
    store.ingest(
        run_id,
        1,
        EVENTS,
        0,
        b"".join(
            [
                b"\xff\n",
                b"{\n",
                b"3\n",
                line("metrics", {"step": "a", "values": {"x": 1}}),
                line("metrics", {"step": 1, "values": {"x": True}}),
                line("params", {"values": {"x": [1]}}),
                b'{"v":1,"type":"text","data":{"name":"x"}}\n',
                b"[" * 5000 + b"\n",
            ]
        ),
    )

    assert [b.why for b in store.broken(run_id)] == [
        "it is not UTF-8",
        "it is not JSON",
        "it is not an object",
        "its step is not a whole number",
        "a value in it is not a number",
        "its params are not plain values by name",
        "its time is not a number",
        "it is nested too deeply",
    ]
    assert store.broken(run_id)[0].head == b"\xff"


@pytest.mark.parametrize("piece", [1 << 20, events.LONGEST, 5 * events.LONGEST])
def test_an_endless_line_is_set_aside_in_pieces_however_it_comes(
    store: Store, run_id: str, piece: int
) -> None:
    before, after = metric(1, loss=0.5), metric(2, loss=0.25)
    stream = before + b"x" * (2 * events.LONGEST + 7) + b"\n" + after

    cursor, waiting = 0, 0
    while cursor < len(stream):
        waiting += piece
        cursor = store.ingest(run_id, 1, EVENTS, cursor, stream[cursor:waiting])
        assert min(waiting, len(stream)) - cursor < events.LONGEST, "somebody has to hold all of this"

    assert [(b.pos - len(before), b.length) for b in store.broken(run_id)] == [
        (0, events.LONGEST),
        (events.LONGEST, events.LONGEST),
        (2 * events.LONGEST, 8),
    ]
    assert store.metrics(run_id)["loss"].values == [0.5, 0.25]


def test_lines_that_are_whole_only_together_are_broken(store: Store, run_id: str) -> None:
    two = metric(1, loss=1.0).rstrip()
    lines = [
        two + b"," + two,
        two + b" " + two,
        two + b"]",
        b'{"v":1,"t":1,"type":"x","data":[{}',
        b"{}]}",
        b"1,2",
    ]
    stream = b"\n".join([*lines, two, b""])

    store.ingest(run_id, 1, EVENTS, 0, stream)
    alone = [len(events.parse(line + b"\n", 0).broken) for line in lines]

    assert alone == [1] * len(lines)
    assert [b.head for b in store.broken(run_id)] == lines
    assert store.metrics(run_id)["loss"].values == [1.0]


def test_what_the_script_said_can_be_asked_for(store: Store, run_id: str) -> None:
    said = [
        line("opened", {"host": "h", "pid": 3, "rank": None}),
        line("params", {"values": {"lr": 0.1, "big": 10**30, "none": None}}),
        line("params", {"values": {"lr": 0.2}}),
        line("tags", {"values": {"stage": "dev"}}),
        line("table", {"name": "conf", "step": 1, "columns": ["a"], "rows": [[1], ["\ud800"]]}),
        line("image", {"name": "cm", "step": None, "stream": "media.0123456789abcdef.png", "bytes": 4}),
        line("text", {"name": "loss", "step": 3, "value": "oops"}),
    ]
    store.ingest(run_id, 1, EVENTS, 0, b"".join(said))

    assert store.params(run_id) == {"lr": 0.2, "big": 10**30, "none": None}
    assert store.tags(run_id) == {"stage": "dev"}
    assert store.tables(run_id)[0].data["rows"] == [[1], ["\ud800"]]
    assert store.images(run_id)[0].data["bytes"] == 4
    assert store.texts(run_id)[0].data == {"name": "loss", "step": 3, "value": "oops"}
    assert store.processes(run_id)[0].data["pid"] == 3


def test_a_later_version_of_the_lines_is_kept_and_not_understood(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, EVENTS, 0, line("metrics", {"step": 1, "values": {"loss": 1}}, v=2))

    assert store.metrics(run_id) == {}
    assert store.unknown_events(run_id)[0].data["v"] == 2


def test_points_are_ordered_by_attempt_then_by_opening_then_as_written(store: Store, run_id: str) -> None:
    late = line("opened", {"rank": 1}, t=20.0) + metric(0, loss=3.0) + metric(1, loss=4.0)
    early = line("opened", {"rank": 0}, t=10.0) + metric(0, loss=1.0) + metric(1, loss=2.0)
    store.ingest(run_id, 2, EVENTS, 0, metric(9, t=1.0, loss=9.0))
    store.ingest(run_id, 1, "events.aaaaaaaa.jsonl", 0, late)
    store.ingest(run_id, 1, "events.bbbbbbbb.jsonl", 0, early)

    assert store.metrics(run_id)["loss"].values == [1.0, 2.0, 3.0, 4.0, 9.0]
    assert store.latest([run_id]) == {run_id: {"loss": (9.0, 9)}}


def test_not_a_number_and_the_infinities_survive(store: Store, run_id: str) -> None:
    said = b"".join(metric(None, x=value) for value in ("NaN", "Infinity", "-Infinity", 5e-324, -0.0))
    store.ingest(run_id, 1, EVENTS, 0, said)

    series = store.metrics(run_id)["x"]
    assert list(map(repr, series.values)) == ["nan", "inf", "-inf", "5e-324", "-0.0"]
    assert series.steps == [None] * 5
    store.ingest(run_id, 1, EVENTS, len(said), metric(7, x="NaN"))
    value, step = store.latest([run_id])[run_id]["x"]
    assert (math.isnan(value), step) == (True, 7)


@pytest.mark.parametrize(
    ("attempt", "stream"),
    [
        *[
            (1, name)
            for name in ("../x", "log.a/b", "log", "log.", "Log.x", "log.x\n", "log." + "x" * 81, "log.\x00")
        ],
        *[(1, "a" * 300 + ".x"), (0, "log.x"), (-1, "log.x"), (True, "log.x"), (10**7, "log.x")],
    ],
)
def test_names_from_afar_stay_inside_the_folder(store: Store, run_id: str, attempt: int, stream: str) -> None:
    with pytest.raises(UnsafeName):
        store.ingest(run_id, attempt, stream, 0, b"x")
    with pytest.raises(UnsafeName):
        store.read_log(run_id, attempt, stream, 0, 1)
    with pytest.raises(UnsafeName):
        store.log_path(run_id, attempt, stream)
    assert store.cursors(run_id) == {}


def test_a_link_in_place_of_a_log_is_not_followed(store: Store, run_id: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    path = store.log_path(run_id, 1, "log.script")
    path.parent.mkdir(parents=True)
    path.symlink_to(victim)

    with pytest.raises(Exception, match="failed"):
        store.ingest(run_id, 1, "log.script", 0, b"x")

    assert victim.read_bytes() == b"precious"
    assert store.cursors(run_id) == {}


def test_streams_of_no_known_kind_are_kept_as_bytes(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, "core.dump", 0, b"\x00\xff")

    assert store.log_streams(run_id) == [(1, "core.dump")]
    assert store.read_log(run_id, 1, "core.dump", 0, 9) == b"\x00\xff"


def test_there_is_nothing_to_ask_of_a_run_that_is_not_there(store: Store) -> None:
    for question in (
        store.cursors,
        store.params,
        store.metrics,
        store.log_streams,
        store.export_state,
        store.remove,
    ):
        with pytest.raises(NoSuchRun):
            question("aaaaaaaaaa")


def test_the_runners_metrics_count_too(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, "state.jsonl", 0, state("running") + metric(1, loss=2.0))

    assert store.metrics(run_id)["loss"].values == [2.0]
