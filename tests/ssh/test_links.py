"""Links that break: silently, by a reset, with the ssh server, with the client. The run knows nothing of it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.cli.dray_shell import Shell, wait_until
from tests.ssh.world import Server, World

NUMBERED = """
import time, dray
for i in range(400):
    print(i, flush=True)
    dray.log(loss=1 / (i + 1), step=i)
    time.sleep(0.01)
raise SystemExit(7)
"""
LINES = b"".join(b"%d\n" % i for i in range(400))


def attached(world: World, shell: Shell, server: Server, name: str = "box") -> None:
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    words = ("--address", f"{server.user}@{server.address}", "--port", str(server.port))
    done = shell.dray("attach", "vm", name, *words)
    assert done.returncode == 0, done.stderr.decode() + server.log()


def pulled(server: Server) -> None:
    assert server.link
    server.link.pull()
    time.sleep(2.0)
    server.link.plug()


def reset(server: Server) -> None:
    assert server.link
    server.link.reset()


def restarted(server: Server) -> None:
    server.stop()
    server.cut()
    time.sleep(0.5)
    server.start()


@pytest.mark.parametrize("trouble", [pulled, reset, restarted])
def test_a_follower_takes_up_a_broken_link_at_the_byte(
    world: World, shell: Shell, trouble: Callable[[Server], None]
) -> None:
    server = world.far()
    attached(world, shell, server)
    shell.write("count.py", NUMBERED)
    with shell.start("submit", "-c", "box", "count.py") as process:
        assert process.stdout
        first = os.read(process.stdout.fileno(), 100)  # what `read` takes ahead, `communicate` would miss
        trouble(server)
        out, err = process.communicate(timeout=100)

    assert process.returncode == 7, err.decode()
    assert first + out == LINES
    assert json.loads(shell.dray("metrics", "@last", "loss", "--json").stdout)["loss"]["steps"] == [
        *range(400)
    ]


def test_a_killed_client_loses_nothing_and_starts_nothing_twice(world: World, shell: Shell) -> None:
    server = world.far()
    attached(world, shell, server)
    shell.write("count.py", NUMBERED)
    for pause in (0.05, 0.1, 0.2, 0.4):
        process = shell.start("submit", "-c", "box", "count.py")
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    runs = json.loads(shell.dray("runs", "--json").stdout)
    for run in runs:
        code = shell.dray("wait", run["id"]).returncode
        logged = shell.dray("logs", run["id"]).stdout
        assert (code, logged) in ((7, LINES), (125, b"")), run


def test_one_dead_machine_of_three_holds_up_nobody(world: World, shell: Shell) -> None:
    servers = [world.far() for _ in range(3)]
    shell.write("long.py", "import time; print('on', flush=True); time.sleep(60)")
    for number, server in enumerate(servers):
        attached(world, shell, server, f"box{number}")
        shell.detached("-c", f"box{number}", "long.py")
    states = {run["compute"]: run for run in json.loads(shell.dray("runs", "--json").stdout)}
    assert {run["status"] for run in states.values()} == {"running"}
    link = servers[1].link
    assert link
    link.pull()

    began = time.monotonic()
    done = shell.dray("runs", "--json")
    took = time.monotonic() - began
    assert took < 3.5, took  # three seconds, and something for a machine that others use too
    assert b"box1: " in done.stderr
    states = {run["compute"]: run for run in json.loads(done.stdout)}
    assert states["box1"]["unreachable"]
    assert states["box1"]["as_of"] < states["box0"]["as_of"]
    assert not states["box0"]["unreachable"]
    assert {run["status"] for run in states.values()} == {"running"}

    cancelled = shell.dray("cancel", states["box1"]["id"])
    assert cancelled.returncode != 0
    assert b"canceled" not in cancelled.stdout
    link.plug()
    wait_until(lambda: shell.dray("cancel", states["box1"]["id"], "--grace", "0").returncode == 0)
    assert shell.dray("wait", states["box1"]["id"]).returncode == 143


def test_a_run_goes_on_while_nobody_can_reach_its_machine(world: World, shell: Shell) -> None:
    server = world.far()
    attached(world, shell, server)
    shell.write("count.py", NUMBERED)
    run_id = shell.detached("-c", "box", "count.py")
    assert server.link
    server.link.pull()
    time.sleep(5)  # it ends meanwhile
    server.link.plug()

    assert shell.dray("wait", run_id).returncode == 7
    assert shell.dray("logs", run_id).stdout == LINES


def test_runs_of_a_forgotten_compute_are_found_under_its_new_name(world: World, shell: Shell) -> None:
    server = world.known()
    attached(world, shell, server, "old")
    shell.write("job.py", "open('outputs/model', 'w').write('weights')")
    run = json.loads(shell.dray("submit", "-c", "old", "--json", "job.py").stdout)["id"]
    assert shell.dray("compute", "rm", "old").returncode == 0
    attached(world, shell, server, "new")
    assert shell.dray("outputs", run, "--to", "got").returncode != 0

    assert shell.dray("adopt", "new").stdout.decode().split() == [run]
    assert shell.dray("adopt", "new").stdout == b""
    assert shell.dray("outputs", run, "--to", "got").returncode == 0
    assert (shell.folder / "got" / "model").read_text() == "weights"
    assert json.loads(shell.dray("show", run, "--json").stdout)["compute"] == "new"


def test_a_second_client_finds_runs_and_follows_them(world: World, shell: Shell) -> None:
    server = world.known()
    attached(world, shell, server)
    shell.write("hello.py", "import dray; dray.log(x=1.5); print('from the first')")
    first = json.loads(shell.dray("submit", "-c", "box", "--json", "hello.py").stdout)["id"]
    gone = json.loads(shell.dray("submit", "-c", "box", "--json", "hello.py").stdout)["id"]
    other = Shell(shell.folder, world.folder / "second home")
    other.env.update({**world.client.env, "DRAY_HOME": str(other.home)})
    attached(world, other, server, "lab")

    assert sorted(other.dray("adopt", "lab").stdout.decode().split()) == sorted([first, gone])
    assert other.dray("logs", first).stdout == b"from the first\n"
    assert other.dray("rm", gone).returncode == 0
    assert other.dray("adopt", "lab").stdout == b""
    assert shell.dray("logs", first).stdout == b"from the first\n"
