"""`dray exec`: inside a live run as if typed there, on a real terminal where one matters."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.cli.dray_shell import LIMIT_S, Shell, Terminal, wait_until
from tests.cli.slow_index import SlowIndex

LONG = "import time\nprint('on', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def run(shell: Shell) -> str:
    """The id of a run that goes on for long; the tests end when their folder goes."""
    shell.write("long.py", LONG)
    return shell.detached("-e", "SEEN=plain", "long.py")


@pytest.fixture(autouse=True)
def _no_run_is_left(shell: Shell) -> object:
    yield
    shell.dray("cancel", "@last", "--grace", "0")


def test_a_command_has_the_runs_folder_and_variables_and_its_own_exit_code(shell: Shell, run: str) -> None:
    words = "pwd; echo $SEEN $DRAY_RUN_ID; ls; echo oh >&2; exit 3"
    done = shell.dray("exec", run, "--", "sh", "-c", words)

    folder, *said = done.stdout.decode().splitlines()
    assert Path(folder) == next(shell.home.glob(f"machine/*/runs/{run}/code"))
    assert said == [f"plain {run}", "long.py", "outputs"]
    assert (done.returncode, done.stderr) == (3, b"oh\n")


def test_a_command_has_the_runs_python_and_its_tracking(shell: Shell, run: str) -> None:
    done = shell.dray("exec", run, "python", "-c", "import dray; dray.log(late=1.5)")

    assert done.returncode == 0, done.stderr.decode()
    assert b"1.5" in shell.dray("metrics", run, "late", "--csv").stdout


def test_output_comes_while_the_command_goes_on(shell: Shell, run: str) -> None:
    with shell.start("exec", run, "--", "sh", "-c", "echo one; read line; echo $line", stdin=True) as process:
        assert process.stdout.readline() == b"one\n"
        process.stdin.write(b"two\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"two\n"


def test_a_pipe_goes_through_in_both_directions_byte_for_byte(shell: Shell, run: str) -> None:
    data = os.urandom(20_000_000)
    with shell.start("exec", run, "cat", stdin=True) as process:
        out, err = process.communicate(data, timeout=60)

    assert (process.returncode, err) == (0, b"")
    assert out == data


def test_a_reader_that_takes_its_time_holds_the_command_up_and_fills_no_memory(
    shell: Shell, run: str
) -> None:
    with shell.start("exec", run, "--", "sh", "-c", "yes | head -c 200000000; echo >&2 done") as process:
        time.sleep(2.0)
        held = Path(f"/proc/{process.pid}/status").read_text()
        resident = int(next(row for row in held.splitlines() if row.startswith("VmRSS")).split()[1])
        assert resident < 150_000, held
        assert len(process.stdout.read()) == 200_000_000
        assert process.wait() == 0


def test_input_that_nobody_reads_holds_nothing_up(shell: Shell, run: str) -> None:
    with shell.start("exec", run, "head", "-c", "3", stdin=True) as process:
        out, _ = process.communicate(b"abc" * 5_000_000, timeout=60)

    assert (out, process.returncode) == (b"abc", 0)


def test_words_that_cannot_be_are_refused_each_with_its_code(shell: Shell, run: str) -> None:
    shell.write("plain", "no program")
    for words, code, text in (
        ((run, "--", "no-such-thing"), 127, b"`no-such-thing` was not found"),
        ((run, "--", "./long.py"), 126, b"is not executable"),
        ((run,), 2, b"nothing to run"),
        (("zzzzzz", "ls"), 2, b"there is no run `zzzzzz`"),
        ((run, "-t", "--", "ls"), 2, b"no terminal"),
        ((run, "more", "--", "ls"), 2, b"before `--`"),
        ((run, "--wrong", "--", "ls"), 2, b"--wrong"),
    ):
        done = shell.dray("exec", *words)
        assert done.returncode == code, (words, done.stderr.decode())
        assert text in done.stderr, (words, done.stderr.decode())
        assert b"Traceback" not in done.stderr


def test_a_run_that_has_ended_is_not_reached(shell: Shell, run: str) -> None:
    shell.dray("cancel", run, "--grace", "0")
    shell.dray("wait", run)
    done = shell.dray("exec", run, "ls")

    assert done.returncode == 125
    assert b"is not running" in done.stderr
    assert b"dray show" in done.stderr


def test_a_run_that_has_not_begun_is_waited_for(shell: Shell) -> None:
    shell.write("long.py", LONG)
    shell.write("conda_dependencies.yml", "dependencies:\n- pip:\n  - no-such-package-of-dray==99\n")
    with SlowIndex() as index:
        run = shell.dray("submit", "-d", "long.py", env=index.env).stdout.decode().strip()
        with shell.start("exec", run, "--", "true") as process:
            assert b"waiting for" in process.stderr.readline()
            index.answer.set()
            _, err = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 125  # the environment could not be built, so there was nothing to reach
    assert b"is not running" in err


def test_input_that_comes_before_the_run_has_begun_is_not_lost(shell: Shell) -> None:
    shell.write("long.py", LONG)
    for index in range(3000):
        shell.write(f"data/{index}", "x")  # laying them out takes a moment
    run = shell.detached("long.py")
    with shell.start("exec", run, "cat", stdin=True) as process:
        out, err = process.communicate(b"early" * 100_000, timeout=60)

    assert (process.returncode, out) == (0, b"early" * 100_000), err.decode()


def test_ctrl_c_ends_the_command_and_not_the_run(shell: Shell, run: str) -> None:
    with shell.start("exec", run, "--", "sh", "-c", "echo on; exec sleep 1001") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT
    wait_until(lambda: not _alive("sleep 1001"))
    assert b'"status": "running"' in shell.dray("show", run, "--json").stdout


def test_a_second_ctrl_c_kills_what_ignores_the_first(shell: Shell, run: str) -> None:
    with shell.start(
        "exec", run, "--", "sh", "-c", "trap 'echo no' INT; echo on; while :; do sleep 0.1; done"
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"no\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGKILL


def test_a_command_ends_with_its_run_and_leaves_nothing(shell: Shell, run: str) -> None:
    stubborn = "trap '' HUP TERM INT; echo on; setsid sleep 1002 & (setsid env -i sleep 1003 &) ; sleep 1004"
    with shell.start("exec", run, "--", "sh", "-c", stubborn) as process:
        process.stdout.readline()
        shell.dray("cancel", run, "--grace", "0")
        began = time.monotonic()
        _, err = process.communicate(timeout=20)
        took = time.monotonic() - began

    assert process.returncode == 128 + signal.SIGKILL
    assert b"has ended, and the command with it" in err
    assert took < 5
    assert not [text for text in ("sleep 1002", "sleep 1003", "sleep 1004") if _alive(text)]
    assert b'"status": "canceled"' in shell.dray("show", run, "--json").stdout


def test_a_command_never_keeps_its_run_from_ending_and_is_no_leftover(shell: Shell) -> None:
    shell.write("short.py", "import os, time\nwhile not os.path.exists('outputs/go'): time.sleep(0.02)\n")
    run = shell.detached("short.py")
    with shell.start(
        "exec", run, "--", "sh", "-c", "trap '' HUP TERM; echo on; touch outputs/go; sleep 1005"
    ) as process:
        assert shell.dray("wait", run).returncode == 0
        process.communicate(timeout=10)
    shown = shell.dray("show", run, "--json").stdout

    assert b'"leftovers": []' in shown
    assert not _alive("sleep 1005")


@pytest.mark.parametrize("victim", ["client", "server", "escort", "both"])
def test_whoever_is_killed_the_command_does_not_outlive_its_run(shell: Shell, run: str, victim: str) -> None:
    words = "(setsid sleep 1006 &); trap '' HUP TERM; echo $$; sleep 1006"
    with shell.start("exec", run, "--", "sh", "-c", words) as process:
        escort = _parent(int(process.stdout.readline()))
        server = _parent(escort)
        targets = {"client": [process.pid], "server": [server], "escort": [escort], "both": [server, escort]}
        for pid in targets[victim]:
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=20)
        if victim == "both":
            shell.dray("cancel", run, "--grace", "0")
    wait_until(lambda: not _alive("sleep 1006"))


def test_the_death_of_the_runner_ends_the_command_too(shell: Shell, run: str) -> None:
    with shell.start("exec", run, "--", "sh", "-c", "echo on; sleep 1007") as process:
        process.stdout.readline()
        shown = json.loads(
            (next(shell.home.glob(f"machine/*/runs/{run}")) / "attempts/1/streams/state.jsonl")
            .read_text()
            .splitlines()[-1]
        )
        os.kill(_parent(_parent(shown["data"]["pid"])), signal.SIGKILL)
        process.communicate(timeout=20)
    wait_until(lambda: not _alive("sleep 1007"))
    assert process.returncode != 0


def test_secrets_are_there_only_when_they_are_asked_for(shell: Shell) -> None:
    shell.write("long.py", LONG)
    done = shell.dray("submit", "-d", "--secret", "HIDDEN", "long.py", env={"HIDDEN": "s3cret-value"})
    run = done.stdout.decode().strip()
    without = shell.dray("exec", run, "--", "sh", "-c", "echo $HIDDEN,$DRAY_SECRETS,")
    withit = shell.dray("exec", run, "--secrets", "--", "sh", "-c", "echo $HIDDEN")

    assert without.stdout == b",,\n"
    assert b"without the run's secrets (HIDDEN)" in without.stderr
    assert (withit.stdout, withit.stderr) == (b"s3cret-value\n", b"")
    for path in shell.home.rglob("*"):
        if path.is_file():
            assert b"s3cret-value" not in path.read_bytes(), path


def test_a_script_that_hides_its_environment_is_reached_all_the_same(shell: Shell) -> None:
    shell.write("long.sh", "exec env -i sleep 600\n")
    run = shell.detached("-e", "SEEN=plain", "long.sh")
    wait_until(lambda: b'"status": "running"' in shell.dray("show", run, "--json").stdout)

    assert shell.dray("exec", run, "--", "sh", "-c", "echo $SEEN").stdout == b"plain\n"


# -- on a terminal


def test_a_shell_on_a_terminal_has_keys_size_and_colours(shell: Shell, run: str) -> None:
    with shell.terminal("exec", run, "-it", "--", "sh", "-c", "PS1='$ ' exec sh") as terminal:
        terminal.until(b"$ ")
        terminal.press(b"stty size; echo $TERM; test -t 0 && echo is''atty\r")
        terminal.until(b"40 100\r\n")
        terminal.until(b"xterm-256color\r\n")
        terminal.until(b"isatty\r\n")
        fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        terminal.press(b"sleep 0.3; stty size\r")
        terminal.until(b"50 120\r\n")
        terminal.press(b"sleep 600\r")
        time.sleep(0.3)
        terminal.press(b"\x03")
        terminal.press(b"printf '\\033[31mred\\033[0m'; exit 7\r")
        code = terminal.ended()

    assert code == 7
    assert b"\x1b[31mred\x1b[0m" in terminal.seen
    assert b'"status": "running"' in shell.dray("show", run, "--json").stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_terminal_is_as_it_was_however_the_client_ends(
    shell: Shell, run: str, number: signal.Signals
) -> None:
    ours, inner = pty.openpty()
    command = [sys.executable, "-m", "dray", "exec", run, "-it", "--", "sh", "-c", "echo on; sleep 1008"]
    # A shell stays on the terminal, as it does for people: the kernel hangs up one whose first process has ended.
    words = ["sh", "-c", '"$@"; sleep 60', "sh", *command]
    before = termios.tcgetattr(ours)
    with subprocess.Popen(
        words, cwd=shell.folder, env=shell.env, preexec_fn=lambda: os.login_tty(inner)  # noqa: PLW1509 # no threads here
    ) as first:  # fmt: skip
        wait_until(lambda: termios.tcgetattr(ours) != before)
        wait_until(lambda: _alive("sleep 1008"))
        (client,) = [pid for pid in _alive(" ".join(command)) if _parent(pid) == first.pid]
        os.kill(client, number)
        wait_until(lambda: termios.tcgetattr(ours) == before)
        wait_until(lambda: not _alive("sleep 1008"))
        first.kill()
    os.close(ours)
    os.close(inner)


def test_a_terminal_is_as_it_was_when_the_run_ends_first(shell: Shell, run: str) -> None:
    with shell.terminal("exec", run, "-it", "--", "cat") as terminal:
        before = _modes(terminal)
        wait_until(lambda: _modes(terminal) != before)
        shell.dray("cancel", run, "--grace", "0")
        code = terminal.ended()
        assert _modes(terminal) == before
    assert code == 128 + signal.SIGHUP or code == 128 + signal.SIGKILL
    assert b"has ended, and the command with it" in terminal.seen


def test_a_halted_terminal_is_left_with_an_escape(shell: Shell, run: str) -> None:
    with shell.terminal(
        "exec", run, "-it", "--", "sh", "-c", "stty raw -echo; echo on; sleep 1009"
    ) as terminal:
        before = _modes(terminal)
        terminal.until(b"on")
        terminal.press(b"a~.b\r~~\r~.")
        code = terminal.ended()
        assert _modes(terminal) == before
    assert code == 130
    wait_until(lambda: not _alive("sleep 1009"))


def _modes(terminal: Terminal) -> list[object]:
    return termios.tcgetattr(terminal.fd)


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except OSError:
        return b""


def _alive(line: str) -> list[int]:
    """Processes with that very command line."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _line(int(name)) == line.encode()]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
