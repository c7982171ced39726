"""`dray runs` with questions: expressions, orders, columns, and what is said when there is no answer."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import time
from pathlib import Path

import pytest

from dray import DrayError, Workspace
from dray.core.where import Compare, Field, Sort
from dray.store import Store
from tests.cli.dray_shell import Shell, wait_until
from tests.store.world import EVENTS, ending, line, metric, new_run

LATEST = [0.5, 0.1, 0.3, float("nan")]


def fill(home: Path) -> None:
    """Four runs, the last one newest: r0 and r1 of digits, r2 and r3 of letters; r3 has said next to nothing."""
    with Store.open(home) as store:
        for number, loss in enumerate(LATEST):
            created = time.time() - 3600 * (10 - number)
            experiment = "digits" if number < 2 else "letters"
            run = new_run(
                store, created, name=f"r {number}", experiment=experiment, tags={"stage": f"s{number % 2}"}
            )
            params = {"lr": 0.1 * number, "model": "vit", "mixed": [1, "two", True, None][number]}
            said = [line("opened", {"rank": 0})]
            if number < 3:
                said += [line("params", {"values": params}), metric(0, **{"val/loss": 9 - number})]
            said.append(metric(1, loss="NaN" if loss != loss else loss))
            store.ingest(run, 1, EVENTS, 0, b"".join(said))
            state = ending("failed", 3, "exit-code") if number == 1 else ending()
            store.end(run, 1, state | {"duration_s": 61.0 + number}, complete=True)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A history of four runs. Only for reading."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "project").mkdir()
    shell = Shell(folder / "project", folder / "home")
    fill(shell.home)
    return shell


def names(shell: Shell, *words: str) -> list[str]:
    done = shell.dray("runs", "--json", "--columns", "name", *words)
    assert done.returncode == 0, done.stderr
    return [row["name"] for row in json.loads(done.stdout)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--where", "metrics.loss < 0.4"], ["r 2", "r 1"]),
        (["--where", "metrics.loss < 0.4 and experiment = digits"], ["r 1"]),
        (["--where", "metrics.loss < 0.4", "--experiment", "letters"], ["r 2"]),
        (["--where", "metrics.loss < 9", "--status", "failed"], ["r 1"]),
        (["--where", 'name ~ "r*"', "--limit", "1"], ["r 3"]),
        (["--where", 'metrics."val/loss".min <= 8'], ["r 2", "r 1"]),
        (["--where", "created > 8h"], ["r 3"]),
        (["--where", "not params.lr"], ["r 3"]),
        (["--where", "params.mixed = 1"], ["r 0"]),
        (["--where", "params.mixed = two or params.mixed = true"], ["r 2", "r 1"]),
        (["--sort", "metrics.loss"], ["r 1", "r 2", "r 0", "r 3"]),
        (["--sort", "-metrics.loss"], ["r 0", "r 2", "r 1", "r 3"]),
        (["--sort=-metrics.loss"], ["r 0", "r 2", "r 1", "r 3"]),
        (["--sort", "-tags.stage,metrics.loss"], ["r 1", "r 3", "r 2", "r 0"]),
        (["--sort", "params.mixed", "--limit", "3"], ["r 0", "r 2", "r 1"]),
    ],
)
def test_runs_are_found_and_ordered(asked: Shell, words: list[str], found: list[str]) -> None:
    assert names(asked, *words) == found


def test_what_was_asked_about_is_shown_beside_the_usual_columns(asked: Shell) -> None:
    done = asked.dray("runs", "--where", "metrics.loss < 9 and status = completed", "--sort", "-params.lr")

    lines = done.stdout.decode().splitlines()
    assert lines[0].split() == [
        "ID", "NAME", "EXPERIMENT", "COMPUTE", "STATUS", "CREATED", "TOOK", "metrics.loss", "params.lr", "COMMAND",
    ]  # fmt: skip
    assert lines[1].split()[-3:-1] == ["0.3", "0.2"]


def test_columns_are_aligned_by_what_they_hold(asked: Shell) -> None:
    words = "name,status,created,duration,metrics.loss,params.lr,params.mixed,params.model"
    lines = asked.dray("runs", "--columns", words).stdout.decode().splitlines()

    assert lines == [
        "NAME  STATUS     CREATED  DURATION  metrics.loss  params.lr  params.mixed  params.model",
        "r 3   completed  7h ago      1m04s           nan          -  -             -",
        "r 2   completed  8h ago      1m03s           0.3        0.2  true          vit",
        "r 1   failed     9h ago      1m02s           0.1        0.1  two           vit",
        "r 0   completed  10h ago     1m01s           0.5        0.0  1             vit",
    ]


def test_columns_as_json_are_the_values_themselves(asked: Shell) -> None:
    words = "name,duration,metrics.loss,params.mixed,metrics.val/loss.max"
    rows = json.loads(asked.dray("runs", "--columns", words, "--json").stdout)

    assert rows[:2] == [
        {
            "name": "r 3",
            "duration": 64,
            "metrics.loss": "NaN",
            "params.mixed": None,
            "metrics.val/loss.max": None,
        },
        {"name": "r 2", "duration": 63, "metrics.loss": 0.3, "params.mixed": True, "metrics.val/loss.max": 7},
    ]


def test_columns_as_csv_are_for_programs(asked: Shell) -> None:
    done = asked.dray("runs", "--csv", "--columns", "name,metrics.loss,params.mixed,status", "--sort", "name")

    assert list(csv.reader(io.StringIO(done.stdout.decode()))) == [
        ["name", "metrics.loss", "params.mixed", "status"],
        ["r 0", "0.5", "1", "completed"],
        ["r 1", "0.1", "two", "failed"],
        ["r 2", "0.3", "true", "completed"],
        ["r 3", "NaN", "", "completed"],
    ]
    usual = asked.dray("runs", "--csv").stdout.decode().splitlines()
    assert usual[0] == "id,name,experiment,compute,status,reason,exit_code,created,started,ended,duration"
    assert len(usual) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--where", "metric.loss < 1"], "  metric.loss < 1\n  ^^^^^^\n"),
        (["--where", "name = x and"], "  name = x and\n              ^\n"),
        (["--where", "status = runing"], "           ^^^^^^\n  why: did you mean `running`?\n"),
        (["--where", "metrics.loss < abc"], "                 ^^^\n"),
        (["--where", ""], "a field is missing here"),
        (["--sort", "-lr"], "  -lr\n   ^^\n"),
        (["--columns", "id;name"], "`;` means nothing here"),
        (["--columns", "id,,name"], "  id,,name\n     ^\n"),
        (["--json", "--csv"], "exclude one another"),
        (["--watch", "--csv"], "exclude one another"),
    ],
)
def test_a_wrong_word_is_pointed_at(asked: Shell, words: list[str], said: str) -> None:
    done = asked.dray("runs", *words)

    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--where", "metrics.los < 1"], "no run has a metric `los`; did you mean `loss`?"),
        (["--where", "metrics.lr < 1"], "no run has a metric `lr`; it is a parameter: params.lr"),
        (["--where", "tags.zzz or name"], "no run has a tag `zzz`; there is `stage`"),
        (["--sort", "metrics.val/los"], "no run has a metric `val/los`; did you mean `val/loss`?"),
        (["--columns", "id,params.mode"], "no run has a parameter `mode`; did you mean `model`?"),
    ],
)
def test_a_name_that_no_run_has_is_remarked_upon(asked: Shell, words: list[str], said: str) -> None:
    done = asked.dray("runs", *words)

    assert done.returncode == 0
    assert said in done.stderr.decode()


def test_what_no_run_fits_is_answered_with_what_there_is(asked: Shell) -> None:
    expression = 'metrics.loss > 2 and name ~ "net*" and params.lr = 7 and created > 1h and tags.stage = s1'
    done = asked.dray("runs", "--where", expression, "--experiment", "digit")

    said = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (0, b"")
    assert said[0] == "dray: no run fits; the history has 4 runs"
    assert "      experiment = digit: none; did you mean `digits`?" in said
    assert "      metrics.loss > 2: none; it lies between 0.1 and 0.5" in said
    assert '      name ~ "net*": none; there is `r 0` (1), `r 1` (1), `r 2` (1), `r 3` (1)' in said
    assert any(line.startswith("      created > 1h: none; it lies between 20") for line in said)
    assert "      tags.stage = s1: 2 runs" in said
    assert any(line.startswith("      params.lr = 7: none; there is `0.0` (1)") for line in said)


def test_parts_that_fit_only_apart_are_said_to(asked: Shell) -> None:
    done = asked.dray("runs", "--where", 'name = "r 0"', "--status", "failed", "--json")

    assert json.loads(done.stdout) == []
    assert b"each fits some runs, but none fits all of it" in done.stderr
    assert asked.dray("runs", "--where", "status = lost", "-q").stderr == b""


@pytest.mark.parametrize(
    "hostile", ["'; DROP TABLE run; --", "$(touch pwned)", "`touch pwned`", "a\nb", "\x1b[31mx"]
)
def test_what_means_something_to_a_shell_or_a_database_is_only_a_text(asked: Shell, hostile: str) -> None:
    quoted = json.dumps(hostile, ensure_ascii=False)

    if "\x1b" in hostile or "\n" in hostile:
        quoted = quoted.replace("\\u001b", "\x1b").replace("\\n", "\n")
    done = asked.dray("runs", "--where", f"name = {quoted}")
    bare = asked.dray("runs", "--where", hostile)

    assert done.returncode == 0, done.stderr
    assert (bare.returncode, bare.stdout) == (2, b"")
    assert b"\x1b" not in done.stderr + bare.stderr
    assert not (asked.folder / "pwned").exists()
    assert len(names(asked)) == 4


def test_an_expression_comes_through_a_real_shell(asked: Shell) -> None:
    command = """dray() { "$PY" -m dray "$@"; }
        dray runs --where 'metrics.loss < 0.4 and name ~ "r*"' --sort=-metrics.loss --columns name"""
    env = {**asked.env, "PY": str(Path(asked.env["VIRTUAL_ENV"]) / "bin" / "python")}
    done = subprocess.run(["bash", "-c", command], cwd=asked.folder, env=env, capture_output=True, check=True)

    assert done.stdout == b"NAME\nr 2\nr 1\n"


@pytest.mark.parametrize("columns", [40, 80])
def test_ids_states_and_numbers_are_never_cut_to_fit(asked: Shell, columns: int) -> None:
    words = ["runs", "--columns", "id,name,params.model,metrics.loss,status"]
    with asked.terminal(*words, columns=columns, env={"NO_COLOR": "1"}) as terminal:
        terminal.ended()

    row = terminal.seen.decode().split("\r\n")[2].split()
    assert (len(row[0]), row[-2:]) == (10, ["0.3", "completed"])


def test_a_thousand_runs_are_listed_with_their_columns(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    shell = Shell(tmp_path / "project", tmp_path / "home")
    with Store.open(shell.home) as store, store._db.writing():
        for number in range(1000):
            run = new_run(store, created=1000.0 + number, name=f"n{number}")
            store.ingest(run, 1, EVENTS, 0, line("opened", {"rank": 0}) + metric(1, loss=number / 1000))
            store.end(run, 1, ending(), complete=True)

    done = shell.dray("runs", "--limit", "0", "--columns", "id,name,metrics.loss", "--sort", "-metrics.loss")
    few = shell.dray("runs", "--where", "metrics.loss >= 0.5")

    rows = [row.split() for row in done.stdout.decode().splitlines()[1:]]
    assert [row[1:] for row in (rows[0], rows[-1])] == [["n999", "0.999"], ["n0", "0"]]
    assert len(rows) == 1000
    assert len(few.stdout.splitlines()) == 31
    assert b"there are more: --limit 90, or 0 for all" in few.stderr


def test_in_python_texts_and_trees_ask_the_same(asked: Shell) -> None:
    with Workspace(asked.home) as workspace:
        tree = Compare(Field("metrics", "loss", "last"), "<", 0.4)

        by_text = workspace.runs(where="metrics.loss < 0.4", sort="-metrics.loss", limit=5)
        by_tree = workspace.runs(where=tree, sort=[Sort(Field("metrics", "loss", "last"), descending=True)])
        columns = workspace.columns(by_text, "name,metrics.loss")
        workspace.runs(where="metrics.los < 0.4")
        warnings = list(workspace.warnings)
        with pytest.raises(DrayError) as refused:
            workspace.runs(where="metrics.loss <")

    assert [run.name for run in by_text] == [run.name for run in by_tree] == ["r 2", "r 1"]
    assert columns == [{"name": "r 2", "metrics.loss": 0.3}, {"name": "r 1", "metrics.loss": 0.1}]
    assert warnings == ["no run has a metric `los`; did you mean `loss`?"]
    assert refused.value.code == "bad-expression"


def test_what_active_and_unseen_runs_logged_is_part_of_the_answer(shell: Shell, tmp_path: Path) -> None:
    shell.write("quick.py", "import dray\ndray.log(loss=0.25, step=1)\n")
    shell.write(
        "slow.py",
        f"import os, time, dray\ndray.log(loss=0.5, step=1)\nopen({str(tmp_path / 'logged')!r}, 'w').close()\ntime.sleep(60)\n",
    )
    for script in ("quick", "slow"):
        shell.detached("--name", script, f"{script}.py")
    wait_until((tmp_path / "logged").exists)
    wait_until(lambda: list(shell.home.glob("machine/*/runs/*/attempts/1/end.json")))

    found = names(shell, "--where", "metrics.loss < 1", "--sort", "metrics.loss")
    shell.dray("cancel", "slow", "--grace", "0")

    assert found == ["quick", "slow"]


def test_the_table_comes_before_what_is_said_about_it(asked: Shell) -> None:
    command = '"$PY" -m dray runs --limit 1 --columns name 2>&1'
    env = {**asked.env, "PY": str(Path(asked.env["VIRTUAL_ENV"]) / "bin" / "python")}
    done = subprocess.run(["bash", "-c", command], cwd=asked.folder, env=env, capture_output=True, check=True)

    assert done.stdout == b"NAME\nr 3\ndray: there are more: --limit 3, or 0 for all\n"
