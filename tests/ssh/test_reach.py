"""Into a live run on another machine: over a real ssh server, whose links break."""

from __future__ import annotations

import urllib.request

import pytest

from tests.cli.dray_shell import Shell, wait_until
from tests.cli.test_forward import free_port
from tests.ssh.test_links import attached
from tests.ssh.world import Server, World

SERVE = """
import http.server, os, sys
open('big', 'wb').write(os.urandom(30 << 20))
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def server(world: World, shell: Shell) -> Server:
    """A machine that is the compute `box`."""
    made = world.known()
    attached(world, shell, made)
    return made


def test_a_command_inside_a_run_elsewhere(shell: Shell, server: Server) -> None:
    shell.write("long.py", "import time; time.sleep(600)")
    run = shell.detached("-c", "box", "-e", "SEEN=plain", "long.py")
    with shell.start(
        "exec", run, "--", "sh", "-c", "id -un; echo $SEEN; pwd; cat; exit 5", stdin=True
    ) as process:
        out, err = process.communicate(b"x" * 3_000_000, timeout=60)
    user, seen, folder, rest = out.decode().split("\n", 3)

    assert (process.returncode, err) == (5, b"")
    assert (user, seen, len(rest)) == (server.user, "plain", 3_000_000)
    assert folder.startswith(str(server.home))
    with shell.terminal("exec", run, "-it", "--", "sh", "-c", "stty size; tty; read key; exit 4") as terminal:
        terminal.until(b"40 100\r\n/dev/pts/")
        terminal.press(b"\r")
        assert terminal.ended() == 4
    shell.dray("cancel", run, "--grace", "0")


def test_a_command_ends_when_its_link_breaks_and_the_run_goes_on(shell: Shell, server: Server) -> None:
    shell.write("long.py", "import time; time.sleep(600)")
    run = shell.detached("-c", "box", "long.py")
    with shell.start("exec", run, "--", "sh", "-c", "echo on; sleep 1201") as process:
        assert process.stdout.readline() == b"on\n"
        server.cut()
        _, err = process.communicate(timeout=60)

    assert process.returncode == 75
    assert b"the run goes on" in err
    wait_until(lambda: not [pid for pid in server.processes() if _line(pid) == b"sleep\x001201\x00"])
    assert b'"status": "running"' in shell.dray("show", run, "--json").stdout
    shell.dray("cancel", run, "--grace", "0")


def _line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_port_of_a_run_elsewhere_survives_a_broken_link(shell: Shell, server: Server) -> None:
    shell.write("serve.py", SERVE)
    port = free_port()
    run = shell.detached("-c", "box", "serve.py", str(port))
    with shell.start("forward", run, str(port)) as process:
        url = process.stdout.readline().decode().strip()
        whole = urllib.request.urlopen(f"{url}/big", timeout=60).read()
        assert len(whole) == 30 << 20
        server.cut()
        told = iter(process.stderr.readline, b"")
        assert any(b"back after" in line for line in told)
        process.stdout.readline()
        assert urllib.request.urlopen(f"{url}/big", timeout=60).read() == whole
        shell.dray("cancel", run, "--grace", "0")
        process.communicate(timeout=60)

    assert process.returncode == 0
