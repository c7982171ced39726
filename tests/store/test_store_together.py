"""Many clients at once: nobody is turned away, nothing is lost or stored twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dray.store import Store
from tests.store import worker
from tests.store.world import new_run, python

_WORKER = Path(worker.__file__)


def _all_fine(workers: list[subprocess.Popen[bytes]]) -> None:
    said = [(process.communicate(timeout=100)[1].decode(), process.returncode) for process in workers]
    assert said == [("", 0)] * len(workers)


def test_fifty_clients_submit_into_a_history_that_is_not_there_yet(home: Path) -> None:
    _all_fine([python(_WORKER, home, "submit", number, "-") for number in range(50)])

    with Store.open(home) as store:
        made = store.runs(experiment="together", status="completed")
        assert sorted(record.name or "" for record in made) == sorted(f"n{number}" for number in range(50))
        for record in made:
            assert store.metrics(record.id)["loss"].steps == list(range(20))
            assert store.read_log(record.id, 1, "log.script", 0, 1000) == b"".join(
                b"%d\n" % n for n in range(20)
            )


def test_eight_writers_and_twenty_readers_of_one_run(store: Store, run_id: str) -> None:
    worker.log(store, 99, run_id)
    writers = [python(_WORKER, store.home, "log", number, run_id) for number in range(8)]
    readers = [python(_WORKER, store.home, "read", number, run_id) for number in range(20)]

    _all_fine(writers + readers)

    assert store.metrics(run_id)["loss"].steps == list(range(worker.POINTS)) * 9


def test_six_followers_bring_the_same_stream(store: Store) -> None:
    alone, shared = new_run(store), new_run(store)
    worker.follow(store, alone)

    _all_fine([python(_WORKER, store.home, "follow", number, shared) for number in range(6)])

    assert {**store.export_state(shared), "spec": 0} == {**store.export_state(alone), "spec": 0}
