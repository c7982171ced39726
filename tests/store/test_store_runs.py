"""The list of runs: made, found, listed, moved, forgotten."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import dray.store
from dray.core.errors import UnknownName, UsageError
from dray.core.ids import new_run_id
from dray.core.spec import Environment, RunSpec
from dray.core.states import RunState
from dray.store import AmbiguousRun, NoSuchRun, RunExists, Store, UnsafeName
from tests.store.world import EVENTS, ending, line, metric, new_run, state


def test_what_the_room_offers_is_there_and_nothing_is_offered_twice() -> None:
    offered = dray.store.__all__

    assert sorted(set(offered)) == offered
    assert all(hasattr(dray.store, name) for name in offered)


def test_a_run_comes_back_as_it_was_asked_for(store: Store) -> None:
    spec = RunSpec(
        new_run_id(),
        experiment="digits",
        compute="gpu1",
        command=("train.py", "--name", "caf\u00e9 \udcff"),
        name="first",
        created=1000.5,
        tags={"stage": "dev"},
        left_out=(("data/\udc80", ".gitignore:4"),),
        environment=Environment(("numpy==2",), "3.11", "requirements.txt"),
    )

    store.create_run(spec)

    record = store.run(spec.id)
    assert record.spec == spec
    assert (record.name, record.experiment, record.compute, record.created) == (
        "first",
        "digits",
        "gpu1",
        1000.5,
    )
    assert (record.status, record.attempts, record.complete) == (RunState.CREATED, 0, False)
    assert store.tags(spec.id) == {"stage": "dev"}


def test_an_id_is_given_once(store: Store, run_id: str) -> None:
    with pytest.raises(RunExists):
        new_run(store, id=run_id)


@pytest.mark.parametrize(
    "bad", ["../../etc", "", "a", "UPPERCASES", "abcdefghi/", "abcdefghij\n", "a\udcff34567892"]
)
def test_an_id_that_could_lead_out_of_the_folder_is_refused(store: Store, bad: str) -> None:
    with pytest.raises(UnsafeName):
        store.create_run(RunSpec(bad, "e", "local", ("x",)))
    with pytest.raises((NoSuchRun, UnsafeName)):
        store.ingest(bad, 1, "log.script", 0, b"x")
    assert not (store.home / "logs").exists()


def test_a_run_is_found_by_id_beginning_name_and_age(store: Store) -> None:
    old = new_run(store, 1.0, id="aaaaaaaaaa", name="baseline")
    new = new_run(store, 2.0, id="abbbbbbbbb", name="caf\u00e9 \udcff")

    assert store.find("aaaaaaaaaa").id == old
    assert store.find("aa").id == old
    assert store.find("baseline").id == old
    assert store.find("caf\u00e9 \udcff").id == new
    assert store.find("@last").id == new
    assert store.find("@last-1").id == old


def test_a_name_beats_the_beginning_of_an_id(store: Store) -> None:
    named = new_run(store, id="bbbbbbbbbb", name="aa")
    new_run(store, id="aaaaaaaaaa")

    assert store.find("aa").id == named


def test_a_word_that_means_several_runs_names_them(store: Store) -> None:
    both = {new_run(store, 1.0, id="aaaaaaaaaa", name="x"), new_run(store, 2.0, id="aabbbbbbbb", name="x")}

    for word in ("aa", "x"):
        with pytest.raises(AmbiguousRun) as caught:
            store.find(word)
        assert set(caught.value.matches) == both
        assert "digits" in str(caught.value)
    assert store.find("aaaaaaaaaa").id == "aaaaaaaaaa"


def test_a_word_that_means_no_run_gets_the_nearest_one(store: Store) -> None:
    new_run(store, name="baseline")

    with pytest.raises(NoSuchRun) as caught:
        store.find("baselin2")
    assert caught.value.near == "baseline"
    assert isinstance(caught.value, UnknownName)


@pytest.mark.parametrize("word", ["", "@last", "%", "*", "\udcff", "\x00", "x" * 10_000, "@last-7"])
def test_no_word_finds_anything_in_an_empty_history(store: Store, word: str) -> None:
    with pytest.raises(NoSuchRun):
        store.find(word)


@pytest.mark.parametrize("word", ["@", "@first", "@last-", "@last-x", "@last--1", "@last-\u00b2"])
def test_words_after_at_that_mean_nothing_are_refused(store: Store, run_id: str, word: str) -> None:
    with pytest.raises(UsageError):
        store.find(word)


def test_runs_are_listed_newest_first_and_filtered(store: Store) -> None:
    first = new_run(store, 1.0, experiment="a")
    second = new_run(store, 3.0, experiment="b")
    third = new_run(store, 2.0, experiment="a")
    store.end(third, 1, ending())

    assert [r.id for r in store.runs()] == [second, third, first]
    assert [r.id for r in store.runs(limit=2)] == [second, third]
    assert [r.id for r in store.runs(experiment="a")] == [third, first]
    assert [r.id for r in store.runs(status="completed")] == [third]
    assert [r.id for r in store.runs(status=RunState.CREATED, experiment="a")] == [first]
    assert [r.id for r in store.runs(active=True)] == [second, first]
    assert store.runs(limit=0) == []


def test_an_unknown_status_gets_the_known_ones(store: Store) -> None:
    with pytest.raises(UnknownName) as caught:
        store.runs(status="complete")
    assert caught.value.near == "completed"


def test_the_newest_of_many_runs_are_listed_at_once(store: Store, run_id: str) -> None:
    record = store.run(run_id)
    with store._db.writing() as db:
        db.executemany(
            "INSERT INTO run (id, experiment, compute, created, spec, state) VALUES (?, ?, 'local', ?, ?, ?)",
            (
                (
                    f"x{n}",
                    f"e{n % 7}",
                    2000.0 + n,
                    record.spec_json,
                    "created" if n % 1000 == 0 else "completed",
                )
                for n in range(100_000)
            ),
        )
    begun = time.perf_counter()

    newest = store.runs(limit=20)
    of_one = store.runs(experiment="e3", limit=20)
    active = store.runs(active=True, limit=50)

    assert time.perf_counter() - begun < 0.1
    assert (newest[0].id, of_one[0].id, active[0].id) == ("x99999", "x99998", "x99000")


def test_the_machines_words_move_the_run(store: Store, run_id: str) -> None:
    said = [state("preparing"), line("host", {"host": "gpu1", "cpus": 4}), state("running", 5.0, pid=77)]
    store.ingest(run_id, 1, "state.jsonl", 0, b"".join(said))
    store.ingest(run_id, 1, "state.jsonl", len(b"".join(said)), line("note", {"text": "GPU 3 is hot"}))

    record = store.run(run_id)
    assert (record.status, record.pid, record.started, record.attempts) == (RunState.RUNNING, 77, 5.0, 1)
    assert record.host == {"host": "gpu1", "cpus": 4}
    assert record.notes == ("GPU 3 is hot",)
    assert store.states(run_id) == [(1, "preparing", 1.0), (1, "running", 5.0)]


def test_an_ended_run_stays_ended(store: Store, run_id: str) -> None:
    store.end(run_id, 1, ending("failed", 3, "exit-code"))

    store.ingest(run_id, 1, "state.jsonl", 0, state("running", pid=7))
    store.set_state(run_id, RunState.STAGING)
    store.set_state(run_id, RunState.FAILED, {"kind": "not-started", "text": "no"})
    store.end(run_id, 1, ending("lost", None, "vanished"))

    record = store.run(run_id)
    assert (record.status, record.exit_code) == (RunState.FAILED, 3)
    assert record.reason == {"kind": "exit-code", "text": "it said so"}
    assert (record.ended, record.duration_s) == (12.5, 2.5)
    assert record.end == ending("failed", 3, "exit-code")


def test_a_later_attempt_wins_whichever_is_read_first(store: Store) -> None:
    def first(run_id: str) -> None:
        store.ingest(run_id, 1, "state.jsonl", 0, state("running", 1.0, pid=1) + line("host", {"host": "a"}))
        store.end(run_id, 1, ending("lost", None, "host-rebooted"), complete=True)

    def second(run_id: str) -> None:
        store.ingest(run_id, 2, "state.jsonl", 0, state("preparing", 3.0))

    seen = []
    for order in ((first, second), (second, first)):
        run_id = new_run(store)
        for step in order:
            step(run_id)
        seen.append({**store.export_state(run_id), "spec": None})
        assert store.run(run_id).status is RunState.PREPARING
        assert (store.run(run_id).end, store.run(run_id).host, store.run(run_id).complete) == (
            None,
            None,
            False,
        )
    assert seen[0] == seen[1]


def test_a_late_word_of_the_client_does_not_undo_the_machines(store: Store, run_id: str) -> None:
    store.set_state(run_id, RunState.STAGING)
    assert store.run(run_id).status is RunState.STAGING
    store.ingest(run_id, 1, "state.jsonl", 0, state("running"))

    store.set_state(run_id, RunState.STAGING)

    assert store.run(run_id).status is RunState.RUNNING


def test_words_of_a_newer_runner_are_kept_and_move_nothing(store: Store, run_id: str) -> None:
    said = state("running") + state("hibernating") + line("weather", {"rain": True})
    store.ingest(run_id, 1, "state.jsonl", 0, said)

    assert store.run(run_id).status is RunState.RUNNING
    assert store.states(run_id)[-1] == (1, "hibernating", 1.0)
    assert store.unknown_events(run_id)[0].data["data"] == {"rain": True}


def test_a_script_cannot_end_its_run_by_writing_so(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, EVENTS, 0, state("completed") + state("running"))

    assert store.run(run_id).status is RunState.CREATED
    assert len(store.unknown_events(run_id)) == 2


def test_an_end_that_makes_no_sense_is_still_an_end(store: Store, run_id: str) -> None:
    odd = {"state": "exploded", "code": 10**30, "signal": "nine", "ended": float("nan"), "reason": "because"}
    store.end(run_id, 1, odd)

    record = store.run(run_id)
    assert (record.status, record.exit_code, record.signal, record.ended, record.reason) == (
        RunState.LOST,
        *(None, None, None, None),
    )


def test_a_machine_that_does_not_answer_changes_no_state(store: Store, run_id: str) -> None:
    store.looked(run_id, 100.0)
    store.looked(run_id, 200.0, unreachable="no route to host")
    assert (store.run(run_id).as_of, store.run(run_id).unreachable) == (100.0, "no route to host")

    store.looked(run_id, 300.0)

    record = store.run(run_id)
    assert (record.as_of, record.unreachable, record.status) == (300.0, None, RunState.CREATED)


def test_completeness_can_be_added_later(store: Store, run_id: str) -> None:
    store.end(run_id, 1, ending())
    assert not store.run(run_id).complete

    store.mark_complete(run_id)

    assert store.run(run_id).complete


def test_a_removed_run_leaves_nothing(store: Store, run_id: str) -> None:
    store.ingest_many(
        run_id, [(1, "log.script", 0, b"hello"), (1, EVENTS, 0, metric(1, loss=1.0) + b"broken\n")]
    )
    store.end(run_id, 1, ending())

    store.remove(run_id)

    with pytest.raises(NoSuchRun):
        store.run(run_id)
    with pytest.raises(NoSuchRun):
        store.ingest(run_id, 1, "log.script", 5, b"late")
    assert list((store.home / "logs").iterdir()) == []
    with store._db.reading() as db:
        tables = ("run", "ending", "stream", "series", "block", "event", "broken", "leftover")
        assert [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables] == [0] * 8


def test_log_files_of_a_removal_that_was_cut_off_go_at_the_next_opening(home: Path) -> None:
    with Store.open(home) as store:
        run_id = new_run(store)
        store.ingest(run_id, 1, "log.script", 0, b"hello")
        with store._db.writing() as db:
            dray.store.runs.forget(db, 1, run_id)  # what `remove` does before it touches the files
    assert (home / "logs" / run_id).exists()

    Store.open(home).close()

    assert not (home / "logs" / run_id).exists()


def test_a_run_made_again_does_not_inherit_the_files_of_the_removed_one(home: Path) -> None:
    with Store.open(home) as store:
        run_id = new_run(store)
        store.ingest(run_id, 1, "log.script", 0, b"hello")
        with store._db.writing() as db:
            dray.store.runs.forget(db, 1, run_id)

        new_run(store, id=run_id)
        store.ingest(run_id, 1, "log.script", 0, b"new")
        Store.open(home).close()

        assert store.read_log(run_id, 1, "log.script", 0, 100) == b"new"


def test_a_client_that_submits_is_seen_by_others_until_it_is_done(
    home: Path, store: Store, run_id: str
) -> None:
    with Store.open(home) as other:
        assert not other.is_submitting(run_id)
        with store.submitting(run_id):
            assert other.is_submitting(run_id)
            assert other.is_submitting(run_id)
        assert not other.is_submitting(run_id)
    assert list((home / "submitting").iterdir()) == []


def test_errors_inside_submitting_pass_and_end_it(store: Store, run_id: str) -> None:
    with pytest.raises(FileNotFoundError), store.submitting(run_id):
        raise FileNotFoundError
    assert not store.is_submitting(run_id)
