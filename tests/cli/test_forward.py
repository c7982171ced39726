"""`dray forward`: what a person reads, and how it ends."""

from __future__ import annotations

import signal
import socket
import urllib.request

from tests.cli.dray_shell import LIMIT_S, Shell

SERVE = """
import http.server, sys, time
time.sleep(1)
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind='127.0.0.1')
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_port_is_waited_for_and_its_address_printed_and_ctrl_c_leaves(shell: Shell) -> None:
    port = free_port()
    shell.write("serve.py", SERVE)
    run = shell.detached("serve.py", str(port))
    with shell.start("forward", run, str(port)) as process:
        url = process.stdout.readline().decode().strip()
        assert b"serve.py" in urllib.request.urlopen(url, timeout=LIMIT_S).read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)

    assert url.startswith("http://127.0.0.1:")
    assert (out, process.returncode) == (b"", 130)
    assert f"nothing serves port {port} there yet" in err.decode() or "to start" in err.decode()
    assert f"left; {run} goes on" in err.decode()
    shell.dray("cancel", run, "--grace", "0")


def test_it_ends_with_the_run(shell: Shell) -> None:
    shell.write("long.py", "import time; time.sleep(600)")
    run = shell.detached("long.py")
    with shell.start("forward", run, "6006") as process:
        assert b"waiting for" in process.stderr.readline()
        shell.dray("cancel", run, "--grace", "0")
        _, err = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0
    assert f"{run} has ended" in err.decode()
    again = shell.dray("forward", run, "6006")
    assert again.returncode == 125
    assert b"is not running" in again.stderr


def test_words_that_mean_no_port_are_told_what_would(shell: Shell) -> None:
    shell.write("hello.py", "")
    run = shell.detached("hello.py")
    for words, text in (
        ((run,), "which port?"),
        (("6006",), "of which run?"),
        ((run, "x"), "`x` is no port"),
        ((run, "6006:70000"), "`6006:70000` is no port"),
        (("zzzzzz", "6006"), "there is no run `zzzzzz`"),
    ):
        done = shell.dray("forward", *words)
        assert done.returncode == 2, words
        assert text in done.stderr.decode()
