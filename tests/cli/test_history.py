"""The commands that look back, on runs that really ran."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell

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


def test_a_metric_that_is_not_there_lists_those_that_are(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "los")

    assert done.returncode == 2
    assert b"`loss`" in done.stderr


def test_a_metric_in_the_place_of_the_run_is_told_where_it_belongs(ran: Shell) -> None:
    done = ran.dray("metrics", "loss")

    assert done.returncode == 2
    assert b"loss" in done.stderr


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


def test_a_log_that_is_not_there_lists_those_that_are(ran: Shell) -> None:
    done = ran.dray("logs", "good", "--stream", "scirpt")

    assert done.returncode == 2
    assert b"`script`" in done.stderr


def test_following_an_ended_run_ends_like_its_submit_did(ran: Shell) -> None:
    done = ran.dray("follow", "bad")

    assert done.returncode == 3
    assert b"exit code 3" in done.stderr


def test_waiting_ends_with_the_first_code_that_is_not_0(ran: Shell) -> None:
    both = ran.dray("wait", "good", "bad")

    assert both.returncode == 3
    assert [line.split(b"\t")[1] for line in both.stdout.splitlines()] == [b"completed", b"failed"]
    assert ran.dray("wait", "good").returncode == 0


def test_outputs_are_listed(ran: Shell) -> None:
    files = json.loads(ran.dray("outputs", "good", "--json").stdout)

    assert {(file["path"], file["bytes"]) for file in files} == {("model.pkl", 5000), ("plots/a.png", 3)}
    assert b"model.pkl" in ran.dray("outputs", "good").stdout


@pytest.mark.parametrize(
    ("wish", "files"),
    [
        ([], {"model.pkl", "plots/a.png"}),
        (["model.pkl"], {"model.pkl"}),
        (["outputs/model.pkl"], {"model.pkl"}),
        (["plots"], {"plots/a.png"}),
        (["*.png"], {"plots/a.png"}),
    ],
)
def test_outputs_are_fetched(ran: Shell, tmp_path: Path, wish: list[str], files: set[str]) -> None:
    done = ran.dray("outputs", "good", *wish, "--to", str(tmp_path / "here"))

    here = {
        str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*") if path.is_file()
    }
    assert here == files
    assert {Path(line) for line in done.stdout.decode().splitlines()} == {
        tmp_path / "here" / name for name in files
    }


def test_an_output_that_is_not_there_lists_those_that_are(ran: Shell, tmp_path: Path) -> None:
    done = ran.dray("outputs", "good", "modle.pkl", "--to", str(tmp_path))

    assert done.returncode == 2
    assert b"model.pkl" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_not_there_is_a_misuse(ran: Shell) -> None:
    for command in ("show", "logs", "follow", "wait", "cancel", "rm", "outputs"):
        done = ran.dray(command, "nosuchrun")
        assert (done.returncode, done.stdout) == (2, b""), command
        assert b"nosuchrun" in done.stderr


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
