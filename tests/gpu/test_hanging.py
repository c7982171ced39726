"""A driver that does not answer holds up nobody who submits, waits or looks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from dray.runner.gpu import asking
from tests.gpu.fake import FakeNvml
from tests.gpu.machines import Machine
from tests.workspace.worlds import wait_until

HANGS = "hang nvmlDeviceGetCount_v2 300"
ANSWERS = "hang nvmlDeviceGetCount_v2 0"
SAYS = "the NVIDIA driver does not answer"
SHOWS = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"


@pytest.fixture
def hanging(driver: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A driver that hangs, on a machine whose owner is impatient."""
    monkeypatch.setenv(asking.VARIABLE, "1")
    driver.gpu()
    driver.says(HANGS)
    return driver


@pytest.fixture
def world(tmp_path: Path, driver: FakeNvml) -> Machine:
    return Impatient(tmp_path / "world", driver)


class Impatient(Machine):
    @property
    def env(self) -> dict[str, str]:
        return {**super().env, asking.VARIABLE: "1"}


def test_a_submit_that_wants_gpus_is_refused_with_what_to_do(world: Machine, hanging: FakeNvml) -> None:
    for wish in ("1", "all", "0,", "a100:1"):
        said = world.dray("submit", "--gpus", wish, "--", "true", timeout=30)
        assert said.code == 125
        assert SAYS in said.err and "`dray doctor`" in said.err and "`--gpus 0`" in said.err


def test_a_submit_without_gpus_asks_no_driver(world: Machine, hanging: FakeNvml) -> None:
    world.write("a.py", SHOWS)

    said = world.dray("submit", "--gpus", "0", "a.py", timeout=60)

    assert (said.code, said.out) == (0, b"-1\n")
    assert not any(SAYS in note for note in world.show()["notes"])


def test_a_submit_that_says_nothing_goes_on_without_a_gpu_and_is_told(
    world: Machine, hanging: FakeNvml
) -> None:
    world.write("a.py", SHOWS)

    said = world.dray("submit", "a.py", timeout=60)

    assert (said.code, said.out) == (0, b"-1\n")  # should the driver come to life, the GPUs are others'
    assert any("without a GPU: " + SAYS in note for note in world.show()["notes"])


def test_a_look_at_the_machine_says_why_no_gpu_is_seen(world: Machine, hanging: FakeNvml) -> None:
    said = world.dray("compute", "show", "local", timeout=30)
    asked = world.dray("compute", "show", "local", "--json", timeout=30)

    assert said.code == 0 and f"no GPUs: {SAYS}" in said.out.decode()
    assert json.loads(asked.out)["gpus"]["gpus"] == []
    assert world.dray("compute", "check", "local", timeout=90).code in (0, 1)


def test_who_waits_when_the_driver_stops_answering_is_told_can_be_cancelled_and_starts_when_it_answers(
    world: Machine, driver: FakeNvml
) -> None:
    driver.gpu()
    driver.used(
        0, os.getpid(), 50
    )  # somebody computes there without dray: only the driver can tell when no more
    waits = ("submit", "--detach", "--gpus", "1", "--", "echo", "ran")
    runs = [world.dray(*waits).out.decode().strip() for _ in range(2)]
    wait_until(lambda: world.show(runs[1])["status"] == "queued")
    driver.says("hang nvmlDeviceGetCount_v2 8")

    wait_until(lambda: any(SAYS in note for note in world.show(runs[0])["notes"]))
    begun = time.monotonic()
    assert world.dray("cancel", runs[1]).code == 0
    assert world.dray("wait", runs[1]).code != 0
    assert time.monotonic() - begun < 20
    driver.says(ANSWERS, f"0.gone {os.getpid()}")

    assert world.dray("wait", runs[0]).code == 0


def test_a_question_is_put_once_however_often_one_looks_for_its_answer(tmp_path: Path) -> None:
    asked, answer = tmp_path / "asked", tmp_path / "answer"

    def ask() -> dict[str, str]:
        with asked.open("a") as file:
            file.write("x")
        while not answer.exists():
            time.sleep(0.01)
        return {"answer": answer.read_text()}

    one = asking.Asking(ask)
    assert [one.answer(0.2), one.answer(0.0), one.answer(0.0)] == [None, None, None]
    answer.write_text("yes")
    assert one.answer(10) == {"answer": "yes"}
    assert (asked.read_text(), one.pid) == ("x", 0)
    one.drop()


def test_one_that_is_not_asked_any_more_is_gone(tmp_path: Path) -> None:
    def ask() -> dict[str, str]:
        while True:
            time.sleep(300)

    one = asking.Asking(ask)
    assert one.answer(0.1) is None
    pid = one.pid

    one.drop()

    wait_until(lambda: _has_ended(pid))


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
