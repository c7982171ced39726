"""`dray gc` as people type it: what it shows, what it asks, and what it says afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.dray_shell import Shell


@pytest.fixture
def two_runs(shell: Shell) -> list[str]:
    """The older one first; each with contents of its own."""
    runs = []
    for number in range(2):
        shell.write("hello.py", f"print({number})\n" + "#" * 5000)
        runs.append(shell.detached("hello.py"))
        assert shell.dray("wait", runs[-1]).returncode == 0
    return runs


def listed(shell: Shell) -> list[str]:
    return [run["id"] for run in json.loads(shell.dray("runs", "--json").stdout)]


def test_with_nothing_to_do_it_says_so(shell: Shell) -> None:
    done = shell.dray("gc")

    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"dray: there was nothing to clear away\n"


def test_a_dry_run_shows_what_would_go_and_removes_nothing(shell: Shell, two_runs: list[str]) -> None:
    done = shell.dray("gc", "--keep", "1", "--dry-run")

    lines = done.stdout.decode().splitlines()
    assert lines[0].split() == ["KIND", "WHAT", "SIZE", "WHY"]
    assert lines[1].split()[:2] == ["run", two_runs[0]]
    assert lines[1].endswith("not among the newest 1")
    assert lines[2].startswith("blobs  ")
    assert lines[2].endswith("no run needs them")
    assert lines[-1].startswith("total  ")
    assert (done.returncode, listed(shell)) == (0, two_runs[::-1])


def test_without_a_terminal_it_does_what_it_was_told(shell: Shell, two_runs: list[str]) -> None:
    done = shell.dray("gc", "--keep", "1")

    assert (done.returncode, listed(shell)) == (0, two_runs[1:])
    assert b" freed\n" in done.stderr


def test_on_a_terminal_it_asks_before_runs_go(shell: Shell, two_runs: list[str]) -> None:
    with shell.terminal("gc", "--keep", "0", columns=80) as terminal:
        terminal.until(b"dray: Delete 2 runs with their logs and outputs? [y/N] ")
        terminal.press(b"n\n")
        assert terminal.ended() == 1
        assert b"dray: nothing was deleted" in terminal.seen
    assert listed(shell) == two_runs[::-1]

    with shell.terminal("gc", "--keep", "0", columns=80) as terminal:
        terminal.until(b"[y/N] ")
        terminal.press(b"y\n")
        assert terminal.ended() == 0
    assert listed(shell) == []


def test_on_a_terminal_what_nothing_refers_to_goes_unasked(shell: Shell, two_runs: list[str]) -> None:
    shell.dray("rm", *two_runs)

    with shell.terminal("gc", columns=80) as terminal:
        assert terminal.ended() == 0

    assert b"[y/N]" not in terminal.seen
    assert b"no run needs them" in terminal.seen


def test_yes_spares_the_question(shell: Shell, two_runs: list[str]) -> None:
    with shell.terminal("gc", "--keep", "0", "-y", columns=80) as terminal:
        assert terminal.ended() == 0

    assert b"[y/N]" not in terminal.seen
    assert listed(shell) == []


def test_what_is_spared_is_told_with_the_way_out(shell: Shell) -> None:
    shell.write("save.py", "open('outputs/model', 'w').write('weights')")
    run = shell.detached("save.py")
    shell.dray("wait", run)

    done = shell.dray("gc", "--older-than", "0s")

    assert done.stderr.decode().splitlines()[:2] == [
        f"dray: 1 run stays, with outputs that were not fetched: {run}",
        "      fetch them with `dray outputs RUN --to DIR`, or give --unfetched",
    ]
    assert listed(shell) == [run]
    shell.dray("outputs", run, "--to", "there")
    shell.dray("gc", "--older-than", "0s")
    assert listed(shell) == []


def test_json_tells_what_went_and_nothing_else_is_on_stdout(shell: Shell, two_runs: list[str]) -> None:
    document: dict[str, Any] = json.loads(shell.dray("gc", "--keep", "1", "--json").stdout)

    assert [thing["kind"] for thing in document["goes"]] == ["run", "blobs"]
    assert document["goes"][0]["what"] == two_runs[0]
    assert document["freed"] == document["bytes"] > 5000
    assert (document["spared"], document["kept"], document["dry_run"]) == ([], [], False)


def test_a_budget_that_cannot_be_kept_is_told(shell: Shell, two_runs: list[str]) -> None:
    done = shell.dray("gc", "--budget", "1kB", "--keep", "2")

    assert b"more than the budget" in done.stderr
    assert b"dray: runs stay because of --keep (2)" in done.stderr
    assert listed(shell) == two_runs[::-1]


@pytest.mark.parametrize(
    ("words", "told"),
    [(("--budget", "lots"), b"50GB"), (("--older-than", "3w"), b"90s, 10m, 4h"), (("--keep", "-1"), b"--keep"),
     (("-c", "nope"), b"there is no compute `nope`"), (("30d",), b"30d")],
)  # fmt: skip
def test_words_that_do_not_fit_are_refused(shell: Shell, words: tuple[str, ...], told: bytes) -> None:
    done = shell.dray("gc", *words)

    assert (done.returncode, done.stdout) == (2, b"")
    assert told in done.stderr
