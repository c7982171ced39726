"""Drills: whatever happens to link, client and server, the run is what an undisturbed one would have been.

The slow ones are 20 with a million lines each; `--drills N` makes it another number.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.dray_shell import Shell
from tests.ssh.test_links import attached
from tests.ssh.world import Server, World, wait_until

COUNT = """
import os, sys, time, dray

lines, points, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
with open(os.path.expanduser("~/starts"), "a") as file:
    file.write(os.environ["DRAY_RUN_ID"] + "\\n")
began = time.monotonic()
for i in range(lines):
    print(i)
    if i % (lines // points) == 0:
        dray.log(loss=i / 4, step=i)
    if i % 500 == 0:
        time.sleep(max(0.0, began + seconds * i / lines - time.monotonic()))
sys.exit(7)
"""
LONGEST_S = 240.0

Trouble = Callable[[Server, "Client", random.Random, float], None]


class Client:
    """Whoever follows the run at the moment; what it prints goes to a file."""

    def __init__(self, shell: Shell, out: Path, *words: str) -> None:
        self.shell = shell
        self.out = out
        self.was_killed = False
        with out.open("wb") as file, out.with_suffix(".err").open("wb") as err:
            self.process = shell.start(*words, out=file, err=err)

    def said(self) -> str:
        """On stderr."""
        return self.out.with_suffix(".err").read_text(errors="replace")


def link_cut(server: Server, client: Client, rng: random.Random, longest_s: float) -> None:
    assert server.link
    server.link.pull()
    time.sleep(rng.uniform(2.0, longest_s))
    server.link.plug()


def client_killed(server: Server, client: Client, rng: random.Random, longest_s: float) -> None:
    client.process.send_signal(signal.SIGKILL)
    client.process.wait()
    client.was_killed = True


def connections_reset(server: Server, client: Client, rng: random.Random, longest_s: float) -> None:
    assert server.link
    server.link.reset()


def server_killed(server: Server, client: Client, rng: random.Random, longest_s: float) -> None:
    server.kill()
    time.sleep(rng.uniform(0.0, longest_s / 4))
    server.start()


TROUBLES: list[Trouble] = [link_cut, client_killed, connections_reset, server_killed]


def numbered(lines: int) -> bytes:
    return b"".join(b"%d\n" % i for i in range(lines))


def the_run(shell: Shell) -> dict[str, Any] | None:
    runs: list[dict[str, Any]] = json.loads(shell.dray("runs", "--json").stdout)
    return runs[0] if runs else None


def drill(
    world: World, shell: Shell, rng: random.Random, troubles: list[Trouble], scale: tuple[int, int, float],
    longest_s: float,
) -> None:  # fmt: skip
    """One run of that many (lines, points, seconds), and those troubles at random moments of it."""
    lines, points, seconds = scale
    server = world.far()
    attached(world, shell, server)
    shell.write("count.py", COUNT)
    began = time.monotonic()
    words: tuple[str, ...] = ("submit", "-c", "box", "count.py", *map(str, scale))
    client = Client(shell, world.folder / "out", *words)
    moments = sorted(rng.uniform(0.0, seconds) for _ in troubles)
    for moment, trouble in zip(moments, troubles, strict=True):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        trouble(server, client, rng, longest_s)
        if client.was_killed:
            found = the_run(shell)
            # Killed before there was a run: then it is submitted again, as a person would.
            words = ("follow", found["id"]) if found else words
            client = Client(shell, world.folder / "out", *words)
    code = client.process.wait(LONGEST_S)

    story = f"{[t.__name__ for t in troubles]} at {moments}: {client.said()}\n{server.log()[-2000:]}"
    starts = server.home / "starts"
    run = the_run(shell)
    assert run is not None, story
    if (run.get("reason") or {}).get("kind") == "not-started":
        assert not starts.exists(), story
        return
    assert starts.read_text() == run["id"] + "\n", story  # it was started once
    assert (code, run["exit_code"]) == (7, 7), story
    assert client.out.read_bytes() == numbered(lines), story
    assert shell.dray("logs", run["id"]).stdout == numbered(lines), story
    loss = json.loads(shell.dray("metrics", run["id"], "loss", "--json").stdout)["loss"]
    steps = [*range(0, lines, lines // points)]
    assert (loss["steps"], loss["values"]) == (steps, [step / 4 for step in steps]), story
    wait_until(lambda: not _left(server, run["id"]), server.log)


LARGE = """
import hashlib, os, sys
seen = hashlib.sha256()
with open("outputs/weights", "wb") as file:
    for i in range(int(sys.argv[1])):
        piece = os.urandom(1 << 16) * 16
        seen.update(piece)
        file.write(piece)
print(seen.hexdigest())
"""


def fetched(world: World, shell: Shell, rng: random.Random, megabytes: int, troubles: list[Trouble]) -> None:
    """A large output, fetched over a link with those troubles; killed clients are followed by others."""
    server = world.far()
    attached(world, shell, server)
    shell.write("large.py", LARGE)
    with shell.start("submit", "-c", "box", "large.py", str(megabytes)) as process:
        digest = process.communicate(timeout=LONGEST_S)[0].decode().strip()
    to = world.folder / "fetched"
    words = ("outputs", "@last", "--to", str(to))
    client = Client(shell, world.folder / "out", *words)
    for number, trouble in enumerate(troubles):
        due = (number + 1) * (megabytes << 20) // (len(troubles) + 1)
        _wait_for_bytes(to, due, client)
        trouble(server, client, rng, 6.0)
        if client.was_killed:
            client = Client(shell, world.folder / "out", *words)

    assert client.process.wait(LONGEST_S) == 0, client.said()
    with (to / "weights").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest
    assert os.listdir(to) == ["weights"]  # nothing is left of the parts


def _wait_for_bytes(folder: Path, due: int, client: Client) -> None:
    wait_until(lambda: _size_of(folder) >= due or client.process.poll() is not None, client.said, LONGEST_S)
    assert client.process.poll() is None, client.said()  # else it was not in the middle


def _size_of(folder: Path) -> int:
    """Of all in it, parts included."""
    try:
        return sum(entry.stat().st_size for entry in os.scandir(folder))
    except FileNotFoundError:
        return 0


def _left(server: Server, run_id: str) -> list[int]:
    """Processes of the run."""
    found = []
    for pid in server.processes():
        try:
            if f"DRAY_RUN_ID={run_id}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def test_a_run_of_many_troubles_is_what_it_would_have_been(world: World, shell: Shell) -> None:
    seed = os.urandom(4).hex()
    print("seed", seed)
    rng = random.Random(seed)
    troubles = [*TROUBLES]
    rng.shuffle(troubles)
    drill(world, shell, rng, troubles, (60_000, 6_000, 6.0), 2.5)


def test_a_large_output_survives_a_killed_client_and_a_broken_link(world: World, shell: Shell) -> None:
    fetched(world, shell, random.Random(), 200, [connections_reset, client_killed])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_very_large_output_survives_every_trouble(
    world: World, shell: Shell, pytestconfig: pytest.Config
) -> None:
    megabytes = int(pytestconfig.getoption("--gigabytes") * 1024)
    fetched(world, shell, random.Random(), megabytes, [*TROUBLES, link_cut, connections_reset])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_drills_at_random_moments_lose_and_double_nothing(
    world: World, shell: Shell, drill_number: int
) -> None:
    seed = os.urandom(4).hex()
    print("seed", seed)
    trouble = TROUBLES[drill_number % len(TROUBLES)]
    drill(world, shell, random.Random(seed), [trouble], (1_000_000, 100_000, 15.0), 60.0)
