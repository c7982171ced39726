"""A run as plain files and back is the same run, whatever its script has said; and files that lie are refused."""

from __future__ import annotations

import csv
import io
import json
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.core.where import parse, parse_columns
from dray.store import RunExists, Store, from_files
from dray.store.from_files import Misfit
from dray.store.points import FULL
from tests.store.world import EVENTS, ending, line, metric, new_run, state

_names = st.sampled_from(
    [
        "loss",
        "val/loss",
        "a,b",
        'with "quotes"',
        "two\nlines",
        "\r",
        " lead",
        "",
        "é",
        "\x00",
        "\ud800",
        "NaN",
    ]
)
_numbers = st.one_of(
    st.floats(), st.sampled_from([-0.0, 5e-324, 1e308, 2**53 + 1, -(10**30), "NaN", "Infinity", "-Infinity"])
)
_steps = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
_times = st.floats(-1e12, 1e12)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.just(10**400), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
_values = st.one_of(st.none(), st.booleans(), st.floats(), st.just(10**400), st.text(max_size=8))
_lines = st.one_of(
    st.builds(
        lambda step, t, values: line("metrics", {"step": step, "values": values}, t),
        _steps, _times, st.dictionaries(_names, _numbers, max_size=3),
    ),
    st.builds(lambda v, t: line("params", {"values": v}, t), st.dictionaries(_names, _values, max_size=3), _times),
    st.builds(lambda v: line("tags", {"values": v}), st.dictionaries(_names, st.text(max_size=5), max_size=3)),
    st.builds(
        lambda name, rows: line("table", {"name": name, "step": None, "columns": ["a"], "rows": rows}),
        _names, st.lists(st.lists(_json, max_size=2), max_size=2),
    ),
    st.builds(lambda name, value: line("text", {"name": name, "step": 3, "value": value}), _names, st.text(max_size=9)),
    st.builds(lambda data: line("from-the-future", data), st.dictionaries(st.text(max_size=3), _json, max_size=2)),
    st.builds(lambda data: data.replace(b"\n", b"") + b"\n", st.binary(max_size=20)),
)  # fmt: skip
_runs = st.fixed_dictionaries(
    {
        "name": st.one_of(st.none(), st.text(max_size=5)),
        "created": st.floats(1, 4e9),
        "tags": st.dictionaries(_names, st.text(max_size=5), max_size=2),
        "env": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    }
)
_streams = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["events.a.jsonl", "events.b.jsonl", "state.jsonl"]),
              st.lists(_lines, max_size=8), st.binary(max_size=10)),
    max_size=5,
)  # fmt: skip
_edits = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.text(max_size=4),
            "note": st.text(max_size=4),
            "tags": st.dictionaries(_names, st.one_of(st.none(), st.text(max_size=3)), max_size=2),
        },
    ),
    max_size=3,
)


def _make(store: Store, made: dict[str, Any], said: list[Any], edits: list[Any], log: bytes) -> str:
    run_id = new_run(store, command=("train.py", "--lr", "0.1"), **made)
    for attempt, name, lines, tail in said:
        cursor = store.cursors(run_id).get(f"{attempt}/{name}", 0)
        store.ingest(run_id, attempt, name, cursor, b"".join(lines) + tail, final=True)
    store.ingest(run_id, 1, "log.script", 0, log)
    store.ingest(run_id, 1, "media.0123456789abcdef.png", 0, b"\x89PNG" + log)
    store.ingest(
        run_id, 3, "state.jsonl", store.cursors(run_id).get("3/state.jsonl", 0), state("running", pid=7)
    )
    store.end(run_id, 3, ending("failed", 3, "exit-code"), complete=True)
    for edit in edits:
        store.edit(run_id, **edit)
    return run_id


def files_of(store: Store, run_id: str) -> dict[str, bytes]:
    """The run as plain files."""
    found: dict[str, bytes] = {}

    def put(path: str, content: Iterator[bytes]) -> None:
        found[path] = b"".join(content)

    store.write_files(run_id, put)
    return found


def read(files: dict[str, bytes]) -> Any:
    """Those files, checked and read."""
    return from_files.read(
        {path: len(data) for path, data in files.items()}, lambda path: io.BytesIO(files[path])
    )


def bring(store: Store, files: dict[str, bytes]) -> str:
    """Import them."""
    whole = read(files)
    place = store.home / "imported" / ".new"
    for path, data in files.items():
        place.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        place.joinpath(path).write_bytes(data)
    store.import_run(whole, place, 5.0)
    return str(whole.id)


def known(store: Store, run_id: str) -> str:
    """All of a run, what was said afterwards and what lists and plots show included; as text, so that -0.0 is not 0.0."""
    record = store.run(run_id)
    names = sorted(store.metrics(run_id))
    fields = parse_columns("name,note,params.lr,tags.stage,metrics.loss,metrics.loss.min,metrics.loss.max")
    return repr(
        {
            "state": store.export_state(run_id),
            "record": record._replace(imported=None, as_of=None, spec_json=""),
            "edits": store.edits(run_id),
            "tags": (store.tags(run_id), store.said_tags(run_id)),
            "columns": store.columns([run_id], fields),
            "latest": store.latest([run_id]),
            "thinned": [store.thinned(run_id, name, n, times=True) for name in names for n in (2, 100)],
        }
    )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(_runs, _streams, _edits, st.binary(max_size=50), st.booleans())
def test_a_run_as_files_and_back_is_the_same(
    made: dict[str, Any], said: list[Any], edits: list[Any], log: bytes, crowded: bool
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder, "here")) as here,
        Store.open(Path(folder, "there")) as there,
    ):
        if crowded:
            _make(there, {"created": 7.0, "tags": {"loss": "x"}}, said, edits, b"other")
        run_id = _make(here, made, said, edits, log)
        files = files_of(here, run_id)

        assert bring(there, files) == run_id

        assert known(there, run_id) == known(here, run_id)
        assert there.run(run_id).imported == 5.0
        assert files_of(there, run_id) == files == files_of(here, run_id)
        for path, data in files.items():
            if path.endswith(".json"):
                json.loads(data)
            elif path.endswith("events.a.jsonl"):
                [json.loads(row, parse_constant=pytest.fail) for row in data.splitlines()]


def test_points_are_a_table_that_any_program_reads(store: Store, run_id: str) -> None:
    odd = {"a,b": "NaN"}
    points = [
        metric(1, **{"a,b": -0.0}),
        line("metrics", {"step": None, "values": odd}),
        metric(3, loss=1 / 3),
    ]
    store.ingest(run_id, 1, EVENTS, 0, b"".join(points))
    store.end(run_id, 1, ending(), complete=True)

    table = files_of(store, run_id)["attempts/1/metrics/events.0123abcd.csv"].decode()

    assert list(csv.reader(io.StringIO(table))) == [
        ["name", "step", "time", "value"],
        ["a,b", "1", "1767225600.25", "-0.0"],
        ["a,b", "", "1767225600.25", "NaN"],
        ["loss", "3", "1767225600.25", "0.3333333333333333"],
    ]


def test_a_long_series_comes_back_in_the_blocks_of_a_series_that_came_at_once(
    store: Store, run_id: str, tmp_path: Path
) -> None:
    values = [math.sin(n) for n in range(3 * FULL + 5)]
    store.ingest(
        run_id, 1, EVENTS, 0, b"".join(metric(n, n / 2, loss=value) for n, value in enumerate(values))
    )
    store.end(run_id, 1, ending(), complete=True)

    with Store.open(tmp_path / "there") as there:
        bring(there, files_of(store, run_id))

        assert there.metrics(run_id)["loss"].values == values
        assert known(there, run_id) == known(store, run_id)
        assert there.thinned(run_id, "loss", 3) == store.thinned(run_id, "loss", 3)


def test_a_run_that_is_known_is_not_stored_again_and_keeps_its_files(
    store: Store, run_id: str, tmp_path: Path
) -> None:
    store.ingest(run_id, 1, "log.script", 0, b"hello")
    store.end(run_id, 1, ending(), complete=True)
    files = files_of(store, run_id)
    with Store.open(tmp_path / "there") as there:
        bring(there, files)
        before = known(there, run_id)

        with pytest.raises(RunExists):
            bring(there, files)

        assert known(there, run_id) == before
        assert there.imported_folder(run_id).joinpath("run.json").exists()
        assert there.read_log(run_id, 1, "log.script", 0, 9) == b"hello"


def test_a_removed_run_leaves_no_file_and_may_come_again(store: Store, run_id: str, tmp_path: Path) -> None:
    store.ingest(run_id, 1, "log.script", 0, b"hello")
    store.end(run_id, 1, ending(), complete=True)
    store.edit(run_id, note="good")
    files = files_of(store, run_id)
    with Store.open(tmp_path / "there") as there:
        bring(there, files)
        there.edit(run_id, note="better")
        there.remove(run_id)

        assert not there.imported_folder(run_id).exists()
        assert not there.log_path(run_id, 1, "log.script").exists()
        bring(there, files)
        assert there.run(run_id).note == "good"
        there.replay_edits()
        assert there.run(run_id).note == "good"


def test_imported_runs_are_found_by_what_they_said(store: Store, run_id: str, tmp_path: Path) -> None:
    said = (
        line("params", {"values": {"lr": 0.1}})
        + line("tags", {"values": {"stage": "dev"}})
        + metric(1, loss=0.5)
    )
    store.ingest(run_id, 1, EVENTS, 0, said)
    store.end(run_id, 1, ending(), complete=True)
    store.edit(run_id, name="best")

    with Store.open(tmp_path / "there") as there:
        bring(there, files_of(store, run_id))

        for asked in (
            "metrics.loss < 0.6",
            "params.lr = 0.1",
            "tags.stage = dev",
            "name = best",
            "reason = done",
        ):
            assert [run.id for run in there.runs(where=parse(asked))] == [run_id], asked
        assert there.find("best").id == run_id


@pytest.fixture
def files(store: Store, run_id: str) -> dict[str, bytes]:
    said = line("params", {"values": {"lr": 0.1}}) + metric(1, loss=0.5) + b"broken\n"
    store.ingest_many(run_id, [(1, EVENTS, 0, said), (1, "log.script", 0, b"hello")])
    store.end(run_id, 1, ending(), complete=True)
    store.edit(run_id, name="best")
    return files_of(store, run_id)


TABLE, LINES = "attempts/1/metrics/events.0123abcd.csv", f"attempts/1/streams/{EVENTS}"


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("run.json", b'"v": 1', b'"v": 2'),
        ("run.json", b'"completed"', b'"running"'),
        ("run.json", b'"completed"', b"[" * 500 + b"]" * 500),
        ("run.json", b'"attempts": 1', b'"attempts": 1' + b"0" * 5000),
        ("run.json", b'"exit_code": 0', b'"exit_code": 1' + b"0" * 40),
        ("run.json", b'"ended": 12.5', b'"ended": NaN'),
        ("run.json", b'"ended": 12.5', b'"ended": 1e200'),
        ("run.json", b'"command": [', b'"command": [7,'),
        ("run.json", b'"left_out": []', b'"left_out": [["a"]]'),
        ("run.json", b'"id": "', b'"id": "../'),
        ("run.json", b'"log.script"', b'"log.../../x"'),
        ("run.json", b'"log.script"', b'"log.\\u001b[31m"'),
        ("run.json", b'"bytes": 5', b'"bytes": 4'),
        ("run.json", b'"end": 1', b'"end": 2'),
        ("run.json", b'{\n "v"', b'\xff{ "v"'),
        ("run.json", b'"streams"', b'"rivers"'),
        ("attempts/1/end.json", b'"v"', b'"outputs":{"files":[["a",-1]]},"v"'),
        ("attempts/1/end.json", b'"v"', b'"leftovers":[7],"v"'),
        ("attempts/1/end.json", b"{", b"[{"),
        ("edits.json", b'"name"', b'"shout"'),
        (LINES, b'"pos":0', b'"pos":-1'),
        (LINES, b'"pos":0', b'"pos":1' + b"0" * 18),
        (LINES, b'"pos":', b'"pos":0,"p":'),
        (LINES, b'"values":{', b'"values":{"x":' + b"[" * 200 + b"]" * 200 + b","),
        (LINES, b'"values":{', b'"values":{"x":[],'),
        (LINES, b'"head":"', b'"head":"\\u1234'),
        (TABLE, b"name,step", b"step,name"),
        (TABLE, b"loss,1,", b"loss,"),
        (TABLE, b"loss,1,", b"loss," + b"9" * 30 + b","),
        (TABLE, b"0.5", b"half"),
        (TABLE, b"1767225600.25", b"inf"),
        (TABLE, b"loss", b'"loss'),
        (TABLE, b"loss", b"\xff"),
    ],
)  # fmt: skip
def test_files_that_say_what_they_must_not_are_refused(
    files: dict[str, bytes], path: str, old: bytes, new: bytes
) -> None:
    assert read(files).id
    assert old in files[path]

    with pytest.raises(Misfit) as caught:
        read({**files, path: files[path].replace(old, new)})

    assert caught.value.path == ("attempts/1/streams/log.script" if b'"bytes": 4' in new else path)
    assert caught.value.why


@pytest.mark.parametrize("path", ["run.json", "attempts/1/end.json", "attempts/1/streams/log.script"])
def test_a_file_that_is_missing_is_named(files: dict[str, bytes], path: str) -> None:
    with pytest.raises(Misfit):
        read({name: data for name, data in files.items() if name != path})


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_files_with_any_bytes_changed_are_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        run_id = new_run(store)
        store.ingest(
            run_id, 1, EVENTS, 0, line("params", {"values": {"lr": 0.1}}) + metric(1, loss=0.5) + b"x\n"
        )
        store.end(run_id, 1, ending(), complete=True)
        files = files_of(store, run_id)
        path = data.draw(st.sampled_from(sorted(files)))
        at = data.draw(st.integers(0, len(files[path])))
        cut = data.draw(st.integers(0, 20))
        new = data.draw(
            st.one_of(st.binary(max_size=8), st.sampled_from([b"null", b"[]", b"{}", b"1e999", b'"']))
        )
        files[path] = files[path][:at] + new + files[path][at + cut :]

        try:
            whole = read(files)
        except Misfit:
            return
        with Store.open(Path(folder, "there")) as there:
            there.import_run(whole, _laid_out(there, files), time.time())
            there.export_state(whole.id)
            files_of(there, whole.id)


def _laid_out(store: Store, files: dict[str, bytes]) -> Path:
    place = store.home / "imported" / ".new"
    for path, content in files.items():
        place.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        place.joinpath(path).write_bytes(content)
    return place
