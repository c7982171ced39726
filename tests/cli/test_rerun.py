"""`dray rerun`: the same once more, with what is said anew."""

from __future__ import annotations

import json
import shutil
import stat
from typing import Any

import pytest

from tests.cli.dray_shell import Shell

SECRET = "open-sesame-77"


def newest(shell: Shell) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(shell.dray("show", "--json").stdout)
    return document


@pytest.fixture
def ran(shell: Shell) -> Shell:
    """A run `first` whose script is gone by now."""
    shell.write("train.py", "import os, sys\nprint(sys.argv[1:], os.environ.get('SEEN'))\n")
    words = ["--name", "first", "--tag", "a=1", "-e", "SEEN=yes", "--timeout", "60", "--outputs", "*.pt"]
    assert shell.dray("submit", *words, "train.py", "--lr", "0.1").returncode == 0
    shell.write("train.py", "raise SystemExit('the new script')\n")
    return shell


def test_code_words_variables_and_limits_are_those_of_the_first(ran: Shell) -> None:
    first = newest(ran)
    done = ran.dray("rerun", "first")

    assert (done.returncode, done.stdout) == (0, b"['--lr', '0.1'] yes\n")
    second = newest(ran)
    same = ("command", "folder", "snapshot", "git", "tags", "timeout_s", "env", "experiment", "compute")
    assert {name: second[name] for name in same} == {name: first[name] for name in same}
    assert (second["rerun_of"], second["name"], first["rerun_of"]) == (first["id"], None, None)
    assert f"repeats     {first['id']}\n".encode() in ran.dray("show").stdout
    assert f"as in {first['id']}".encode() in done.stderr


def test_what_is_said_anew_is_new(ran: Shell) -> None:
    words = ["--name", "second", "--experiment", "other", "--tag", "b=2", "-e", "SEEN=no", "--timeout", "30"]
    done = ran.dray("rerun", "first", *words, "--", "--lr", "1", "--", "-c")

    assert done.stdout == b"['--lr', '1', '--', '-c'] no\n"
    run = newest(ran)
    assert (run["name"], run["experiment"], run["timeout_s"]) == ("second", "other", 30)
    assert run["tags"] == {"a": "1", "b": "2"}


def test_two_dashes_alone_leave_no_words(ran: Shell) -> None:
    assert ran.dray("rerun", "first", "--").stdout == b"[] yes\n"


def test_a_rerun_of_a_rerun_names_the_one_that_was_asked_for(ran: Shell) -> None:
    second = ran.dray("rerun", "-d", "first").stdout.decode().strip()
    ran.dray("rerun", "@last")

    assert newest(ran)["rerun_of"] == second


def test_of_a_command_the_words_after_the_program_are_new(shell: Shell) -> None:
    assert shell.dray("submit", "--", "echo", "one", "two").stdout == b"one two\n"

    assert shell.dray("rerun", "@last", "--", "three").stdout == b"three\n"
    assert shell.dray("rerun", "@last").stdout == b"three\n"


def test_the_exit_code_is_the_script_s(shell: Shell) -> None:
    shell.write("fail.py", "raise SystemExit(3)\n")
    assert shell.dray("submit", "fail.py").returncode == 3

    assert shell.dray("rerun", "@last").returncode == 3
    document = json.loads(shell.dray("rerun", "@last", "--json").stdout)
    assert document["exit_code"] == 3


def test_a_secret_s_value_comes_again_or_nothing_is_started(shell: Shell) -> None:
    shell.write("train.py", "import os; print(len(os.environ['TOKEN']))\n")
    env = {"TOKEN": SECRET}
    assert shell.dray("submit", "--secret", "TOKEN", "train.py", env=env).returncode == 0
    first = newest(shell)["id"]

    done = shell.dray("rerun", first)
    assert done.returncode == 2
    assert b"the secret `TOKEN` has no value" in done.stderr
    assert newest(shell)["id"] == first

    assert shell.dray("rerun", first, env=env).stdout == b"14\n"
    shell.write("token", SECRET[:10] + "\n")
    assert shell.dray("rerun", first, "--secret", "TOKEN=@token").stdout == b"10\n"
    assert newest(shell)["secrets"] == ["TOKEN"]


def test_an_environment_is_that_of_the_first_run_and_not_of_the_file_now(shell: Shell) -> None:
    file = shell.write("conda_dependencies.yml", "dependencies:\n  - pip\n")
    shell.write("train.py", "print('built')\n")
    assert shell.dray("submit", "train.py").returncode == 0
    first = newest(shell)
    file.write_text("dependencies:\n  - nosuchpackage-of-dray\n")

    done = shell.dray("rerun", "@last")

    assert (done.returncode, done.stdout) == (0, b"built\n")
    assert newest(shell)["environment"]["spec"] == first["environment"]["spec"]


def test_a_python_that_is_gone_is_replaced_and_that_is_said(shell: Shell) -> None:
    folder = shell.folder.parent / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(shell.python)
    shell.write("train.py", "print('ran')\n")
    assert shell.dray("submit", "train.py", env={"VIRTUAL_ENV": str(folder.parent)}).returncode == 0
    used = newest(shell)["environment"]["python"]
    assert used == str(folder / "python")

    assert f"python: {used} (from {newest(shell)['id']})".encode() in shell.dray("rerun", "@last").stderr
    shutil.rmtree(folder)
    done = shell.dray("rerun", "@last")

    assert done.stdout == b"ran\n"
    assert f"; {used} of ".encode() in done.stderr
    assert b"is not there any more" in done.stderr


def test_a_python_of_another_machine_is_not_taken_for_ours(shell: Shell) -> None:
    shell.write("train.py", "print('ran')\n")
    assert shell.dray("submit", "train.py").returncode == 0
    (shell.home / "machine" / "id").write_text("0" * 32 + "\n")  # as if the history had come from there

    done = shell.dray("rerun", "@last")

    assert done.stdout == b"ran\n"
    assert b"was on another machine" in done.stderr


def test_code_that_is_gone_is_told_and_no_run_appears(ran: Shell) -> None:
    shutil.rmtree(ran.home / "blobs")
    for folder in ran.home.glob("machine/*/runs"):
        shutil.rmtree(folder)
    before = newest(ran)["id"]

    done = ran.dray("rerun", "first")

    assert done.returncode == 125
    assert b"the list of its files is not here" in done.stderr
    assert newest(ran)["id"] == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], b"missing argument 'RUN'"),
        (["--", "a"], b"missing argument 'RUN'"),
        (["first", "--lr", "2"], b"--lr"),
        (["first", "2"], b"try: dray rerun first -- 2"),
        (["nosuch"], b"there is no run `nosuch`"),
        (["first", "-c", "nowhere"], b"there is no compute `nowhere`"),
        (["first", "--name", "@x"], b"cannot be the name"),
        (["first", "--timeout", "0"], b"longer than nothing"),
        (["first", "--name", "--"], b"--name"),
    ],
)
def test_wrong_words_start_nothing(ran: Shell, words: list[str], said: bytes) -> None:
    before = newest(ran)["id"]
    done = ran.dray("rerun", *words)

    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr
    assert newest(ran)["id"] == before


def test_an_executable_script_stays_executable(shell: Shell) -> None:
    script = shell.write("tool", "#!/bin/sh\necho tool $1\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert shell.dray("submit", "./tool", "a").stdout == b"tool a\n"
    script.unlink()

    assert shell.dray("rerun", "@last", "--", "b").stdout == b"tool b\n"
