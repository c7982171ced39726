"""`-c one,two` over real ssh: the first that can start the run gets it, and nothing is left with the others."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell, wait_until
from tests.gpu.fake import FakeNvml, library
from tests.runner.machines import kill
from tests.ssh.test_attach import attached
from tests.ssh.world import World


class Pair:
    """Two machines with a GPU each, attached as one and two."""

    def __init__(self, world: World, shell: Shell, folder: Path) -> None:
        self.shell = shell
        world.client.configure(f'IdentityFile "{world.client.key}"\n')
        self.leases = {name: folder / name / "leases" for name in ("one", "two")}
        for name in self.leases:
            driver = FakeNvml(folder / name)
            driver.gpu()
            (folder / name).chmod(0o1777)
            env = {**driver.environ(), "DRAY_LEASES": str(self.leases[name])}
            server = world.known(
                settings=["SetEnv " + " ".join(f"{key}={value}" for key, value in env.items())]
            )
            attached(shell, server, name)
        shell.write("sleeps.py", "import time; print('begun', flush=True); time.sleep(300)")
        shell.write("seen.py", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")

    def busy(self, name: str) -> str:
        """A run that holds that machine's GPU."""
        run = self.shell.detached("-c", name, "sleeps.py")
        wait_until(lambda: b"begun" in self.shell.dray("logs", run).stdout)
        return run

    def tickets(self, name: str) -> list[str]:
        return [file for file in os.listdir(self.leases[name]) if file.startswith("t-")]

    def where(self, run: str = "@last") -> str:
        return str(json.loads(self.shell.dray("show", run, "--json").stdout)["compute"])


@pytest.fixture
def pair(world: World, shell: Shell) -> Iterator[Pair]:
    library().parent.chmod(0o755)
    folder = Path(tempfile.mkdtemp(prefix="dray-pair-"))
    folder.chmod(0o755)
    yield Pair(world, shell, folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_a_machine_with_gpus_gives_one_to_who_says_nothing(pair: Pair) -> None:
    plan = json.loads(pair.shell.dray("submit", "-c", "one", "--dry-run", "--json", "seen.py").stdout)
    assert plan["gpus"] == {"count": 1, "default": "one"}
    pair.shell.dray("compute", "update", "one", "--default-gpus", "0")
    assert pair.shell.dray("submit", "-c", "one", "seen.py").stdout == b"-1\n"


def test_the_first_that_is_free_gets_the_run_in_the_order_they_are_named(pair: Pair) -> None:
    done = pair.shell.dray("submit", "-c", "one,two", "seen.py")
    assert done.returncode == 0, done.stderr.decode()
    assert pair.where() == "one"

    holder = pair.busy("one")
    done = pair.shell.dray("submit", "-c", "one,two", "seen.py")
    assert done.stdout.startswith(b"GPU-"), done.stderr.decode()
    assert pair.where() == "two"
    pair.shell.dray("cancel", holder)
    wait_until(lambda: pair.tickets("one") == pair.tickets("two") == [])


def test_it_waits_on_both_and_goes_where_its_turn_comes_first(pair: Pair) -> None:
    holders = {name: pair.busy(name) for name in ("one", "two")}
    with pair.shell.start("submit", "-c", "one,two", "seen.py") as waiting:
        wait_until(lambda: len(pair.tickets("one")) == len(pair.tickets("two")) == 2)
        pair.shell.dray("cancel", holders["two"])
        out, err = waiting.communicate(timeout=60)
    assert out.startswith(b"GPU-"), err.decode()
    assert b"two can start it" in err
    assert pair.where() == "two"
    wait_until(lambda: len(pair.tickets("one")) == 1)
    pair.shell.dray("cancel", holders["one"])


def test_a_killed_client_leaves_no_place_and_no_run(pair: Pair) -> None:
    holders = [pair.busy(name) for name in ("one", "two")]
    with pair.shell.start("submit", "-c", "one,two", "seen.py") as waiting:
        wait_until(lambda: len(pair.tickets("one")) == len(pair.tickets("two")) == 2)
        kill(waiting.pid)
    runs = json.loads(pair.shell.dray("runs", "--json").stdout)
    assert len(runs) == 2
    pair.shell.dray("cancel", *holders)
    pair.shell.dray("submit", "-c", "one", "seen.py")  # passes the dead ticket, and clears it away
    assert pair.tickets("one") == []


def test_what_no_machine_can_give_is_refused_with_a_reason_for_each(pair: Pair) -> None:
    done = pair.shell.dray("submit", "-c", "one,two", "--gpus", "2", "seen.py")
    assert done.returncode == 125
    assert b"one: 2 GPUs are asked for" in done.stderr
    assert b"two: 2 GPUs are asked for" in done.stderr
    assert pair.shell.dray("submit", "-c", "one,one", "seen.py").returncode == 2
    assert pair.shell.dray("submit", "-c", "one,", "seen.py").returncode == 2
