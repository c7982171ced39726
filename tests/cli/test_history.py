"""The commands that look back, on runs that really ran."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from tests.cli.dray_shell import Shell, wait_until

TRAIN = """
import os, dray
print("first line")
for step in range(5):
    dray.log(loss=1 / (step + 1), step=step)
dray.log(odd=float("nan"))
dray.log(odd=float("inf"))
dray.log_params(lr=0.1)
os.makedirs("outputs/plots", exist_ok=True)
open("outputs/model.pkl", "wb").write(bytes(5000))
open("outputs/plots/a.png", "wb").write(b"png")
for line in range(2, 101):
    print("line", line)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A history with one run `good` and, after it, one run `bad`. Only for reading."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "project").mkdir()
    shell = Shell(folder / "project", folder / "home")
    shell.write("train.py", TRAIN)
    shell.write("fail.py", "raise SystemExit(3)\n")
    assert shell.dray("submit", "--name", "good", "--experiment", "digits", "train.py").returncode == 0
    assert shell.dray("submit", "--name", "bad", "fail.py").returncode == 3
    return shell


def test_runs_are_a_table_with_the_newest_first(ran: Shell) -> None:
    lines = ran.dray("runs").stdout.decode().splitlines()

    assert lines[0].split()[:5] == ["ID", "NAME", "EXPERIMENT", "COMPUTE", "STATUS"]
    assert [line.split()[1] for line in lines[1:]] == ["bad", "good"]
    assert "exit code 3" in lines[1]


def test_runs_can_be_chosen(ran: Shell) -> None:
    def names(*words: str) -> list[str]:
        return [run["name"] for run in json.loads(ran.dray("runs", "--json", *words).stdout)]

    assert names() == ["bad", "good"]
    assert names("--limit", "1") == ["bad"]
    assert names("--limit", "0") == ["bad", "good"]
    assert names("--experiment", "digits") == ["good"]
    assert names("--status", "failed") == ["bad"]
    assert names("--status", "running") == []


def test_runs_say_that_there_are_more(ran: Shell) -> None:
    assert b"there are more" in ran.dray("runs", "--limit", "1").stderr
    assert b"there are more" not in ran.dray("runs", "--limit", "2").stderr


def test_an_empty_history_says_how_to_begin(shell: Shell) -> None:
    done = shell.dray("runs")

    assert (done.returncode, done.stdout) == (0, b"")
    assert b"dray submit" in done.stderr


def test_show_tells_all_of_one_run(ran: Shell) -> None:
    text = ran.dray("show", "good").stdout.decode()

    for fact in ("completed", "digits", "train.py", "lr=0.1", "loss 0.2 (step 4)", "model.pkl (5.0 kB)"):
        assert fact in text


def test_show_as_json_has_what_programs_need(ran: Shell) -> None:
    run = json.loads(ran.dray("show", "--json").stdout)

    assert set(run) >= {
        "id", "name", "experiment", "compute", "status", "reason", "exit_code", "command", "created", "started", "ended",
        "host", "snapshot", "git", "environment", "params", "tags", "metrics", "outputs", "attempts",
    }  # fmt: skip
    assert (run["name"], run["status"], run["exit_code"], run["reason"]["kind"]) == (
        "bad",
        "failed",
        3,
        "exit-code",
    )


def test_a_metric_that_is_no_number_keeps_the_json_valid(ran: Shell) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    shown = json.loads(ran.dray("show", "good", "--json").stdout, parse_constant=refuse)
    metrics = json.loads(ran.dray("metrics", "good", "--json").stdout, parse_constant=refuse)

    assert shown["metrics"]["odd"]["value"] == "Infinity"
    assert metrics["odd"]["values"] == ["NaN", "Infinity"]


def test_metrics_as_json_are_full_histories(ran: Shell) -> None:
    metrics = json.loads(ran.dray("metrics", "good", "loss", "--json").stdout)

    assert set(metrics) == {"loss"}
    assert metrics["loss"]["steps"] == [0, 1, 2, 3, 4]
    assert metrics["loss"]["values"] == [1.0, 0.5, 1 / 3, 0.25, 0.2]
    assert len(metrics["loss"]["times"]) == 5


def test_metrics_as_csv_have_the_promised_header(ran: Shell) -> None:
    rows = list(csv.reader(io.StringIO(ran.dray("metrics", "good", "--csv").stdout.decode())))

    assert rows[0] == ["name", "step", "time", "value"]
    assert [(row[1], float(row[3])) for row in rows[1:] if row[0] == "loss"] == [
        ("0", 1.0), ("1", 0.5), ("2", 1 / 3), ("3", 0.25), ("4", 0.2),
    ]  # fmt: skip
    assert [row[3] for row in rows if row[0] == "odd"] == ["NaN", "Infinity"]


def test_metrics_are_summed_up_for_people(ran: Shell) -> None:
    lines = [line.split() for line in ran.dray("metrics", "good").stdout.decode().splitlines()]

    assert ["loss", "5", "0.2", "4", "0.2", "1"] in lines


def test_a_misspelt_metric_gets_the_command_with_the_right_one(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "los", "--csv")

    assert done.returncode == 2
    assert done.stderr == b"dray: there is no metric `los`\n  try: dray metrics good loss --csv\n"


def test_a_metric_that_is_not_there_lists_those_that_are(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "zzz")

    assert done.returncode == 2
    assert b"`loss`" in done.stderr


def test_logs_are_the_bytes_of_the_log(ran: Shell) -> None:
    expected = b"first line\n" + b"".join(b"line %d\n" % number for number in range(2, 101))

    assert ran.dray("logs", "good").stdout == expected
    assert ran.dray("logs", "good", "-f").stdout == expected
    assert ran.dray("follow", "good").stdout == expected


@pytest.mark.parametrize("live", [[], ["-f"]])
def test_logs_have_a_tail(ran: Shell, live: list[str]) -> None:
    assert ran.dray("logs", "good", "--tail", "2", *live).stdout == b"line 99\nline 100\n"
    assert ran.dray("logs", "good", "--tail", "0", *live).stdout == b""
    assert ran.dray("logs", "good", "--tail", "1000", *live).stdout.startswith(b"first line\n")


def test_a_misspelt_log_gets_the_command_with_the_right_one(ran: Shell) -> None:
    done = ran.dray("logs", "good", "--stream", "scirpt")

    assert done.returncode == 2
    assert b"  try: dray logs good --stream script\n" in done.stderr


def test_following_an_ended_run_ends_like_its_submit_did(ran: Shell) -> None:
    done = ran.dray("follow", "bad")

    assert done.returncode == 3
    assert b"exit code 3" in done.stderr
    assert b"running" not in done.stderr


def test_what_a_run_went_through_is_no_news_when_it_has_ended_unseen(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    run = shell.detached("hello.py")
    end = shell.home / "machine"
    wait_until(lambda: list(end.glob(f"*/runs/{run}/attempts/1/end.json")))

    done = shell.dray("follow", run)

    assert (done.returncode, done.stdout) == (0, b"hello\n")
    assert done.stderr.startswith(f"dray: {run} completed".encode())


def test_waiting_ends_with_the_first_code_that_is_not_0(ran: Shell) -> None:
    both = ran.dray("wait", "good", "bad")

    assert both.returncode == 3
    assert [line.split(b"\t")[1] for line in both.stdout.splitlines()] == [b"completed", b"failed"]
    assert ran.dray("wait", "good").returncode == 0


def test_a_run_that_is_not_there_is_a_misuse(ran: Shell) -> None:
    for command in ("show", "logs", "follow", "wait", "cancel", "rm", "outputs", "metrics"):
        done = ran.dray(command, "nosuchrun")
        assert (done.returncode, done.stdout) == (2, b""), command
        assert b"nosuchrun" in done.stderr


def test_a_run_that_is_like_none_gets_the_newest_names(ran: Shell) -> None:
    assert b"  why: the newest are `bad`, `good`\n" in ran.dray("show", "zzzzzz").stderr


def test_a_misspelt_run_gets_the_command_with_the_right_one(ran: Shell) -> None:
    assert b"  try: dray logs good --tail 3\n" in ran.dray("logs", "goood", "--tail", "3").stderr


def test_counting_back_too_far_tells_how_many_runs_there_are(ran: Shell, shell: Shell) -> None:
    far, nothing = ran.dray("show", "@last-999"), shell.dray("show", "@last")

    assert (far.returncode, nothing.returncode) == (2, 2)
    assert b"  why: the history has 2 runs, and @last is the newest\n" in far.stderr
    assert b"  try: dray submit train.py\n" in nothing.stderr


def test_a_name_of_several_runs_gets_the_same_command_with_an_id(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    ids = {shell.detached("--name", "twin", "hello.py") for _ in range(2)}

    done = shell.dray("logs", "twin", "--tail", "1")

    tried = done.stderr.decode().partition("  try: ")[2]
    assert done.returncode == 2
    assert tried in {f"dray logs {run} --tail 1\n" for run in ids}
    shell.dray("wait", *ids)


def test_a_word_that_is_no_run_may_be_something_of_the_newest_one(shell: Shell) -> None:
    shell.write("train.py", TRAIN)
    shell.dray("submit", "train.py")
    run = json.loads(shell.dray("show", "--json").stdout)["id"]

    metrics = shell.dray("metrics", "loss", "odd", "--json")
    files = shell.dray("outputs", "*.png", "model.pkl", "--json")
    log = shell.dray("logs", "script", "--tail", "1")

    assert set(json.loads(metrics.stdout)) == {"loss", "odd"}
    assert [file["path"] for file in json.loads(files.stdout)] == ["model.pkl", "plots/a.png"]
    assert log.stdout == b"line 100\n"
    for done in (metrics, files, log):
        assert done.stderr == f"dray: of {run} (@last)\n".encode()


def test_a_run_with_the_name_of_a_metric_is_that_run(ran: Shell) -> None:
    done = ran.dray("logs", "bad")

    assert (done.returncode, done.stderr) == (0, b"")


def test_columns_that_say_nothing_are_left_out(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    shell.dray("submit", "hello.py")

    usual, more = shell.dray("runs").stdout.split(b"\n")[0], shell.dray("runs", "-v").stdout.split(b"\n")[0]

    assert usual.split() == [b"ID", b"EXPERIMENT", b"COMPUTE", b"STATUS", b"CREATED", b"TOOK", b"COMMAND"]
    assert more.split() == [*usual.split(), b"FOLDER", b"CODE"]


def test_the_reason_in_the_table_is_one_short_sentence(shell: Shell) -> None:
    name = "no-such-program-" + "x" * 200

    shell.dray("submit", "--", name)
    told = json.loads(shell.dray("show", "--json").stdout)["reason"]["text"]
    line = shell.dray("runs").stdout.decode().splitlines()[1]

    assert len(told) > 200
    assert told[:79] + "~" in line
    assert told[:90] not in line.partition(name)[2]


def test_what_runs_has_taken_some_time_so_far(shell: Shell) -> None:
    shell.write("slow.py", "import time; print('begun', flush=True); time.sleep(60)\n")
    run = shell.detached("slow.py")
    wait_until(lambda: shell.dray("logs", run).stdout)

    row = shell.dray("runs").stdout.decode().splitlines()[1].split()
    shown = shell.dray("show", run).stdout.decode()
    killed = shell.dray("cancel", run, "--grace", "0")

    assert re.search(r" \d\.\ds ", " ".join(row))
    assert re.search(r"^took +\d\.\ds so far$", shown, re.MULTILINE)
    assert f"{run} is being killed".encode() in killed.stderr


def test_what_was_given_to_the_script_is_shown_and_secrets_by_name(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    words = ["-e", "STAGE=dev 1", "--secret", "TOKEN", "hello.py"]
    shell.dray("submit", *words, env={"TOKEN": "hush-hush-1234"})

    run = json.loads(shell.dray("show", "--json").stdout)
    plan = json.loads(shell.dray("submit", "--dry-run", "--json", *words).stdout)

    for told in (run, plan):
        assert (told["env"], told["secrets"]) == ({"STAGE": "dev 1"}, ["TOKEN"])
    for text in (shell.dray("show").stdout, shell.dray("submit", "--dry-run", *words).stdout):
        assert b"STAGE=dev 1\n" in text
        assert b"TOKEN\n" in text


def test_cancelling_an_ended_run_changes_nothing(ran: Shell) -> None:
    done = ran.dray("cancel", "good", "--json")

    assert done.returncode == 0
    assert [run["status"] for run in json.loads(done.stdout)] == ["completed"]
    assert b"had ended before" in done.stderr


def test_the_computes_are_listed_shown_and_checked(ran: Shell) -> None:
    listed = json.loads(ran.dray("compute", "list", "--json").stdout)
    shown = json.loads(ran.dray("compute", "show", "--json").stdout)
    checked = json.loads(ran.dray("compute", "check", "--json").stdout)

    assert [(one["name"], one["kind"]) for one in listed] == [("local", "local")]
    assert shown["name"] == "local"
    assert {finding["level"] for finding in checked} <= {"ok", "warn"}
    assert b"local" in ran.dray("compute", "show").stdout
    assert ran.dray("compute", "check", "zzz").returncode == 2


def test_the_doctor_finds_what_is_there(ran: Shell) -> None:
    findings = json.loads(ran.dray("doctor", "--json").stdout)
    done = ran.dray("doctor")

    assert {finding["what"] for finding in findings} >= {"history", "compute local"}
    assert done.returncode == 0
    assert b"2 runs" in done.stdout


def test_removed_runs_are_forgotten_and_live_ones_are_not(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    shell.write("slow.py", "import time; time.sleep(60)\n")
    shell.dray("submit", "hello.py")
    live = shell.detached("--name", "live", "slow.py")

    refused = shell.dray("rm", "live", "@last")
    removed = shell.dray("rm", json.loads(shell.dray("runs", "--json").stdout)[1]["id"])
    left = json.loads(shell.dray("runs", "--json").stdout)
    shell.dray("cancel", "live", "--grace", "1s")

    assert refused.returncode == 1
    assert b"dray cancel" in refused.stderr
    assert removed.returncode == 0
    assert [run["id"] for run in left] == [live]
    assert shell.dray("wait", "live").returncode == 143


def test_a_history_that_was_deleted_is_made_again(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    shell.dray("submit", "--name", "kept", "hello.py")
    for path in shell.home.glob("history.db*"):
        path.unlink()

    rebuilt = shell.dray("rebuild")

    assert rebuilt.returncode == 0
    assert b"1 run " in rebuilt.stdout
    assert shell.dray("logs", "kept").stdout == b"hello\n"
