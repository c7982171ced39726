"""`dray metrics` with several runs, patterns and drawings, on runs that really ran."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from tests.cli.dray_shell import Shell
from tests.cli.test_startup import imported

TRAIN = """
import math, sys, dray
scale = float(sys.argv[1])
for step in range(100):
    dray.log({"loss": math.exp(-step / scale), "val/acc": step / 100, "val/loss": 1 - step / 100}, step=step * 10)
    dray.log(uncounted=step * scale)
dray.log(spiky=1.0, step=1)
dray.log({"evil\\x1b]0;title\\x07": 1.0, "diverges": 0.5}, step=3)
dray.log(diverges=float("nan"), step=4)
dray.log(signed=-1.0, step=1)
dray.log(signed=1.0, step=2)
if scale > 20:
    dray.log(only_slow=1.0, step=1)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A history with the runs `good`, `slow` and `empty`, the newest. Only for reading."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "project").mkdir()
    shell = Shell(folder / "project", folder / "home")
    shell.write("train.py", TRAIN)
    shell.write("empty.py", "print('nothing')\n")
    assert shell.dray("submit", "--name", "good", "train.py", "10").returncode == 0
    assert shell.dray("submit", "--name", "slow", "train.py", "30").returncode == 0
    assert shell.dray("submit", "--name", "empty", "empty.py").returncode == 0
    return shell


def ids(ran: Shell) -> dict[str, str]:
    return {run["name"]: run["id"] for run in json.loads(ran.dray("runs", "--json").stdout)}


def drawn(ran: Shell, *words: str) -> str:
    done = ran.dray("metrics", *words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_several_runs_are_drawn_over_each_other_with_a_legend(ran: Shell) -> None:
    text = drawn(ran, "good", "slow", "loss", "--plot")

    assert text.startswith("loss, by step\n")
    assert re.search(r"^  o good  \S+  x slow  \S+\n\Z", text, re.MULTILINE)
    assert text.count("o") > 4 and text.count("x") > 4
    assert len(text.splitlines()) == 23
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_runs_and_metrics_may_stand_in_any_order(ran: Shell) -> None:
    assert drawn(ran, "loss", "slow", "good", "-p") == drawn(ran, "slow", "good", "--plot", "loss")


def test_several_metrics_are_panels_below_each_other(ran: Shell) -> None:
    text = drawn(ran, "good", "loss", "val/*", "--plot")

    assert re.findall(r"^(\S+), by step$", text, re.MULTILINE) == ["loss", "val/acc", "val/loss"]


def test_without_names_a_few_metrics_are_drawn_and_the_rest_is_told(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "--plot")

    assert done.stdout.count(b", by ") == 6
    assert b"2 more metrics not drawn" in done.stderr
    assert drawn(ran, "good", "*", "--plot").count(", by ") == 8


def test_width_and_height_are_kept(ran: Shell) -> None:
    lines = drawn(ran, "good", "loss", "--width", "50", "--height", "12").splitlines()

    assert len(lines) == 12
    assert max(map(len, lines)) == 50


def test_a_metric_without_steps_is_drawn_by_its_points(ran: Shell) -> None:
    assert drawn(ran, "good", "uncounted", "--plot").startswith("uncounted, by point\n")


def test_time_and_time_since_the_start_can_be_the_axis(ran: Shell) -> None:
    assert "loss, by time since the start\n" in drawn(ran, "good", "loss", "--x", "relative")
    assert re.search(r"\d\d:\d\d", drawn(ran, "good", "loss", "--x", "time"))


def test_what_a_logarithmic_axis_cannot_show_is_told(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "signed", "--log")

    assert b"signed, log scale, by step" in done.stdout
    assert b"signed has values of 0 or less; on a log axis they are left out" in done.stderr


def test_a_loss_that_becomes_not_a_number_is_told_with_the_step(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "diverges", "--plot")

    assert b" good  nan\n" in done.stdout
    assert b"diverges is not a finite number from step 4 on" in done.stderr


def test_smoothing_is_in_the_title_and_takes_weights_below_1_only(ran: Shell) -> None:
    assert "smoothed 0.9" in drawn(ran, "good", "loss", "--smooth", "0.9")
    assert ran.dray("metrics", "good", "loss", "--smooth", "1").returncode == 2


def test_a_name_commands_no_terminal(ran: Shell) -> None:
    for words in (["evil*", "--plot"], ["--plot", "--width", "30"], []):
        assert b"\x1b" not in ran.dray("metrics", "good", *words).stdout


def test_a_terminal_gets_colours_unless_it_wants_none(ran: Shell) -> None:
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with ran.terminal("metrics", "good", "loss", "-p", env=env, columns=64) as terminal:
            assert terminal.ended() == 0
        assert (b"\x1b[36m" in terminal.seen) is coloured
        lines = re.sub(rb"\x1b\[[0-9;]*m", b"", terminal.seen).decode().splitlines()
        assert max(map(len, lines)) == 64


def test_a_terminal_with_letters_of_its_own_gets_plain_ones(ran: Shell) -> None:
    env = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}

    text = ran.dray("metrics", "good", "loss", "--plot", env=env).stdout

    assert text.isascii()
    assert b"\\u" not in text
    assert b"0.6 |" in text


def test_of_several_runs_json_is_by_run_and_csv_has_a_first_column(ran: Shell) -> None:
    known = ids(ran)

    both = json.loads(drawn(ran, "good", "slow", "loss", "--json"))
    one = json.loads(drawn(ran, "good", "loss", "--json"))
    rows = list(csv.reader(io.StringIO(drawn(ran, "slow", "good", "spiky", "--csv"))))

    assert set(both) == {known["good"], known["slow"]}
    assert both[known["good"]] == one
    assert rows[0] == ["run", "name", "step", "time", "value"]
    assert [(row[0], row[1], row[2], row[4]) for row in rows[1:]] == [
        (known["slow"], "spiky", "1", "1.0"),
        (known["good"], "spiky", "1", "1.0"),
    ]


def test_of_several_runs_the_table_tells_which(ran: Shell) -> None:
    lines = [line.split() for line in drawn(ran, "good", "slow").splitlines()]

    assert lines[0] == ["RUN", "NAME", "POINTS", "LAST", "STEP", "MIN", "MAX"]
    assert ["slow", "only_slow", "1", "1", "1", "1", "1"] in lines


def test_a_run_without_the_metric_is_left_out_of_its_panel(ran: Shell) -> None:
    assert "good" not in drawn(ran, "good", "slow", "only_slow", "--plot")


def test_a_word_that_is_neither_gets_the_nearest_metric(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "slow", "los", "--plot")

    assert done.returncode == 2
    assert done.stderr == b"dray: there is no metric `los`\n  try: dray metrics good slow loss --plot\n"


def test_a_word_that_is_neither_gets_the_nearest_run(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "sloww", "loss")

    assert done.returncode == 2
    assert b"  try: dray metrics good slow loss\n" in done.stderr


def test_a_pattern_that_fits_nothing_tells_what_there_is(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "test/*", "--plot")

    assert done.returncode == 2
    assert b"no metric fits `test/*`\n  why: known: `diverges`, " in done.stderr


def test_a_word_that_is_a_run_and_a_metric_is_not_guessed_about(shell: Shell) -> None:
    shell.write("train.py", "import dray\ndray.log(loss=0.5)\n")
    shell.dray("submit", "--name", "loss", "train.py")
    shell.dray("submit", "--name", "other", "train.py")

    done = shell.dray("metrics", "other", "loss")

    assert done.returncode == 2
    assert b"`loss` names a run and a metric" in done.stderr
    assert b"`metrics.loss`" in done.stderr
    assert drawn(shell, "other", "metrics.loss").splitlines()[1].split()[0] == "loss"


def test_an_id_s_beginning_that_is_a_metric_is_the_metric(shell: Shell) -> None:
    letters = "abcdefghjkmnpqrstvwxyz"
    shell.write("train.py", f"import dray\nfor name in {letters!r}:\n    dray.log({{name: 1.0}}, step=0)\n")
    shell.dray("submit", "train.py")
    run = json.loads(shell.dray("show", "--json").stdout)["id"]

    assert set(json.loads(drawn(shell, run[0], "--json"))) == {run[0]}
    assert set(json.loads(drawn(shell, run[:4], "--json"))) == set(letters)


def test_a_run_without_metrics_says_how_to_log_one(ran: Shell) -> None:
    done = ran.dray("metrics", "--plot")

    assert (done.returncode, done.stdout) == (0, b"")
    assert b"has logged no metric" in done.stderr


def test_a_drawing_and_data_exclude_one_another(ran: Shell) -> None:
    assert ran.dray("metrics", "good", "--plot", "--json").returncode == 2
    assert ran.dray("metrics", "good", "--log", "--csv").returncode == 2


def test_a_live_drawing_grows_until_the_run_ends(shell: Shell) -> None:
    shell.write(
        "train.py",
        "import os, time, dray\ndray.log(loss=1.0, step=0)\n"
        "while not os.path.exists('go'):\n    time.sleep(0.05)\ndray.log(loss=9.0, step=7)\n",
    )
    run = shell.detached("train.py")

    with shell.terminal("metrics", run, "--live") as terminal:
        terminal.until(b"  1\x1b[0m")
        code = next((shell.home / "machine").glob(f"*/runs/{run}/code"))
        (code / "go").touch()
        assert terminal.ended() == 0

    assert b"  9\x1b[0m" in terminal.seen.rpartition(b"\x1b[J")[2]


def test_leaving_a_live_drawing_leaves_the_run(shell: Shell) -> None:
    shell.write("train.py", "import time, dray\ndray.log(loss=1.0, step=0)\ntime.sleep(600)\n")
    run = shell.detached("train.py")

    with shell.terminal("metrics", run, "-f") as terminal:
        terminal.until(b"  1\x1b[0m")
        terminal.press(b"\x03")
        assert terminal.ended() == 130

    assert b"left; what runs goes on" in terminal.seen
    assert json.loads(shell.dray("show", run, "--json").stdout)["status"] == "running"
    shell.dray("cancel", run, "--grace", "0s")


def test_a_live_drawing_needs_a_terminal(ran: Shell) -> None:
    done = ran.dray("metrics", "good", "--live")

    assert done.returncode == 2
    assert b"`--live` draws on a terminal only" in done.stderr


def test_only_a_drawing_imports_what_draws(ran: Shell) -> None:
    assert "plotille" not in imported(ran, "metrics", "good", "loss")
    assert "plotille" in imported(ran, "metrics", "good", "loss", "--plot")
