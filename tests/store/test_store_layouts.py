"""Histories of earlier layouts open, hold what they held, and answer questions that came later."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dray.core.where import Field, parse
from dray.store import HomeReadOnly, Store, migrations, points, progress
from tests.store.world import EVENTS, as_nobody, line, metric, python

_RECORDED = Path(__file__).parent / "recorded"
_SCRIPT_LOG = b"hello\n"  # the one log of the recorded runs


@pytest.fixture
def old_home(home: Path) -> Path:
    """A home with a history of layout 1."""
    return _home_of(home, 1)


def _home_of(home: Path, layout: int) -> Path:
    log = home / "logs" / "aaaaaaaaaa" / "1" / "log.script"
    log.parent.mkdir(parents=True)
    log.write_bytes(_SCRIPT_LOG)
    shutil.copyfile(_RECORDED / f"history-{layout}.db", home / "history.db")
    return home


def _short(exported: dict[str, Any]) -> dict[str, Any]:
    """As the recorded export: of long metrics only their number and the last value."""
    metrics = {
        name: columns
        if len(columns["values"]) < 200
        else {"points": len(columns["values"]), "last": columns["values"][-1]}
        for name, columns in exported["metrics"].items()
    }
    return {**exported, "metrics": metrics}


@pytest.mark.parametrize("layout", range(1, migrations.LATEST))
def test_a_history_of_an_earlier_layout_holds_what_it_held(home: Path, layout: int) -> None:
    expected = json.loads((_RECORDED / f"history-{layout}.json").read_text())

    with Store.open(_home_of(home, layout)) as store:
        found = {record.id: _short(store.export_state(record.id)) for record in store.runs()}

    assert json.loads(json.dumps(found)) == expected
    assert len(expected) == 4


def test_edits_of_layout_2_are_kept(home: Path) -> None:
    with Store.open(_home_of(home, 2)) as store:
        run = store.find("renamed")

        assert (run.id, run.note, run.imported) == ("aaaaaaaaaa", "the good one", None)
        assert store.tags(run.id)["seen"] == "yes"
        assert "stage" not in store.tags(run.id)
        assert store.fetched(run.id) == {}


def test_what_was_fetched_is_known_until_the_run_is_forgotten(old_home: Path) -> None:
    with Store.open(old_home) as store:
        store.mark_fetched("aaaaaaaaaa", "outputs/model", 7, "ab" * 32)
        store.mark_fetched("aaaaaaaaaa", "outputs/model", 8, "cd" * 32)
        assert store.fetched("aaaaaaaaaa") == {"outputs/model": (8, "cd" * 32)}

        store.remove("aaaaaaaaaa")
        with store._db.reading() as db:
            assert db.execute("SELECT count(*) FROM fetched").fetchone() == (0,)


def test_what_layout_2_added_is_filled_from_what_was_there(old_home: Path) -> None:
    with Store.open(old_home) as store:

        def found(text: str) -> list[str]:
            return [record.id for record in store.runs(where=parse(text))]

        assert found("reason = exit-code and exit_code = 3") == ["aaaaaaaaaa"]
        assert found("reason = cancelled") == ["dddddddddd"]
        assert found("tags.stage = late and tags.team = caf\u00e9 and tags.owner = ana") == ["aaaaaaaaaa"]
        assert found("params.lr = 0.1") == ["bbbbbbbbbb", "aaaaaaaaaa"]
        assert found('params.fold = "03" and params.decay or params.seed = 9223372036854775808') == [
            "bbbbbbbbbb"
        ]
        assert found("metrics.loss = nan and metrics.loss.min = 0.125 and metrics.loss.max = 0.25") == [
            "bbbbbbbbbb"
        ]
        assert found("metrics.acc and not metrics.acc.min") == ["aaaaaaaaaa"]
        assert found("name or note") == ["cccccccccc", "aaaaaaaaaa"]


def test_the_filled_tables_are_those_that_reading_anew_would_give(old_home: Path) -> None:
    with Store.open(old_home) as store, store._db.reading() as db:
        for record in store.runs():
            run = progress.number(db, record.id)
            assert repr(store.latest([record.id])[record.id]) == repr(points.latest(db, run))
            fields = [
                Field("metrics", name, part)
                for name in points.latest(db, run)
                for part in ("last", "min", "max")
            ]
            fields += [Field("params", name) for name in store.params(record.id)]
            columns = store.columns([record.id], fields)[record.id]
            for name, series in points.read(db, run).items():
                assert repr(columns[Field("metrics", name, "last")]) == repr(series.values[-1])
                numbers = [value for value in series.values if not math.isnan(value)]
                assert columns.get(Field("metrics", name, "min")) == min(numbers, default=None)
                assert columns.get(Field("metrics", name, "max")) == max(numbers, default=None)
            assert {name: columns[Field("params", name)] for name in store.params(record.id)} == store.params(
                record.id
            )


def test_a_history_of_layout_1_goes_on(old_home: Path) -> None:
    with Store.open(old_home) as store:
        cursor = store.cursors("cccccccccc")[f"1/{EVENTS}"]
        store.ingest(
            "cccccccccc", 1, EVENTS, cursor, metric(4200, loss=-1.0) + line("tags", {"values": {"a": "b"}})
        )
        store.edit("aaaaaaaaaa", name="renamed", tags={"team": None})

        assert [r.id for r in store.runs(where=parse("metrics.loss.min = -1 and tags.a = b"))] == [
            "cccccccccc"
        ]
        assert (store.run("aaaaaaaaaa").name, store.run("aaaaaaaaaa").said_name) == ("renamed", "first")
        store.remove("aaaaaaaaaa")
        assert store.names("tags") == ["a"]


def test_many_clients_may_bring_a_history_up_to_date_at_once(old_home: Path, tmp_path: Path) -> None:
    program = tmp_path / "open.py"
    program.write_text(
        "import sys\nfrom pathlib import Path\nfrom dray.store import Store\n"
        "with Store.open(Path(sys.argv[1])) as store:\n    assert len(store.runs()) == 4\n"
    )

    clients = [python(program, old_home) for _ in range(8)]

    assert [(c.communicate(timeout=60)[1], c.returncode) for c in clients] == [(b"", 0)] * 8


def test_a_step_that_is_cut_off_leaves_the_old_layout_whole(old_home: Path) -> None:
    with sqlite3.connect(old_home / "history.db") as db:
        # One of the last tables that the step makes is there already, so it fails after most of its work.
        db.execute("CREATE TABLE edit (mine TEXT)")
        before = db.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
    db.close()

    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        Store.open(old_home)

    with sqlite3.connect(old_home / "history.db") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall() == before
    db.close()


def test_an_old_history_that_may_only_be_read_says_what_is_to_be_done(open_place: Path) -> None:
    home = open_place / "home"
    home.mkdir(mode=0o755)
    shutil.copyfile(_RECORDED / "history-1.db", home / "history.db")

    def reads() -> None:
        with pytest.raises(HomeReadOnly, match="brought up to date"):
            Store.open(home)

    as_nobody(reads)


def test_the_first_step_makes_what_the_recorded_history_has() -> None:
    def layout(db: sqlite3.Connection) -> list[tuple[str, str]]:
        return db.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()

    made, recorded = (
        sqlite3.connect(":memory:"),
        sqlite3.connect(f"file:{_RECORDED}/history-1.db?immutable=1", uri=True),
    )
    migrations.STEPS[0](made)

    assert layout(made) == layout(recorded)
    made.close()
    recorded.close()
