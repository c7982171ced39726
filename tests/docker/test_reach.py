"""Into a live run in a container: commands, a terminal, ports."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell, wait_until
from tests.cli.test_forward import free_port
from tests.docker.world import BASE


@pytest.fixture
def run(shell: Shell) -> str:
    shell.write("long.py", "import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    made = shell.dray(
        "submit", "-d", "--image", BASE, "-e", "SEEN=plain", "--secret", "TOKEN", "long.py", env={"TOKEN": "s3cret-value"}
    )  # fmt: skip
    assert made.returncode == 0, made.stderr.decode()
    return made.stdout.decode().strip()


@pytest.fixture(autouse=True)
def _ended(shell: Shell) -> object:
    yield
    shell.dray("cancel", "@last", "--grace", "0")
    shell.dray("wait", "@last")


def test_a_command_runs_inside_the_container(shell: Shell, run: str) -> None:
    with shell.start(
        "exec", run, "--", "sh", "-c", "pwd; echo $SEEN,$TOKEN,$DRAY_RUN_ID; cat; exit 3", stdin=True
    ) as process:
        out, err = process.communicate(b"x" * 1_000_000, timeout=60)
    assert process.returncode == 3, err.decode()
    folder, said, rest = out.decode().split("\n", 2)
    assert not Path(folder).exists(), "that is a folder of the container"
    assert (said, len(rest)) == (f"plain,,{run}", 1_000_000)
    withit = shell.dray("exec", run, "--secrets", "--", "sh", "-c", "echo $TOKEN")
    assert withit.stdout == b"s3cret-value\n", withit.stderr.decode()
    logged = shell.dray("exec", run, "python3", "-c", "import dray; dray.log(late=2.5)")
    assert logged.returncode == 0, logged.stderr.decode()
    assert b"2.5" in shell.dray("metrics", run, "late", "--csv").stdout
    assert shell.dray("exec", run, "no-such-program").returncode in (126, 127)


def test_a_terminal_inside_the_container(shell: Shell, run: str) -> None:
    # An engine tells its terminal the size a moment after the command was started.
    words = 'echo $TERM; while [ "$(stty size)" = "0 0" ]; do sleep 0.05; done; stty size; read key; exit 4'
    with shell.terminal("exec", run, "-it", "--", "sh", "-c", words) as terminal:
        terminal.until(b"xterm-256color\r\n")
        terminal.until(b"40 100\r\n")
        terminal.press(b"\r")
        assert terminal.ended() == 4


@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
def test_a_command_inside_the_container_ends_with_its_client(shell: Shell, run: str, how: str) -> None:
    with shell.start("exec", run, "--", "sh", "-c", "echo on; sleep 1301") as process:
        assert process.stdout.readline() == b"on\n", process.communicate()
        wait_until(lambda: _alive("sleep 1301"))
        process.send_signal(signal.SIGINT if how == "ctrl-c" else signal.SIGKILL)
        process.wait(20)
    wait_until(lambda: not _alive("sleep 1301"))
    assert b'"status": "running"' in shell.dray("show", run, "--json").stdout


def test_what_a_command_leaves_running_inside_ends_with_it(shell: Shell, run: str) -> None:
    done = shell.dray("exec", run, "--", "sh", "-c", "sleep 1302 >/dev/null 2>&1 & echo on")

    assert (done.returncode, done.stdout) == (0, b"on\n"), done.stderr.decode()
    wait_until(lambda: not _alive("sleep 1302"))


def test_a_signal_reaches_the_command_inside(shell: Shell, run: str) -> None:
    words = "trap 'echo got; exit 5' INT; echo on; while :; do sleep 0.1; done"
    with shell.start("exec", run, "--", "sh", "-c", words) as process:
        assert process.stdout.readline() == b"on\n", process.communicate()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert out == b"got\n"


def test_a_port_of_a_container_on_the_machines_network_is_brought_here(shell: Shell) -> None:
    port = free_port()
    shell.write(
        "serve.py",
        "import http.server\n"
        f"http.server.HTTPServer(('0.0.0.0', {port}), http.server.SimpleHTTPRequestHandler).serve_forever()\n",
    )
    run = shell.detached("--image", BASE, "--network", "host", "serve.py")
    with shell.start("forward", run, str(port)) as process:
        url = process.stdout.readline().decode().strip()
        assert b"serve.py" in urllib.request.urlopen(url, timeout=60).read()
        shell.dray("cancel", run, "--grace", "0")
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err.decode()


def _alive(line: str) -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        try:
            if (
                name.isdigit()
                and Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").strip() == line.encode()
            ):
                found.append(name)
        except OSError:
            continue
    return found
