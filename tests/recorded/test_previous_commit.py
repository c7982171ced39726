"""What the previous commit wrote is read, followed and ended by this one: people update while runs are alive."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.workspace.worlds import World

ROOT = Path(__file__).parents[2]
SCRIPT = """
import dray, time
dray.log_params(lr=0.1)
for i in range(200):
    print("line", i, flush=True)
    dray.log(loss=1 / (i + 1), step=i)
    time.sleep(PAUSE)
dray.log_table("conf", [{"a": 1, "b": 2}])
open("outputs/model", "w").write("weights")
"""
# What is about the moment of asking, or is put into words then.
MOMENTARY = {"as_of", "unreachable", "explanations", "gpu"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "world")
    yield made
    made.clean()


@pytest.fixture
def before(tmp_path: Path) -> dict[str, str]:
    """Variables with which `python -m dray` is that of the previous commit."""
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]
    if subprocess.run(
        [*git, "rev-parse", "-q", "--verify", "HEAD~1"], capture_output=True, check=False
    ).returncode:
        pytest.skip("there is no previous commit here")
    archive = tmp_path / "before.tar"
    subprocess.run([*git, "archive", "-o", archive, "HEAD~1", "src"], check=True)
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    return {"PYTHONPATH": str(tmp_path / "src")}


def shown(world: World, run: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    said = world.dray("show", run, "--json", env=env)
    assert said.code == 0, said.err
    document: dict[str, Any] = json.loads(said.out)
    return {name: value for name, value in document.items() if name not in MOMENTARY}


def test_the_previous_commit_is_another_folder(world: World, before: dict[str, str]) -> None:
    where = subprocess.run(
        [world.bin.parent / "bin" / "python", "-c", "import dray; print(dray.__file__)"],
        env={**world.env, **before}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert where.stdout.startswith(before["PYTHONPATH"])


def test_a_history_written_by_the_previous_commit_opens(world: World, before: dict[str, str]) -> None:
    world.write("train.py", SCRIPT.replace("PAUSE", "0"))
    done = world.dray("submit", "--name", "first", "--tag", "a=b", "train.py", env=before)
    assert done.code == 0, done.err
    world.dray("note", "first", "a good one", env=before)
    then = shown(world, "first", before)
    points = world.dray("metrics", "first", "--json", env=before).out

    now = shown(world, "first")

    # What this commit has added is news; everything else is there, as it was.
    assert {name: now.get(name) for name in then} == then
    assert world.dray("logs", "first").out == done.out
    assert json.loads(world.dray("metrics", "first", "--json").out) == json.loads(points)
    assert [run["id"] for run in world.runs()] == [then["id"]]
    assert world.dray("rerun", "first").code == 0
    assert world.dray("rebuild").code == 0
    assert world.dray("logs", "first").out == done.out


def test_a_live_run_of_the_previous_commit_is_followed_and_cancelled(
    world: World, before: dict[str, str]
) -> None:
    world.write("train.py", SCRIPT.replace("PAUSE", "0.01"))
    world.write("slow.py", "import time; print('on', flush=True); time.sleep(300)")
    first = world.dray("submit", "-d", "train.py", env=before).out.decode().strip()
    second = world.dray("submit", "-d", "slow.py", env=before).out.decode().strip()

    followed = world.dray("follow", first)
    cancelled = world.dray("cancel", second, "--grace", "1s")

    assert followed.code == 0, followed.err
    assert followed.out == b"".join(b"line %d\n" % i for i in range(200))
    assert cancelled.code == 0, cancelled.err
    assert world.dray("wait", second).code == 143
    assert shown(world, first)["metrics"]["loss"] == {"value": 1 / 200, "step": 199}
