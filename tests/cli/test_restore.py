"""`dray restore`: whole or not at all, and never over anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell, wait_until


@pytest.fixture
def ran(shell: Shell) -> str:
    """A run whose code has links, a program, an empty folder and something that stayed behind; its id."""
    shell.write("train.py", "print('hi')\n")
    shell.write("run.sh", "echo hi\n").chmod(0o755)
    shell.write("data.csv", "1,2\n")
    shell.write(".drayignore", "*.csv\n")
    (shell.folder / "out").symlink_to("/etc/hostname")
    (shell.folder / "empty").mkdir()
    assert shell.dray("submit", "train.py").returncode == 0
    return str(json.loads(shell.dray("runs", "--json").stdout)[0]["id"])


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


CODE = [".drayignore", "empty", "out", "run.sh", "train.py"]


def test_the_folder_is_on_stdout_and_what_is_to_be_known_on_stderr(shell: Shell, ran: str) -> None:
    done = shell.dray("restore", ran, "--to", "new/again")

    assert (done.returncode, done.stdout) == (0, b"new/again\n")
    again = shell.folder / "new" / "again"
    assert names(again) == CODE
    assert os.access(again / "run.sh", os.X_OK)
    assert not os.access(again / "train.py", os.X_OK) or os.stat(again / "train.py").st_mode & 0o100 == 0
    assert os.readlink(again / "out") == "/etc/hostname"
    said = done.stderr.decode()
    assert "the link out leads out of it, to /etc/hostname" in said
    assert "did not travel: data.csv by .drayignore:1 (*.csv)" in said


def test_json_says_the_same(shell: Shell, ran: str) -> None:
    document = json.loads(shell.dray("restore", "--to", "again", "--json").stdout)

    assert document["folder"] == "again"
    assert (document["files"], document["git"]) == (4, None)
    assert document["leads_out"] == [{"path": "out", "to": "/etc/hostname"}]
    assert {"path": "data.csv", "rule": ".drayignore:1 (*.csv)"} in document["left_out"]


def test_an_empty_folder_is_filled_and_stays_the_same_folder(shell: Shell, ran: str) -> None:
    empty = shell.folder.parent / "mine"
    empty.mkdir(mode=0o700)
    before = empty.stat().st_ino

    done = subprocess.run(
        [shell.python, "-m", "dray", "restore", ran, "--to", "."],
        cwd=empty,
        env=shell.env,
        check=True,
        capture_output=True,
    )

    assert done.stdout == b".\n"
    assert names(empty) == CODE
    assert (empty.stat().st_ino, empty.stat().st_mode & 0o777) == (before, 0o700)


def test_a_folder_that_is_not_empty_is_left_alone(shell: Shell, ran: str) -> None:
    shell.write("again/mine.txt", "mine")

    done = shell.dray("restore", ran, "--to", "again")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"`again` is not empty\n  why: it holds `mine.txt`\n" in done.stderr
    assert b"`--force` moves what is there to `again.before-1`" in done.stderr
    assert names(shell.folder / "again") == ["mine.txt"]


def test_force_moves_what_is_there_aside_each_time(shell: Shell, ran: str) -> None:
    shell.write("again/mine.txt", "mine")

    for _ in range(2):
        done = shell.dray("restore", ran, "--to", "again", "--force")
        assert done.returncode == 0, done.stderr

    assert b"again.before-2" in done.stderr
    assert names(shell.folder / "again") == names(shell.folder / "again.before-2") == CODE
    assert names(shell.folder / "again.before-1") == ["mine.txt"]


def test_the_folder_that_somebody_stands_in_is_not_moved(shell: Shell, ran: str) -> None:
    before = names(shell.folder)

    for place in (".", "..", str(shell.folder)):
        done = shell.dray("restore", ran, "--to", place, "--force")
        assert done.returncode == 2, place
        assert b"is not empty" in done.stderr
        assert b"--force" not in done.stderr

    assert names(shell.folder) == before


@pytest.mark.parametrize("kind", ["file", "dangling", "below a file", "read-only disk"])
def test_a_place_where_no_folder_can_be_is_told_and_nothing_is_made(
    shell: Shell, ran: str, kind: str
) -> None:
    place = "there"
    if kind == "file":
        shell.write("there", "mine")
    elif kind == "dangling":
        (shell.folder / "there").symlink_to("nowhere")
    elif kind == "below a file":
        shell.write("there", "mine")
        place = "there/deep/er"
    else:
        place = "/proc/there"
    before = names(shell.folder)

    done = shell.dray("restore", ran, "--to", place)

    assert (done.returncode, done.stdout) == (1, b"")
    assert b"cannot write" in done.stderr
    assert b"Traceback" not in done.stderr
    assert names(shell.folder) == before


def test_a_lost_content_is_named_and_nothing_is_made(shell: Shell, ran: str) -> None:
    import hashlib
    import shutil

    digest = hashlib.sha256(b"echo hi\n").hexdigest()
    (shell.home / "blobs" / digest[:2] / digest[2:]).unlink()
    for folder in shell.home.glob("machine/*/runs"):
        shutil.rmtree(folder)

    done = shell.dray("restore", ran, "--to", "new/again")

    assert (done.returncode, done.stdout) == (1, b"")
    assert b"of its 3 files `run.sh` is not intact here, nor on `local`" in done.stderr
    assert not (shell.folder / "new").exists()


def test_who_leaves_in_the_middle_leaves_nothing_behind(shell: Shell) -> None:
    for number in range(3000):
        shell.write(f"many/{number}", str(number))
    assert shell.dray("submit", "--", "true").returncode == 0
    place = shell.folder.parent / "place"
    place.mkdir()

    with shell.start("restore", "@last", "--to", str(place / "again")) as leaving:
        wait_until(lambda: list(place.glob(".dray-restore-*/many/1*")))
        leaving.send_signal(signal.SIGINT)
        leaving.communicate()

    assert leaving.returncode == 130
    assert names(place) == []


def test_without_a_folder_or_with_an_unknown_run_it_is_a_misuse(shell: Shell, ran: str) -> None:
    assert shell.dray("restore", ran).returncode == 2
    done = shell.dray("restore", "nosuchrun", "--to", "x")
    assert done.returncode == 2
    assert b"there is no run `nosuchrun`" in done.stderr
    assert not (shell.folder / "x").exists()
