"""`dray tables` and `dray images`, on what a script really logged, or tried to."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
TRAIN = f"""
import dray
picture = {PICTURE!r}
dray.log_table("confusion", [{{"class": "cat", "right": 7}}, {{"class": "dog", "right": 3.25}}], step=1)
dray.log_table("confusion", [{{"class": "cat", "right": 9}}, {{"class": "dog", "right": None}}], step=2)
dray.log_table("evil\\x1b[31m", [["a\\x1b]0;x\\x07", "line\\nbreak"], [1, [2, 3]]], columns=["same", "same"])
dray.log_table("../../outside", [[n] for n in range(100)])
dray.log_image("plots/curve", picture, step=1)
dray.log_image("plots/curve", picture + b"2", step=2)
dray.log_image("../../../etc/passwd", picture)
dray.log_image("/etc/passwd", picture + b"3")
dray.log_image("\\x1b[2J", picture)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A history with the runs `good` and, after it, `bare`. Only for reading."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "project").mkdir()
    shell = Shell(folder / "project", folder / "home")
    shell.write("train.py", TRAIN)
    assert shell.dray("submit", "--name", "good", "train.py").returncode == 0
    assert shell.dray("submit", "--name", "bare", "--", "true").returncode == 0
    return shell


def test_tables_are_listed_with_step_and_size(ran: Shell) -> None:
    lines = [line.split() for line in ran.dray("tables", "good").stdout.decode().splitlines()]

    assert lines[0] == ["NAME", "STEP", "ROWS", "COLUMNS"]
    assert lines[1:3] == [
        ["confusion", "1", "2", "class,", "right"],
        ["confusion", "2", "2", "class,", "right"],
    ]


def test_the_last_table_of_a_name_is_shown_and_the_others_are_told(ran: Shell) -> None:
    done = ran.dray("tables", "good", "confusion")

    assert done.stdout.decode().splitlines() == ["class  right", "cat        9", "dog"]
    assert done.stderr == b"dray: confusion, step 2: 2 rows; 1 earlier one: --step\n"


def test_the_table_of_a_step_can_be_had(ran: Shell) -> None:
    first = ran.dray("tables", "good", "confusion", "--step", "1", "--csv").stdout.decode()
    missing = ran.dray("tables", "good", "confusion", "--step", "5")

    assert list(csv.reader(io.StringIO(first))) == [["class", "right"], ["cat", "7"], ["dog", "3.25"]]
    assert missing.returncode == 2
    assert b"no table of step `5`\n  why: known: `1`, `2`\n" in missing.stderr


def test_tables_as_json_are_whole(ran: Shell) -> None:
    tables = json.loads(ran.dray("tables", "good", "--json").stdout)

    assert [table["name"] for table in tables] == ["confusion", "confusion", "evil\x1b[31m", "../../outside"]
    assert tables[1]["rows"] == [["cat", 9], ["dog", None]]
    assert len(tables[3]["rows"]) == 100


def test_a_misspelt_table_gets_the_command_with_the_right_one(ran: Shell) -> None:
    assert ran.dray("tables", "good", "confusio").stderr == (
        b"dray: there is no table `confusio`\n  try: dray tables good confusion\n"
    )


def test_csv_of_several_tables_asks_which(ran: Shell) -> None:
    done = ran.dray("tables", "good", "--csv")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"`confusion`" in done.stderr


def test_what_is_in_a_table_commands_no_terminal(ran: Shell) -> None:
    name = "evil\x1b[31m"
    for words in (["good"], ["good", name], ["good", name, "--csv"]):
        with ran.terminal("tables", *words) as terminal:
            assert terminal.ended() == 0
        assert b"\x1b" not in terminal.seen
        assert b"\x07" not in terminal.seen
    piped = ran.dray("tables", "good", name, "--csv").stdout.decode()
    assert list(csv.reader(io.StringIO(piped))) == [
        ["same", "same"],
        ["a\x1b]0;x\x07", "line\nbreak"],
        ["1", "[2, 3]"],
    ]


def test_columns_of_the_same_name_are_both_shown(ran: Shell) -> None:
    lines = ran.dray("tables", "good", "evil\x1b[31m").stdout.decode().splitlines()

    assert lines[0].split() == ["same", "same", "(2)"]
    assert lines[2].split() == ["1", "[2,", "3]"]


def test_a_long_table_is_cut_to_the_terminal_and_says_so(ran: Shell) -> None:
    with ran.terminal("tables", "good", "../../outside") as terminal:
        assert terminal.ended() == 0

    assert terminal.seen.count(b"\n") < 40
    assert b"more rows: --csv has all" in terminal.seen
    assert ran.dray("tables", "good", "../../outside").stdout.count(b"\n") == 101


def test_pictures_are_listed_with_step_format_and_size(ran: Shell) -> None:
    lines = [line.split() for line in ran.dray("images", "good").stdout.decode().splitlines()]

    assert lines[0] == ["NAME", "STEP", "FORMAT", "SIZE"]
    assert lines[1] == ["plots/curve", "1", "png", "2.1", "kB"]
    assert lines[5][0] == "\\x1b[2J"


def test_pictures_are_saved_byte_for_byte(ran: Shell, tmp_path: Path) -> None:
    done = ran.dray("images", "good", "plots/curve", "--to", str(tmp_path))

    assert done.stdout.decode().splitlines() == [
        str(tmp_path / "plots_curve-1.png"),
        str(tmp_path / "plots_curve-2.png"),
    ]
    assert (tmp_path / "plots_curve-1.png").read_bytes() == PICTURE
    assert (tmp_path / "plots_curve-2.png").read_bytes() == PICTURE + b"2"


def test_whatever_a_picture_or_table_is_called_it_stays_in_the_folder(ran: Shell, tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    for command in ("images", "tables"):
        assert ran.dray(command, "good", "--to", str(inner)).returncode == 0

    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.parent for path in files} == {inner}
    assert {path.name for path in files if path.suffix == ".png"} == {
        "plots_curve-1.png", "plots_curve-2.png", "etc_passwd.png", "etc_passwd-2.png", "2J.png",
    }  # fmt: skip
    assert (inner / "etc_passwd-2.png").read_bytes() == PICTURE + b"3"
    assert {path.name for path in files if path.suffix == ".csv"} == {
        "confusion-1.csv", "confusion-2.csv", "evil__31m.csv", "outside.csv",
    }  # fmt: skip
    assert (inner / "confusion-2.csv").read_text() == "class,right\ncat,9\ndog,\n"


def test_a_different_file_is_replaced_by_force_only(ran: Shell, tmp_path: Path) -> None:
    mine, same = tmp_path / "plots_curve-1.png", tmp_path / "plots_curve-2.png"
    mine.write_bytes(b"mine")
    same.write_bytes(PICTURE + b"2")
    words = ("images", "good", "plots/curve", "--to", str(tmp_path))

    refused = ran.dray(*words)

    assert refused.returncode == 1
    assert refused.stdout.decode().splitlines() == [str(same)]
    assert (
        f"cannot write `{mine}`\n  why: a different file of that name is there\n" in refused.stderr.decode()
    )
    assert mine.read_bytes() == b"mine"
    assert ran.dray(*words, "--force").returncode == 0
    assert mine.read_bytes() == PICTURE


def test_a_terminal_is_asked_before_something_is_replaced(ran: Shell, tmp_path: Path) -> None:
    (tmp_path / "plots_curve-1.png").write_bytes(b"mine")
    with ran.terminal("images", "good", "plots/curve", "--step", "1", "--to", str(tmp_path)) as terminal:
        terminal.until(b"Replace it?")
        terminal.press(b"y\n")
        assert terminal.ended() == 0

    assert (tmp_path / "plots_curve-1.png").read_bytes() == PICTURE


def test_a_link_is_not_followed_out_of_the_folder(ran: Shell, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "plots_curve-1.png").symlink_to(outside)
    words = ("images", "good", "plots/curve", "--step", "1", "--to", str(folder))

    assert ran.dray(*words).returncode == 1
    assert ran.dray(*words, "--force").returncode == 0
    assert outside.read_bytes() == b"mine"
    assert (folder / "plots_curve-1.png").read_bytes() == PICTURE


@pytest.mark.parametrize("command", ["tables", "images"])
def test_a_folder_that_cannot_be_one_is_told(ran: Shell, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_bytes(b"")

    done = ran.dray(command, "good", "--to", str(tmp_path / "file" / "in"))

    assert done.returncode == 1
    assert b"cannot write" in done.stderr
    assert b"mistake in dray" not in done.stderr


@pytest.mark.parametrize(("command", "word"), [("tables", b"log_table"), ("images", b"log_image")])
def test_a_run_without_any_says_how_to_log_one(ran: Shell, tmp_path: Path, command: str, word: bytes) -> None:
    for words in ((), ("--to", str(tmp_path))):
        done = ran.dray(command, *words)
        assert (done.returncode, done.stdout) == (0, b"")
        assert word in done.stderr
    assert json.loads(ran.dray(command, "--json").stdout) == []


def test_a_word_that_is_no_run_may_be_a_table_or_picture_of_the_newest_one(shell: Shell) -> None:
    shell.write("train.py", TRAIN)
    shell.dray("submit", "train.py")

    assert b"class  right" in shell.dray("tables", "confusion").stdout
    assert shell.dray("images", "plots/curve").stdout.count(b"plots/curve") == 2
