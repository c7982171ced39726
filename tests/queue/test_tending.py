"""While a run lives its ticket and leases stay young and in place, whoever sweeps the folder."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.runner import processes
from dray.runner.folder import RunFolder
from dray.runner.machine import Machine
from dray.runner.queue import Asked
from dray.runner.queue.desk import Desk
from dray.runner.queue.scheduler import Leases
from dray.runner.steps import Steps
from dray.runner.streams import StateStream
from tests.gpu.fake import A100, FakeNvml

YEAR_S = 365 * 86400
NEVER_S = 1e9


class Holder:
    """A run that holds the machine's GPU, with its real guard."""

    def __init__(self, folder: Path, wish: dict[str, Any], *, day_s: float = NEVER_S) -> None:
        self.run = RunFolder(Machine(str(folder)), "abcdefghij")
        os.makedirs(self.run.streams(1))
        Path(self.run.path, "run.json").write_text("{}")
        self.steps = Steps(self.run, 0o022, will_keep=True)
        spec = {"id": self.run.id, "gpus": wish}
        said = StateStream(self.run, 1)
        self.leases = Leases(spec, Asked(spec), self.steps, said, place_s=0.0, day_s=day_s)
        self.leases.enter()
        self.leases.wait()

    @property
    def said(self) -> str:
        return Path(self.run.streams(1), "state.jsonl").read_text()

    def end(self) -> None:
        self.leases.leave()
        self.steps.quit()
        os.waitpid(self.steps.guard, 0)
        # What `Steps` has made of this process: else orphans of all later tests are its children.
        processes.load_prctl()(36, 0)  # PR_SET_CHILD_SUBREAPER


@pytest.fixture
def place(driver: FakeNvml) -> Path:
    """The machine's one GPU, and where its lease is."""
    driver.gpu()
    return Path(driver.environ()["DRAY_LEASES"])


@pytest.fixture
def holds(tmp_path: Path, place: Path) -> Iterator[Any]:
    made: list[Holder] = []

    def hold(wish: dict[str, Any], **paces: float) -> Holder:
        made.append(Holder(tmp_path / "machine", wish, **paces))
        return made[-1]

    yield hold
    for one in made:
        one.end()
    assert not list(place.glob("t-*"))


def _files(place: Path) -> list[Path]:
    return [*place.glob("t-*"), *place.glob("gpu-*")]


def test_files_of_a_run_that_lives_are_touched_once_a_day(holds: Any, place: Path) -> None:
    run = holds({"count": 1}, day_s=0.0)
    assert len(_files(place)) == 2
    for file in _files(place):
        os.utime(file, (time.time() - YEAR_S,) * 2)

    run.leases.tend()

    assert all(time.time() - file.stat().st_mtime < 60 for file in _files(place))


def test_files_of_a_run_are_left_alone_before_a_day_is_over(holds: Any, place: Path) -> None:
    run = holds({"count": 1})
    for file in _files(place):
        os.utime(file, (time.time() - YEAR_S,) * 2)

    run.leases.tend()

    assert all(time.time() - file.stat().st_mtime > 60 for file in _files(place))


def test_a_lease_and_ticket_that_were_removed_are_taken_anew_while_the_run_lives(
    holds: Any, place: Path
) -> None:
    run = holds({"count": 1})
    for file in _files(place):
        file.unlink()
    assert not Desk(str(place)).locked([A100])

    run.leases.tend()

    other = Desk(str(place))
    assert other.locked([A100]) == {A100}
    assert [ticket.holds for ticket in other.tickets()] == [((A100, None),)]
    assert other.take(((A100, None),)) is None


def test_a_shared_lease_that_was_removed_is_taken_anew_once(holds: Any, place: Path) -> None:
    run = holds({"count": 1, "share": True, "memory": 1 << 30})
    (place / f"gpu-{A100}").unlink()

    run.leases.tend()
    before = len(os.listdir("/proc/self/fd"))
    run.leases.tend()

    assert len(os.listdir("/proc/self/fd")) == before
    assert Desk(str(place)).take(((A100, None),)) is None, "somebody has a share of it"


def test_the_whole_folder_removed_under_a_run_that_lives_is_made_again(holds: Any, place: Path) -> None:
    run = holds({"count": 1})
    shutil.rmtree(place)

    run.leases.tend()

    assert Desk(str(place)).locked([A100]) == {A100}


def test_a_folder_that_cannot_be_made_again_ends_no_run_and_is_told_once(holds: Any, place: Path) -> None:
    run = holds({"count": 1})
    shutil.rmtree(place)
    place.write_text("in the way")

    run.leases.tend()
    run.leases.tend()
    assert run.said.count("is no folder") == 1

    place.unlink()
    run.leases.tend()
    assert Desk(str(place)).locked([A100]) == {A100}
