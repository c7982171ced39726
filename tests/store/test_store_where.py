"""Questions over runs: the history gives those runs that a plain Python filter over the same facts gives."""

from __future__ import annotations

import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.core.errors import UnknownName
from dray.core.scalars import number_of, text_of
from dray.core.states import RunState
from dray.core.where import (
    Compare,
    Duration,
    Fact,
    Field,
    OneOf,
    Or,
    Sort,
    Tree,
    holds,
    parse,
    parse_columns,
    parse_sort,
)
from dray.store import NoSuchRun, Store, query
from dray.store.events import plain
from tests.core.expressions import NAMES, NOW, NUMBERS, TEXTS, trees
from tests.store.world import EVENTS, ending, line, metric, new_run

_quiet = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
_names = st.sampled_from(NAMES)
_values = st.one_of(
    st.sampled_from(TEXTS), st.sampled_from(NUMBERS), st.booleans(), st.none(), st.just(10**400)
)
_points = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(["NaN", "Infinity", "-Infinity"]))
_said = st.one_of(
    st.builds(lambda v: line("params", {"values": v}), st.dictionaries(_names, _values, max_size=3)),
    st.builds(
        lambda v: line("tags", {"values": v}), st.dictionaries(_names, st.sampled_from(TEXTS), max_size=3)
    ),
    st.builds(
        lambda v: line("metrics", {"step": 1, "values": v}), st.dictionaries(_names, _points, max_size=3)
    ),
)
_edits = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(TEXTS),
        "note": st.sampled_from(TEXTS),
        "tags": st.dictionaries(_names, st.one_of(st.none(), st.sampled_from(TEXTS)), max_size=2),
    },
)
_times = st.sampled_from((NOW - 1, NOW, NOW - 7200, NOW - 86400.0 * 2, NOW - 123456.789, NOW - 90))
_run = st.fixed_dictionaries(
    {
        "name": st.one_of(st.none(), st.sampled_from(TEXTS)),
        "experiment": st.sampled_from(TEXTS),
        "compute": st.sampled_from(TEXTS),
        "created": _times,
        "tags": st.dictionaries(_names, st.sampled_from(TEXTS), max_size=2),
        "streams": st.lists(
            st.tuples(st.integers(1, 2), st.sampled_from("ab"), _times, st.lists(_said, max_size=4)),
            max_size=3,
        ),
        "end": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {
                    "state": st.sampled_from(("completed", "failed", "canceled")),
                    "reason": st.one_of(
                        st.none(), st.builds(lambda k: {"kind": k}, st.sampled_from((*TEXTS, 5)))
                    ),
                    "code": st.sampled_from((None, 0, 1, -1)),
                    "started": st.one_of(st.none(), _times),
                    "ended": _times,
                    "duration_s": st.sampled_from((None, 0.0, 0.1, 60.0, 90.0, 7200.0)),
                }
            ),
        ),
        "edits": st.lists(_edits, max_size=2),
    }
)


def _make(store: Store, made: dict[str, Any]) -> str:
    fields = {name: made[name] for name in ("name", "experiment", "compute", "created", "tags")}
    run_id = new_run(store, **fields)
    cursors: dict[str, int] = {}
    for place, (attempt, letter, opened, said) in enumerate(made["streams"]):
        if place == 1:
            for edit in made["edits"]:
                store.edit(run_id, **edit)
        stream = f"events.{letter * 8}.jsonl"
        key = f"{attempt}/{stream}"
        piece = line("opened", {"rank": 0}, opened) + b"".join(said)
        cursors[key] = store.ingest(run_id, attempt, stream, cursors.get(key, 0), piece)
    if len(made["streams"]) < 2:
        for edit in made["edits"]:
            store.edit(run_id, **edit)
    if made["end"]:
        store.end(run_id, max((a for a, _, _, _ in made["streams"]), default=1), made["end"])
    return run_id


def _facts(store: Store, run_id: str) -> dict[Field, Fact]:
    """What the run has, by the parts of the store that know nothing of questions."""
    record = store.run(run_id)
    reason = (record.reason or {}).get("kind")
    own = {
        **{
            name: getattr(record, name)
            for name in ("id", "name", "experiment", "compute", "exit_code", "note")
        },
        **{name: getattr(record, name) for name in ("created", "started", "ended")},
        "status": record.status.value,
        "duration": record.duration_s,
        "reason": reason if isinstance(reason, str) else None,
    }
    facts: dict[Field, Fact] = {Field(name): value for name, value in own.items()}
    facts |= {Field("tags", plain(name)): plain(value) for name, value in store.tags(run_id).items()}
    facts |= {Field("params", plain(name)): value for name, value in store.params(run_id).items()}
    for name, series in store.metrics(run_id).items():
        facts[Field("metrics", name, "last")] = series.values[-1]
        numbers = [value for value in series.values if not math.isnan(value)]
        if numbers:
            facts[Field("metrics", name, "min")] = min(numbers)
            facts[Field("metrics", name, "max")] = max(numbers)
    return {field: value for field, value in facts.items() if value is not None}


def _shown(values: dict[Field, Any]) -> dict[str, str]:
    """For comparing, not-a-number included; a zero has no sign in SQLite."""
    return {
        str(field): repr(0.0 if value == 0 and isinstance(value, float) else value)
        for field, value in values.items()
    }


def _asked(store: Store, tree: Tree, now: float) -> set[str]:
    with store._db.reading() as db:
        numbers = query.select(db, [query.where(db, tree, now)], (), None, 0)
        assert query.count(db, [query.where(db, tree, now)]) == len(numbers)
        return {db.execute("SELECT id FROM run WHERE nr = ?", (number,)).fetchone()[0] for number in numbers}


@_quiet
@given(st.lists(_run, max_size=6), st.lists(trees(), min_size=1, max_size=12))
def test_a_question_finds_the_runs_that_a_plain_filter_finds(
    made: list[dict[str, Any]], asked: list[Tree]
) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        facts = {run_id: _facts(store, run_id) for run_id in (_make(store, one) for one in made)}

        for tree in asked:
            expected = {run_id for run_id, known in facts.items() if holds(tree, known, NOW)}
            assert _asked(store, tree, NOW) == expected, str(tree)


@_quiet
@given(st.lists(_run, max_size=6))
def test_each_value_that_a_run_has_finds_it_again(made: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        facts = {run_id: _facts(store, run_id) for run_id in (_make(store, one) for one in made)}

        for run_id, known in facts.items():
            columns = store.columns([run_id], list(known))[run_id]
            assert _shown(columns) == _shown(known)
            for field, value in known.items():
                assert value is not None
                if field.kind not in ("time", "duration") and not (isinstance(value, int) and value > 2**64):
                    assert run_id in _asked(store, Compare(field, "=", value), NOW), (field, value)


@_quiet
@given(st.lists(_run, max_size=6), st.data())
def test_runs_are_sorted_as_a_plain_sort_does_it(made: list[dict[str, Any]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        ids = [_make(store, one) for one in made]
        facts = {run_id: _facts(store, run_id) for run_id in ids}
        fields = sorted({field for one in facts.values() for field in one} | {Field("tags", "none")}, key=str)
        wanted = data.draw(st.lists(st.builds(Sort, st.sampled_from(fields), st.booleans()), max_size=3))

        newest_first = ids[::-1]
        expected = sorted(newest_first, key=lambda run_id: -store.run(run_id).created)
        for by in reversed(wanted):
            expected = _sorted(expected, by, {run_id: facts[run_id].get(by.field) for run_id in ids})
        assert [record.id for record in store.runs(sort=wanted)] == expected
        assert [record.id for record in store.runs(sort=wanted, limit=2, offset=1)] == expected[1:3]


def _sorted(ids: list[str], by: Sort, values: dict[str, Fact]) -> list[str]:
    """Numbers, then texts, then those that have nothing, whatever the direction."""
    is_param = by.field.kind == "parameter"
    numbers = [i for i in ids if (number_of(values[i]) if is_param else _number(values[i])) is not None]
    texts = [i for i in ids if i not in numbers and values[i] is not None and values[i] == values[i]]
    last = [i for i in ids if i not in numbers and i not in texts]
    # Python keeps the order of equals in both directions, as a sorting by several fields needs it.
    return [
        *sorted(numbers, key=lambda i: (number_of(values[i]), text_of(values[i])), reverse=by.descending),
        *sorted(texts, key=lambda i: text_of(values[i]) or "", reverse=by.descending),
        *last,
    ]


def _number(value: Fact) -> Fact:
    return value if isinstance(value, (int, float)) and value == value else None


def test_questions_join_with_the_plain_filters(store: Store) -> None:
    ids = [new_run(store, 1.0 + n, experiment="ab"[n % 2]) for n in range(6)]
    for n, run_id in enumerate(ids):
        store.ingest(run_id, 1, EVENTS, 0, metric(1, loss=n / 10))
    store.end(ids[4], 1, ending())
    where = parse("metrics.loss > 0.1")

    assert [r.id for r in store.runs(where=where)] == [ids[5], ids[4], ids[3], ids[2]]
    assert [r.id for r in store.runs("a", where=where, sort=parse_sort("metrics.loss"))] == [ids[2], ids[4]]
    assert [r.id for r in store.runs("a", where=where, active=True)] == [ids[2]]
    assert [r.id for r in store.runs(status=RunState.COMPLETED, where=where)] == [ids[4]]
    assert [r.id for r in store.runs(limit=2, offset=3)] == [ids[2], ids[1]]
    assert store.count() == 6
    assert store.count("a", where=where) == 2
    assert store.count(status="completed", where=parse("not metrics.loss > 0.1")) == 0
    with pytest.raises(UnknownName):
        store.count(status="complete")


def test_two_days_ago_is_counted_from_now(store: Store) -> None:
    new = new_run(store, time.time() - 3600)
    old = new_run(store, time.time() - 86400 * 3)

    assert [r.id for r in store.runs(where=parse("created > 2d"))] == [new]
    assert [r.id for r in store.runs(where=parse("created < 2d"))] == [old]


@pytest.mark.parametrize(
    "hostile", ["x' OR 1=1 --", 'x"); DROP TABLE run; --', "?", ":1", "%", "[", "\ud800", "f.name"]
)
def test_words_from_outside_never_become_sql(store: Store, hostile: str) -> None:
    run_id = new_run(store, name=hostile, tags={hostile: hostile})
    new_run(store, name="other", tags={"other": "other"})
    store.ingest(
        run_id, 1, EVENTS, 0, line("params", {"values": {hostile: hostile}}) + metric(1, **{hostile: 1.0})
    )

    said = json.dumps(hostile)
    for text in (
        "name = {0}",
        "tags.{0} = {0}",
        "params.{0} = {0}",
        "metrics.{0} = 1",
        "name in (a, {0})",
        "tags.{0} ~ {0}",
    ):
        assert [r.id for r in store.runs(where=parse(text.format(said)))] == [run_id], text
    fields = parse_columns(f"name,tags.{said},params.{said},metrics.{said}")
    assert list(store.columns([run_id], fields)[run_id].values()) == [*[plain(hostile)] * 3, 1.0]
    first = store.runs(sort=parse_sort(f"-params.{said},tags.{said},metrics.{said}"))[0]
    assert first.id == run_id
    assert store.count() == 2


def test_the_greatest_expressions_that_can_be_read_can_be_asked(store: Store, run_id: str) -> None:
    many = parse(" or ".join(["id=x"] * 1200 + ["id"]))
    deep = parse("not (name or " * 24 + "id" + ")" * 24)
    deeper = parse("(params.x ~ a or name and " * 49 + "id" + ")" * 49)
    both = parse("(" * 9 + "id" + " or name) and (name or (id and name))" * 9)
    listed = parse(f"params.x in ({','.join(['1'] * 4900)})")
    wide = OneOf(Field("id"), (*("x",) * 20_000, run_id))

    assert isinstance(many, Or)
    assert [store.count(where=tree) for tree in (many, deep, deeper, both, listed, wide)] == [
        1,
        1,
        0,
        0,
        0,
        1,
    ]
    assert store.runs(sort=parse_sort(",".join(f"metrics.m{n}" for n in range(16))))[0].id == run_id


def test_columns_hold_what_a_run_has_and_nothing_else(store: Store) -> None:
    first, second = new_run(store, name="first", tags={"stage": "dev"}), new_run(store)
    said = line("params", {"values": {"lr": 0.1, "seed": 2**70, "amp": True, "none": None, "text": "1e-3"}})
    store.ingest(first, 1, EVENTS, 0, said + metric(1, loss=2.0) + metric(2, loss=1.0, odd="NaN"))
    fields = parse_columns(
        "id,name,tags.stage,metrics.loss,metrics.loss.max,metrics.odd,metrics.odd.min,params.none"
    )
    fields += parse_columns("params.lr,params.seed,params.amp,params.text,params.nothing,tags.nothing")

    found = store.columns([second, first], fields)

    assert list(found) == [second, first]
    assert found[second] == {Field("id"): second}
    assert {str(field): repr(value) for field, value in found[first].items()} == {
        "id": repr(first),
        "name": "'first'",
        "tags.stage": "'dev'",
        "metrics.loss": "1.0",
        "metrics.loss.max": "2.0",
        "metrics.odd": "nan",
        "params.none": "None",
        "params.lr": "0.1",
        "params.seed": str(2**70),
        "params.amp": "True",
        "params.text": "'1e-3'",
    }
    with pytest.raises(NoSuchRun):
        store.columns(["aaaaaaaaaa"], fields)


def test_a_removed_run_is_in_no_answer_and_leaves_no_names(store: Store) -> None:
    kept, gone = new_run(store, tags={"stage": "dev"}), new_run(store, tags={"stage": "dev", "old": "x"})
    for run_id, names in ((kept, {"loss": 1.0}), (gone, {"loss": 1.0, "once": 1.0})):
        store.ingest(run_id, 1, EVENTS, 0, line("params", {"values": names}) + metric(1, **names))

    store.remove(gone)

    assert [r.id for r in store.runs(where=parse("metrics.loss = 1 and params.loss and tags.stage"))] == [
        kept
    ]
    assert (store.names("metrics"), store.names("params"), store.names("tags")) == (
        ["loss"],
        ["loss"],
        ["stage"],
    )


def test_names_and_runs_can_be_completed(store: Store) -> None:
    old = new_run(store, 1.0, id="abbbbbbbbb", name="baseline")
    new = new_run(store, 2.0, id="bcccccccccc"[:10], name="best")
    store.ingest(old, 1, EVENTS, 0, metric(1, **{"loss": 1.0, "lr": 1.0, "acc": 1.0, "l%": 1.0}))

    assert store.complete_runs() == [(new, "best"), (old, "baseline")]
    assert store.complete_runs("b") == [(new, "best"), (old, "baseline")]
    assert store.complete_runs("b", limit=1) == [(new, "best")]
    assert store.complete_runs("ba") == [(old, "baseline")]
    assert store.complete_runs("ab") == [(old, "baseline")]
    assert store.complete_runs("zz") == store.complete_runs("%") == []
    assert store.names("metrics", "l") == ["l%", "loss", "lr"]
    assert store.names("metrics", "l", limit=1) == ["l%"]
    assert store.names("params") == []


def test_snapshots_that_runs_need_are_known(store: Store) -> None:
    new_run(store, snapshot="a" * 64)
    new_run(store, snapshot="b" * 64)
    gone = new_run(store, snapshot="c" * 64)
    new_run(store)
    store.remove(gone)

    assert store.referenced_snapshots() == {"a" * 64, "b" * 64}


def test_the_summary_is_what_all_streams_say_together_in_the_documented_order(
    store: Store, run_id: str
) -> None:
    late = line("opened", {"rank": 1}, t=20.0) + line("params", {"values": {"lr": 1}}) + metric(0, loss=3.0)
    early = (
        line("opened", {"rank": 0}, t=10.0)
        + line("params", {"values": {"lr": 2, "x": 0}})
        + metric(0, loss=-1.0)
    )
    store.ingest(run_id, 1, "events.aaaaaaaa.jsonl", 0, late)
    store.ingest(run_id, 1, "events.bbbbbbbb.jsonl", 0, early)
    more = line("tags", {"values": {"t": "late"}}) + metric(1, loss=9.0)
    store.ingest(run_id, 1, "events.bbbbbbbb.jsonl", len(early), more)
    fields = parse_columns("metrics.loss,metrics.loss.min,metrics.loss.max,params.lr,params.x,tags.t")

    assert list(store.columns([run_id], fields)[run_id].values()) == [3.0, -1.0, 9.0, 1, 0, "late"]
    assert store.latest([run_id]) == {run_id: {"loss": (3.0, 0)}}
    with store._db.reading() as db:
        assert db.execute("SELECT n FROM metric").fetchall() == [(3,)]


def test_a_duration_that_is_not_over_answers_nothing(store: Store, run_id: str) -> None:
    assert store.runs(where=Compare(Field("duration"), ">=", Duration(0.0))) == []
