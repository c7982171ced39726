"""kill -9 of the client at any moment: the run is not started and says so, or it goes on, once, and nothing is lost."""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any

import pytest

from tests.workspace.worlds import World, wait_until

SCRIPT = """
import dray, sys, time
open("outputs/started", "a").write("once ")
dray.log_params(lr=0.1, layers=3)
for i in range(300):
    print("line", i, "x" * (i % 50))
    dray.log(loss=1 / (i + 1), acc=i / 300, step=i)
    if i % 10 == 0:
        time.sleep(0.01)
dray.tag(stage="done")
"""


def essence(world: World, run: str) -> dict[str, Any]:
    """Everything of a run that must not depend on who watched it."""
    shown = world.show(run)
    metrics = json.loads(world.dray("metrics", run, "--json").out)
    return {
        "status": shown["status"],
        "reason": shown["reason"],
        "exit_code": shown["exit_code"],
        "params": shown["params"],
        "tags": shown["tags"],
        "outputs": shown["outputs"],
        "metrics": {name: (series["steps"], series["values"]) for name, series in metrics.items()},
        "log": world.dray("logs", run).out,
    }


def _settled(world: World) -> list[dict[str, Any]]:
    """All runs, once none is active any more."""
    wait_until(lambda: not any(_active(run) for run in world.runs()), 30)
    return world.runs()


def _active(run: dict[str, Any]) -> bool:
    return run["status"] not in ("completed", "failed", "canceled", "lost")


def _kill_at(world: World, moments: list[float]) -> None:
    world.write("train.py", SCRIPT)
    assert world.dray("submit", "train.py").code == 0
    undisturbed = essence(world, "@last")
    assert undisturbed["status"] == "completed"
    assert undisturbed["log"].count(b"\n") == 300

    for moment in moments:
        before = {run["id"] for run in world.runs()}
        client = world.start("submit", "train.py")
        time.sleep(moment)  # the moment is the test
        client.kill()
        client.communicate()
        fresh = [run for run in _settled(world) if run["id"] not in before]
        assert len(fresh) <= 1
        for run in fresh:
            if run["status"] == "failed":
                assert run["reason"]["kind"] == "not-started", (moment, run)
            else:
                assert essence(world, run["id"]) == undisturbed, moment


def test_a_submit_killed_at_random_moments_loses_nothing(world: World) -> None:
    rng = random.Random(7)
    _kill_at(world, [rng.uniform(0.03, 0.6) for _ in range(6)])


@pytest.mark.timeout(600)
def test_a_submit_killed_at_20_moments_of_its_first_second_loses_nothing(world: World) -> None:
    _kill_at(world, [0.3 * i / 13 for i in range(14)] + [0.3 + 0.12 * i for i in range(6)])


def test_followers_killed_at_20_moments_double_nothing(world: World) -> None:
    world.write("train.py", SCRIPT.replace("0.01", "0.2"))
    run = world.dray("submit", "-d", "train.py").out.decode().strip()
    rng = random.Random(11)
    for moment in [0.02 * i for i in range(15)] + [rng.uniform(0.3, 0.6) for _ in range(5)]:
        follower = world.start("follow", run)
        time.sleep(moment)  # the moment is the test
        follower.kill()
        follower.communicate()
    last = world.dray("follow", run)
    assert last.code == 0, last
    assert last.out == world.dray("logs", run).out

    assert world.dray("submit", "train.py").code == 0
    assert essence(world, run) == essence(world, "@last")


def _count(world: World, lines: int, cuts: int) -> None:
    """`lines` numbered lines, `cuts` followers cut while they come, two whole ones at once."""
    world.write("count.py", f"import sys\nfor i in range({lines}): sys.stdout.write('%d\\n' % i)\n")
    run = world.dray("submit", "-d", "--buffered", "count.py").out.decode().strip()
    heard: list[bytes] = []
    whole = [threading.Thread(target=lambda: heard.append(world.dray("follow", run).out)) for _ in range(2)]
    for thread in whole:
        thread.start()
    rng = random.Random(3)
    for _ in range(cuts):
        follower = world.start("follow", run)
        time.sleep(rng.uniform(0.05, 0.3))  # the moment is the test
        follower.kill()
        follower.communicate()
    for thread in whole:
        thread.join()
    expected = b"".join(b"%d\n" % i for i in range(lines))
    assert world.dray("logs", run).out == expected
    assert heard == [expected, expected]


def test_many_numbered_lines_survive_cut_followers(world: World) -> None:
    _count(world, 200_000, 5)


@pytest.mark.timeout(600)
def test_a_million_numbered_lines_survive_20_cut_followers(world: World) -> None:
    _count(world, 1_000_000, 20)


def _all_at_once(world: World, count: int) -> None:
    world.write("train.py", "import dray; dray.log(loss=0.5, step=1); print('hello')")
    clients = [world.start("submit", "train.py") for _ in range(count)]
    for client in clients:
        out, err = client.communicate(timeout=120)
        assert (client.returncode, out) == (0, b"hello\n"), err.decode()
    runs = world.runs()
    assert len(runs) == count
    assert {run["status"] for run in runs} == {"completed"}


def test_many_submits_at_once(world: World) -> None:
    _all_at_once(world, 12)


@pytest.mark.timeout(300)
def test_50_submits_at_once(world: World) -> None:
    _all_at_once(world, 50)
