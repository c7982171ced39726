"""`dray submit` in real processes: who speaks where, and with which code it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.dray_shell import LIMIT_S, Shell

HELLO = "import sys; print('hello', sys.argv[1:]); sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)\n"
SLOW = "import time\nprint('begun', flush=True)\ntime.sleep(60)\n"


def test_stdout_carries_the_scripts_bytes_and_nothing_else(shell: Shell) -> None:
    shell.write(
        "raw.py", "import os; os.write(1, bytes(range(256)) + b'\\x1b]0;title\\x07'); os.write(2, b'err')\n"
    )

    done = shell.dray("submit", "raw.py")

    assert done.stdout == bytes(range(256)) + b"\x1b]0;title\x07" + b"err"
    assert done.returncode == 0


def test_all_that_dray_says_goes_to_stderr(shell: Shell) -> None:
    shell.write("train.py", "import dray\ndray.log(loss=0.5, step=3)\n"
                            "open('outputs/model.pkl', 'w').write('x' * 5000)\nopen('stray.txt', 'w').close()\n")  # fmt: skip

    done = shell.dray("submit", "train.py", "--lr", "0.1")

    said = done.stderr.decode()
    assert done.stdout == b""
    for fact in ("train.py --lr 0.1", "1 file", "running", "completed", "loss 0.5", "model.pkl (5.0 kB)", "stray.txt",
                 "dray show "):  # fmt: skip
        assert fact in said
    assert "\x1b" not in said


def test_quiet_says_nothing_when_all_is_well_and_one_line_when_not(shell: Shell) -> None:
    shell.write("hello.py", HELLO)

    good, bad = shell.dray("submit", "-q", "hello.py"), shell.dray("submit", "-q", "hello.py", "4")

    assert good.stderr == b""
    assert bad.stderr.count(b"\n") == 1
    assert b"exit code 4" in bad.stderr


def test_it_ends_with_the_scripts_code(shell: Shell) -> None:
    shell.write("hello.py", HELLO)

    assert shell.dray("submit", "hello.py", "3").returncode == 3


def test_it_ends_with_128_and_the_signal(shell: Shell) -> None:
    shell.write("die.py", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n")

    done = shell.dray("submit", "die.py")

    assert done.returncode == 128 + signal.SIGSEGV
    assert b"SIGSEGV" in done.stderr


def test_a_timeout_ends_with_124(shell: Shell) -> None:
    shell.write("slow.py", SLOW)

    done = shell.dray("submit", "--timeout", "0.5s", "slow.py")

    assert (done.returncode, done.stdout) == (124, b"begun\n")


def test_a_command_that_cannot_be_started_ends_with_125(shell: Shell) -> None:
    assert shell.dray("submit", "--", "no-such-program-anywhere").returncode == 125


def test_all_words_after_the_script_belong_to_the_script(shell: Shell) -> None:
    shell.write("words.py", "import sys; print(sys.argv[1:])\n")

    done = shell.dray("submit", "words.py", "--json", "-q", "--", "--help", "-d")

    assert done.stdout == b"['--json', '-q', '--', '--help', '-d']\n"


def test_two_dashes_begin_any_command(shell: Shell) -> None:
    done = shell.dray("submit", "-q", "--", "sh", "-c", "echo $0 $1; exit 5", "--", "--help")

    assert (done.returncode, done.stdout) == (5, b"-- --help\n")


def test_two_dashes_are_no_value_of_an_option(shell: Shell) -> None:
    done = shell.dray("submit", "--name", "--", "train.py")

    assert done.returncode == 2
    assert b"`--` is not a value for --name" in done.stderr


def test_experiment_submit_is_the_same_command(shell: Shell) -> None:
    shell.write("hello.py", HELLO)

    assert shell.dray("experiment", "submit", "hello.py", "6").returncode == 6


def test_nothing_to_run_is_a_misuse(shell: Shell) -> None:
    done = shell.dray("submit", "--name", "x")

    assert done.returncode == 2
    assert b"nothing to run" in done.stderr


@pytest.mark.parametrize("words", [("",), ("--", ""), ("--", "", "x")])
def test_an_empty_word_is_nothing_to_run(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell.dray("submit", *words)

    assert done.returncode == 2
    assert b"nothing to run" in done.stderr
    assert b"no run yet" in shell.dray("runs").stderr


def test_json_is_one_document_on_stdout_and_the_log_goes_to_stderr(shell: Shell) -> None:
    shell.write("hello.py", HELLO)

    done = shell.dray("submit", "--json", "--tag", "stage=dev", "--name", "first", "hello.py", "3")

    run = json.loads(done.stdout)
    assert (run["status"], run["exit_code"], run["name"], run["tags"]) == (
        "failed",
        3,
        "first",
        {"stage": "dev"},
    )
    assert run["reason"]["kind"] == "exit-code"
    assert b"hello ['3']\n" in done.stderr
    assert done.returncode == 3


def test_detach_prints_the_id_only_and_the_run_goes_on(shell: Shell) -> None:
    shell.write("hello.py", HELLO)

    detached = shell.dray("submit", "--detach", "-q", "hello.py", "7")
    waited = shell.dray("wait", detached.stdout.decode().strip())

    assert detached.returncode == 0
    assert detached.stdout.count(b"\n") == 1
    assert detached.stderr == b""
    assert waited.returncode == 7


def test_detach_with_json_prints_the_document_at_once(shell: Shell) -> None:
    shell.write("slow.py", SLOW)

    done = shell.dray("submit", "--detach", "--json", "slow.py")

    run = json.loads(done.stdout)
    assert run["exit_code"] is None
    assert shell.dray("cancel", run["id"], "--grace", "1s").returncode == 0


def test_a_dry_run_shows_what_would_happen_and_starts_nothing(shell: Shell) -> None:
    shell.write("hello.py", HELLO)
    shell.write("data/big.bin", "x" * 20_000)
    shell.write("secret.log", "x")
    shell.write(".gitignore", "*.log\n")

    shown = shell.dray("submit", "--dry-run", "hello.py", "a b")
    told = json.loads(shell.dray("submit", "--dry-run", "--json", "hello.py").stdout)
    history = shell.dray("runs", "--json")

    text = shown.stdout.decode()
    assert "hello.py 'a b'" in text
    assert text.index("data/big.bin") < text.index("hello.py  ")
    assert "secret.log" in text
    assert ".gitignore:1" in text
    assert told["command"] == ["hello.py"]
    assert json.loads(history.stdout) == []


def test_what_is_seen_and_what_is_secret_reach_the_script(shell: Shell) -> None:
    shell.write(
        "env.py", "import os; print(os.environ['SEEN'], len(os.environ['TOKEN']), os.environ['TOKEN'])\n"
    )

    done = shell.dray(
        "submit", "-e", "SEEN=a=b", "--secret", "TOKEN", "env.py", env={"TOKEN": "hush-hush-1234"}
    )

    assert done.stdout.startswith(b"a=b 14 ")
    assert b"hush-hush" not in done.stdout + done.stderr


def test_an_env_that_is_a_variable_is_told_the_right_option(shell: Shell) -> None:
    shell.write("hello.py", HELLO)

    done = shell.dray("submit", "--env", "A=1", "hello.py")

    assert done.returncode == 2
    assert b"-e A=1" in done.stderr


@pytest.mark.parametrize(
    ("name", "why"), [("conda.yml", b"  try: dray submit --env conad.yml hello.py\n"), ("x", b"")]
)
def test_an_environment_file_that_is_not_there_is_a_misuse_like_any_wrong_path(
    shell: Shell, name: str, why: bytes
) -> None:
    shell.write("hello.py", HELLO)
    shell.write("conad.yml", "dependencies: []\n")

    done = shell.dray("submit", "--env", name, "hello.py")

    assert done.returncode == 2
    assert done.stderr.startswith(f"dray: there is no environment file `{name}`\n".encode())
    assert why in done.stderr


@pytest.mark.parametrize(("redirection", "says"), [("< hello.py", True), ("< /dev/null", False)])
def test_that_the_script_gets_no_stdin_is_said_where_there_is_one(
    shell: Shell, redirection: str, says: bool
) -> None:
    shell.write("hello.py", "import sys; print(repr(sys.stdin.read()))\n")
    command = f"{sys.executable} -m dray submit hello.py {redirection}"

    done = subprocess.run(
        ["sh", "-c", command], cwd=shell.folder, env=shell.env, capture_output=True, check=False
    )

    assert done.stdout == b"''\n"
    assert (b"gets no stdin" in done.stderr) is says


def test_a_pattern_that_fits_no_file_is_told_at_the_end(shell: Shell) -> None:
    shell.write("train.py", "open('model.pt', 'w').close()\n")

    vain = shell.dray("submit", "--outputs", "*.ckpt", "train.py")
    good = shell.dray("submit", "--outputs", "*.pt", "train.py")

    assert b"no file fits `--outputs *.ckpt`" in vain.stderr
    assert b"no file fits" not in good.stderr


def test_a_virtual_environment_that_is_gone_is_told_with_the_python_that_is_used(shell: Shell) -> None:
    shell.write("hello.py", HELLO)
    gone = str(shell.folder / "gone")

    done = shell.dray("submit", "hello.py", env={"VIRTUAL_ENV": gone})

    assert done.returncode == 0
    assert f"(from PATH; VIRTUAL_ENV names {gone}, where no Python is)" in done.stderr.decode()


def test_no_such_script_is_a_misuse_that_names_the_nearest(shell: Shell) -> None:
    shell.write("train.py", HELLO)

    done = shell.dray("submit", "trian.py", "--lr", "1")

    assert done.returncode == 2
    assert b"  try: dray submit train.py --lr 1\n" in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_unknown_compute_lists_the_known_ones(shell: Shell) -> None:
    shell.write("hello.py", HELLO)

    by_option = shell.dray("submit", "-c", "zzz", "hello.py")
    by_environment = shell.dray("submit", "hello.py", env={"DRAY_COMPUTE": "zzz"})

    for done in (by_option, by_environment):
        assert done.returncode == 2
        assert b"local" in done.stderr


def test_ctrl_c_leaves_and_says_how_to_return_and_how_to_stop(shell: Shell) -> None:
    shell.write("slow.py", SLOW)

    with shell.start("submit", "slow.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)

    run = json.loads(shell.dray("show", "--json").stdout)
    assert process.returncode == 130
    assert f"dray follow {run['id']}" in err.decode()
    assert f"dray cancel {run['id']}" in err.decode()
    assert b"Traceback" not in err
    assert run["status"] == "running"
    shell.dray("cancel", run["id"], "--grace", "1s")


def test_a_reader_that_goes_away_leaves_the_run_alone(shell: Shell) -> None:
    shell.write(
        "count.py", "import time\nfor i in range(40):\n    print(i, flush=True)\n    time.sleep(0.05)\n"
    )

    with shell.start("submit", "count.py") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
    waited = shell.dray("wait")
    log = shell.dray("logs").stdout

    assert process.returncode == 141
    assert b"Traceback" not in err
    assert b"Exception" not in err
    assert waited.returncode == 0
    assert log == b"".join(b"%d\n" % i for i in range(40))


def cut(process: subprocess.Popen[bytes]) -> None:
    """End the client's channel on the machine's side; the runner has left it long ago."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)


def test_a_full_disk_behind_the_output_leaves_the_run_alone(shell: Shell) -> None:
    shell.write("chatty.py", "import time\nfor i in range(40): print(i); time.sleep(0.05)\n")

    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m dray submit chatty.py > /dev/full"],
        cwd=shell.folder, env=shell.env, capture_output=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip

    assert done.returncode == 75
    assert b"the output cannot be written" in done.stderr
    assert b"goes on" in done.stderr
    assert shell.dray("follow").stdout == b"".join(b"%d\n" % i for i in range(40))


def test_a_cut_link_is_taken_up_again(shell: Shell) -> None:
    shell.write("two.py", "import time\nprint('begun', flush=True)\ntime.sleep(1)\nprint('done')\n")

    with shell.start("submit", "two.py") as process:
        assert process.stdout is not None
        process.stdout.readline()
        cut(process)
        out, _ = process.communicate(timeout=LIMIT_S)

    assert (process.returncode, out) == (0, b"done\n")


def test_a_lost_link_ends_with_75_and_the_run_goes_on(shell: Shell) -> None:
    shell.write("slow.py", SLOW)
    machine, away = shell.home / "machine", shell.home / "away"

    with shell.start("submit", "slow.py") as process:
        assert process.stdout is not None
        process.stdout.readline()
        shell.dray("logs")  # from here on the history has it, whatever the follower was doing
        machine.rename(away)
        machine.write_text("no machine here")
        cut(process)
        _, err = process.communicate(timeout=LIMIT_S)
    alone = shell.dray("logs")
    machine.unlink()
    away.rename(machine)
    run = json.loads(shell.dray("show", "--json").stdout)
    shell.dray("cancel", run["id"], "--grace", "1s")

    assert process.returncode == 75
    assert f"dray follow {run['id']}" in err.decode()
    assert b"mistake in dray" not in err
    assert (alone.returncode, alone.stdout) == (0, b"begun\n")
    assert run["status"] == "running"


def test_an_environment_that_cannot_be_built_ends_with_125_and_shows_why(shell: Shell) -> None:
    shell.write("hello.py", HELLO)
    shell.write("conda_dependencies.yml", "dependencies:\n- pip:\n  - no-such-package-of-dray==99\n")

    done = shell.dray("submit", "hello.py", env={"UV_OFFLINE": "1"})
    log = shell.dray("logs", "--stream", "environment").stdout

    assert (done.returncode, done.stdout) == (125, b"")
    alone = shell.dray("logs")

    # The sentence that says why, and not all that the builder printed.
    assert b"failed: " in done.stderr
    assert b"no-such-package-of-dray" in done.stderr
    assert len(done.stderr.splitlines()) < 10
    assert b"--stream environment" in done.stderr
    assert b"no-such-package-of-dray" in log
    assert (alone.returncode, alone.stdout) == (0, b"")
    assert b"nothing was printed; the build's log: dray logs " in alone.stderr


def test_a_canceled_run_ends_its_followers_with_143(shell: Shell) -> None:
    shell.write("slow.py", SLOW)

    with shell.start("submit", "slow.py") as process:
        assert process.stdout is not None
        process.stdout.readline()
        canceled = shell.dray("cancel", "@last")
        _, err = process.communicate(timeout=LIMIT_S)

    assert canceled.returncode == 0
    assert process.returncode == 143
    assert b"canceled" in err


def test_a_closed_stdout_is_not_mistaken_for_another_file(shell: Shell) -> None:
    shell.write("hello.py", HELLO)

    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m dray submit hello.py >&-"],
        cwd=shell.folder, env=shell.env, capture_output=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0
    assert shell.dray("logs").stdout == b"hello []\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["runs", "submit hello.py", "nonsense", "--help"])
def test_a_closed_file_is_like_dev_null(shell: Shell, words: str, closed: str) -> None:
    shell.write("hello.py", HELLO)
    dray = f"{sys.executable} -m dray {words}"
    instead = closed.replace("&-", "/dev/null")

    shut, null = (
        subprocess.run(
            ["sh", "-c", f"{dray} {away}"], cwd=shell.folder, env=shell.env, capture_output=True, check=False
        )
        for away in (closed, instead)
    )

    assert shut.returncode == null.returncode
    assert len(shut.stdout) == len(null.stdout)
    assert b"mistake in dray" not in shut.stderr


@pytest.mark.parametrize("place", ["full", "file"])
def test_trouble_with_the_world_is_told_in_a_sentence(shell: Shell, place: str) -> None:
    shell.write("hello.py", HELLO)
    if place == "full":
        command = f"{sys.executable} -m dray --help > /dev/full"
        env = shell.env
    else:
        command = f"{sys.executable} -m dray submit hello.py"
        env = {**shell.env, "DRAY_HOME": str(shell.write("a-file", ""))}

    done = subprocess.run(["sh", "-c", command], cwd=shell.folder, env=env, capture_output=True, check=False)

    assert done.returncode in (1, 125)
    assert done.stderr.startswith(b"dray: ")
    assert b"Traceback" not in done.stderr
    assert b"mistake in dray" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("submit", "--", "true"), 2),
        (("submit", "--dry-run", "hello.py"), 2),
        (("runs",), 0),
        (("doctor",), 0),
    ],
)
def test_a_shell_in_a_folder_that_is_gone_is_told_so(shell: Shell, words: tuple[str, ...], code: int) -> None:
    gone = shell.folder / "gone"
    command = 'mkdir "$0" && cd "$0" && rmdir "$0" && exec "$@"'

    done = subprocess.run(
        ["sh", "-c", command, str(gone), sys.executable, "-I", "-m", "dray", *words],
        env=shell.env, capture_output=True, check=False,
    )  # fmt: skip

    assert done.returncode == code
    assert (b"the folder that you are in is gone" in done.stderr) == (code != 0)
    assert b"mistake in dray" not in done.stderr


def test_trouble_with_the_world_before_the_start_is_no_end_of_the_script(shell: Shell) -> None:
    shell.write("hello.py", HELLO)
    shell.home.mkdir()
    (shell.home / "blobs").write_text("in the way")

    done = shell.dray("submit", "hello.py")

    assert done.returncode == 125
    assert b"a folder was expected, and there is a file" in done.stderr
