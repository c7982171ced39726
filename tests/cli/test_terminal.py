"""What changes when somebody is looking: escapes are filtered, states are coloured, questions are asked."""

from __future__ import annotations

import re

import pytest

from tests.cli.dray_shell import LIMIT_S, Shell
from tests.cli.slow_index import SlowIndex

COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def test_colours_pass_and_commands_to_the_terminal_do_not(shell: Shell) -> None:
    shell.write(
        "show.py",
        r"print('\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[6n\x1b[?1049h\x1b]52;c;eA==\x1b\\end')" "\n",
    )

    with shell.terminal("submit", "show.py") as terminal:
        code = terminal.ended()

    assert code == 0
    assert b"\x1b[31mred\x1b[0m end\r\n" in terminal.seen
    for command in (b"title", b"\x1b[6n", b"1049", b"eA=="):
        assert command not in terminal.seen
    assert (
        shell.dray("logs").stdout
        == b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[6n\x1b[?1049h\x1b]52;c;eA==\x1b\\end\n"
    )


def test_names_of_metrics_do_not_command_the_terminal(shell: Shell) -> None:
    shell.write("odd.py", "import dray\ndray.log({'\\x1b]0;title\\x07loss': 0.5})\n")
    shell.detached("odd.py")
    shell.dray("wait")

    for words in ("metrics", "--csv"), ("metrics", "--json"), ("metrics",), ("show",), ("follow",):
        with shell.terminal(*words) as terminal:
            assert terminal.ended() == 0
        assert b"\x1b]" not in terminal.seen, words
    assert b"\x1b]0;title\x07loss" in shell.dray("metrics", "--csv").stdout


def test_a_colour_left_on_and_a_line_left_open_do_not_spill_into_the_summary(shell: Shell) -> None:
    shell.write("open.py", r"print('\x1b[31mstill red', end='')" "\n")

    with shell.terminal("submit", "open.py") as terminal:
        terminal.ended()

    assert b"still red\x1b[0m\r\ndray: " in terminal.seen


def test_ctrl_c_on_a_terminal_leaves_the_run_alone(shell: Shell) -> None:
    shell.write("slow.py", "import time\nprint('begun', flush=True)\ntime.sleep(60)\n")

    with shell.terminal("submit", "slow.py") as terminal:
        terminal.until(b"begun")
        terminal.press(b"\x03")
        code = terminal.ended()
    status = shell.dray("show", "--json").stdout
    shell.dray("cancel", "@last", "--grace", "1s")

    assert code == 130
    assert b"dray follow " in terminal.seen
    assert b"^C\r\ndray: left; " in terminal.seen
    assert b'"status": "running"' in status


def test_states_are_coloured_on_a_terminal_unless_nobody_wants_it(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    shell.dray("submit", "hello.py")

    with shell.terminal("runs") as coloured:
        coloured.ended()
    with shell.terminal("runs", env={"NO_COLOR": "1"}) as plain:
        plain.ended()

    assert b"\x1b[32mcompleted\x1b[0m" in coloured.seen
    assert b"completed" in plain.seen
    assert b"\x1b" not in plain.seen


def test_what_dray_says_of_states_and_errors_is_coloured_too(shell: Shell) -> None:
    shell.write("bad.py", "raise SystemExit(3)\n")

    with shell.terminal("submit", "bad.py") as coloured:
        coloured.ended()
    with shell.terminal("show", "nosuchrun") as mistaken:
        mistaken.ended()
    with shell.terminal("submit", "bad.py", env={"NO_COLOR": "1"}) as plain:
        plain.ended()

    assert b" \x1b[31mfailed\x1b[0m: exit code 3" in coloured.seen
    assert mistaken.seen.startswith(b"\x1b[31mdray:\x1b[0m there is no run")
    assert b"\x1b[3" not in plain.seen


@pytest.mark.parametrize("columns", [30, 45, 60, 80])
def test_ids_and_states_are_never_cut(shell: Shell, columns: int) -> None:
    shell.write("hello.py", "print('hello')\n")
    words = ["--name", "a-name-of-some-length", "--experiment", "an-experiment-of-some-length", "hello.py"]
    run = shell.detached(*words)
    shell.dray("wait", run)

    with shell.terminal("runs", columns=columns) as terminal:
        terminal.ended()

    line = terminal.seen.split(b"\r\n")[1]
    assert line.startswith(run.encode() + b"  ")
    assert b"\x1b[32mcompleted\x1b[0m" in line
    assert len(COLOUR.sub(b"", line)) <= columns


def test_a_table_fits_the_terminal(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    shell.dray("submit", "hello.py", *[f"--a-long-option-{i}" for i in range(30)])

    with shell.terminal("runs", columns=90) as terminal:
        terminal.ended()

    for line in COLOUR.sub(b"", terminal.seen).split(b"\r\n"):
        assert len(line) <= 90


def test_a_secret_without_a_value_is_asked_for_and_not_echoed(shell: Shell) -> None:
    shell.write("env.py", "import os; print(len(os.environ['TOKEN']))\n")

    with shell.terminal("submit", "--secret", "TOKEN", "env.py") as terminal:
        terminal.until(b"TOKEN: ")
        terminal.press(b"hush-hush-1234\n")
        code = terminal.ended()

    assert code == 0
    assert b"\r\n14\r\n" in terminal.seen
    assert b"hush" not in terminal.seen


def test_y_asks_nothing_even_on_a_terminal(shell: Shell) -> None:
    shell.write("env.py", "print('ran')\n")

    with shell.terminal("submit", "-y", "--secret", "TOKEN", "env.py") as terminal:
        code = terminal.ended()

    assert code == 2
    assert b"has no value" in terminal.seen


def test_removing_several_runs_is_asked_about(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    for name in ("one", "two"):
        shell.dray("submit", "--name", name, "hello.py")

    with shell.terminal("rm", "one", "two") as terminal:
        terminal.until(b"[y/N]")
        terminal.press(b"n\n")
        code = terminal.ended()

    with shell.terminal("rm", "one", "two") as asked_again:
        asked_again.until(b"[y/N]")
        asked_again.press(b"\x03")
        left = asked_again.ended()

    assert (code, left) == (1, 130)
    assert b"nothing was deleted" in terminal.seen
    assert asked_again.seen.endswith(b"^C\r\n")
    assert shell.dray("runs").stdout.count(b"hello.py") == 2


def test_what_takes_longer_than_a_second_shows_a_bar(shell: Shell) -> None:
    shell.write("slow.py", "import time; time.sleep(60)\n")
    run = shell.detached("slow.py")

    with shell.terminal("wait", run) as terminal:
        terminal.until(b"waiting for " + run.encode())
        shell.dray("cancel", run, "--grace", "1s")
        code = terminal.ended()

    first_picture = terminal.seen.decode().partition("\N{BRAILLE PATTERN DOTS-124}")[2].splitlines()[0]
    assert f"waiting for {run}" in first_picture
    assert code == 143
    assert b"canceled" in terminal.seen


def test_without_a_terminal_it_is_a_plain_line(shell: Shell) -> None:
    shell.write("slow.py", "import time; time.sleep(60)\n")
    run = shell.detached("slow.py")

    with shell.start("wait", run) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        shell.dray("cancel", run, "--grace", "1s")
        process.communicate()

    assert line == f"dray: waiting for {run} (1.0s)\n".encode()


def test_what_is_waited_for_comes_back_after_output_and_counts_from_its_beginning(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    shell.write("conda_dependencies.yml", "dependencies:\n- pip:\n  - no-such-package-of-dray==99\n")

    with SlowIndex() as index, shell.start("submit", "hello.py", env=index.env) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, b"")
        assert any(b"preparing" in line for line in lines)
        again = next(line for line in lines if b"environment: solving (" in line)
        later = next(line for line in lines if b"environment: solving (" in line)
        index.answer.set()
        process.communicate(timeout=LIMIT_S)

    seconds = [float(line.partition(b"(")[2].partition(b"s)")[0]) for line in (again, later)]
    # From the beginning of the solving, which is later than that of the waiting.
    assert 0 < seconds[0] < seconds[1] < LIMIT_S
    assert process.returncode == 125
