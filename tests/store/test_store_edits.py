"""What people say of a run afterwards: it wins where both are shown, and takes nothing away from what the run said."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from dray.core.where import parse, parse_sort
from dray.store import HomeReadOnly, NoSuchRun, Store
from tests.store.world import EVENTS, as_nobody, line, new_run, python


@pytest.fixture
def run(store: Store) -> str:
    """A run with a name and tags of its own, of which the script set one."""
    run_id = new_run(store, name="said", tags={"stage": "dev", "team": "a"})
    store.ingest(run_id, 1, EVENTS, 0, line("tags", {"values": {"stage": "prod"}}))
    return run_id


def _journal(store: Store) -> Path:
    return store.home / "edits.jsonl"


def test_an_edit_wins_and_what_the_run_said_stays(store: Store, run: str) -> None:
    store.edit(run, name="better", note="the good one", tags={"stage": "best", "team": None, "new": "x"})

    record = store.run(run)
    assert (record.name, record.said_name, record.note) == ("better", "said", "the good one")
    assert store.tags(run) == {"stage": "best", "new": "x"}
    assert store.said_tags(run) == {"stage": "prod", "team": "a"}
    assert store.find("better").id == run
    with pytest.raises(NoSuchRun):
        store.find("said")
    assert [(e.kind, e.key, e.value) for e in store.edits(run)] == [
        ("name", "", "better"),
        ("note", "", "the good one"),
        ("tag", "new", "x"),
        ("tag", "stage", "best"),
        ("tag", "team", None),
    ]


def test_edits_are_found_and_sorted_by(store: Store, run: str) -> None:
    other = new_run(store, name="other", tags={"team": "b"})
    store.edit(run, name="better", note="good", tags={"team": None, "rank": "2"})
    store.edit(other, tags={"rank": "1"})

    for asked in ("name = better", "note ~ g*", "not tags.team", "tags.rank = 2", "tags.stage = prod"):
        assert [r.id for r in store.runs(where=parse(asked))] == [run], asked
    assert store.runs(where=parse("name = said or tags.team = a")) == []
    assert [r.id for r in store.runs(sort=parse_sort("tags.rank"))] == [other, run]
    assert store.complete_runs("bet") == [(run, "better")]


def test_what_the_script_says_later_does_not_undo_an_edit(store: Store, run: str) -> None:
    store.edit(run, tags={"stage": "best", "team": None})

    store.ingest(run, 2, EVENTS, 0, line("tags", {"values": {"stage": "late", "team": "late", "own": "yes"}}))

    assert store.tags(run) == {"stage": "best", "own": "yes"}
    assert store.said_tags(run) == {"stage": "late", "team": "late", "own": "yes"}
    assert [r.id for r in store.runs(where=parse("tags.stage = best and not tags.team and tags.own"))] == [
        run
    ]


def test_nothing_takes_a_name_or_a_note_away(store: Store, run: str) -> None:
    store.edit(run, note="x")
    store.edit(run, name="", note="")

    record = store.run(run)
    assert (record.name, record.said_name, record.note) == (None, "said", None)
    assert store.runs(where=parse("name or note")) == []


def test_an_edit_of_nothing_is_not_written_down(store: Store, run: str) -> None:
    store.edit(run)
    store.edit(run, tags={})

    assert not _journal(store).exists()


def test_an_edit_of_a_run_that_is_not_there_is_refused_and_not_written_down(store: Store) -> None:
    with pytest.raises(NoSuchRun):
        store.edit("aaaaaaaaaa", name="x")

    assert not _journal(store).exists()


def test_the_journal_is_for_its_owner_alone_and_one_line_an_edit(store: Store, run: str) -> None:
    store.edit(run, name="caf\u00e9 \udcff\nx")
    store.edit(run, tags={"a": None})

    assert stat.S_IMODE(_journal(store).stat().st_mode) == 0o600
    first, second = map(json.loads, _journal(store).read_bytes().splitlines())
    assert (first["v"], first["run"], first["name"]) == (1, run, "caf\u00e9 \udcff\nx")
    assert second["tags"] == {"a": None}
    assert store.run(run).name == "caf\u00e9 \\udcff\nx"


def test_a_history_that_is_made_anew_gets_the_edits_again(store: Store, run: str) -> None:
    store.edit(run, name="first", tags={"stage": "x"})
    store.edit(run, name="better", note="good", tags={"stage": None})
    gone = new_run(store)
    store.edit(gone, name="gone")
    spec = store.run(run).spec
    store.close()
    Store.set_aside(store.home)

    with Store.open(store.home) as anew:
        anew.create_run(spec)
        assert anew.run(run).name == "said"
        assert anew.replay_edits() == 2
        assert anew.replay_edits() == 2
        record = anew.run(run)
        assert (record.name, record.note, anew.tags(run)) == ("better", "good", {"team": "a"})


@pytest.mark.parametrize(
    "torn", [b"", b'{"v":1,"t":1,"run', b"\xff\x00", b"[" * 100_000, b'{"v":1}', b"null"]
)
def test_a_torn_or_broken_line_hides_no_other(store: Store, run: str, torn: bytes) -> None:
    store.edit(run, name="first")
    with _journal(store).open("ab") as file:
        file.write(torn)

    store.edit(run, note="after")

    with Store.open(store.home) as again:
        assert (again.run(run).name, again.run(run).note) == ("first", "after")
        assert again.replay_edits() == 2
        assert (again.run(run).name, again.run(run).note) == ("first", "after")


@pytest.mark.parametrize(
    "odd",
    [
        {"v": 2, "name": "x"},
        {"v": 1, "name": 5},
        {"v": 1, "note": None},
        {"v": 1, "tags": ["a"]},
        {"v": 1, "tags": {"a": 5}},
        {"v": 1, "t": "soon", "name": "x"},
        {"v": 1, "run": 7, "name": "x"},
    ],
)
def test_a_line_that_makes_no_sense_changes_nothing(store: Store, run: str, odd: dict[str, object]) -> None:
    _journal(store).write_text(json.dumps({"t": 1.0, "run": run, **odd}) + "\n")

    assert store.replay_edits() == 0
    assert (store.run(run).name, store.run(run).note, store.edits(run)) == ("said", None, [])


def test_an_edit_that_was_written_down_and_not_applied_is_applied_at_the_next_opening(
    store: Store, run: str
) -> None:
    store.edit(run, name="first")
    said = {"v": 1, "t": 2.0, "run": run, "name": "second"}
    with _journal(store).open("a") as file:  # as by a client that was killed before it could tell the history
        file.write(json.dumps(said) + "\n")
    assert store.run(run).name == "first"

    with Store.open(store.home) as again:
        assert again.run(run).name == "second"


def test_another_journal_in_its_place_is_read_from_its_beginning(store: Store, run: str) -> None:
    store.edit(run, name="a name of some length", note="x" * 100)
    _journal(store).write_text(json.dumps({"v": 1, "t": 2.0, "run": run, "name": "short"}) + "\n")

    store.edit(run, tags={"a": "b"})

    assert (store.run(run).name, store.tags(run)["a"]) == ("short", "b")


def test_the_edits_of_a_removed_run_are_gone_from_the_history(store: Store, run: str) -> None:
    store.edit(run, name="x", tags={"only": "here"})

    store.remove(run)

    with store._db.reading() as db:
        assert [db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("edit", "tag", "word")] == [
            0
        ] * 3


def test_a_history_that_may_only_be_read_shows_edits_and_takes_none(open_place: Path) -> None:
    home = open_place / "home"
    with Store.open(home) as store:
        run_id = new_run(store, name="said")
        store.edit(run_id, name="better")
    os.chmod(home, 0o755)
    os.chmod(home / "history.db", 0o644)

    def reads() -> None:
        with Store.open(home) as store:
            assert store.run(run_id).name == "better"
            with pytest.raises(HomeReadOnly):
                store.edit(run_id, name="no")

    as_nobody(reads)


def test_many_who_edit_at_once_lose_nothing(store: Store, run: str, tmp_path: Path) -> None:
    program = tmp_path / "edits.py"
    program.write_text(
        "import sys\nfrom pathlib import Path\nfrom dray.store import Store\n"
        "with Store.open(Path(sys.argv[1])) as store:\n"
        "    for n in range(10):\n        store.edit(sys.argv[2], name=sys.argv[3], tags={f't{sys.argv[3]}-{n}': 'x'})\n"
    )
    clients = [python(program, store.home, run, number) for number in range(6)]
    assert [(c.communicate(timeout=60)[1], c.returncode) for c in clients] == [(b"", 0)] * 6

    tags = store.tags(run)
    assert {f"t{c}-{n}" for c in range(6) for n in range(10)} <= set(tags)
    assert len(_journal(store).read_bytes().splitlines()) == 60
    before = store.run(run).name
    assert store.replay_edits() == 60
    assert (store.run(run).name, store.tags(run)) == (before, tags)
