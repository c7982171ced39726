"""`dray outputs`: results come whole or not at all, and nothing of the user's is lost on the way."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray import DrayError, Workspace
from tests.cli.dray_shell import Shell, wait_until

TRAIN = """
import os
os.makedirs("outputs/plots")
open("outputs/model.pkl", "wb").write(bytes(5000))
open("outputs/plots/a.png", "wb").write(b"png")
"""
ALL = {"model.pkl", "plots/a.png"}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A history with a run `good`, which left two files, and after it a run `empty`. Only for reading."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "project").mkdir()
    shell = Shell(folder / "project", folder / "home")
    shell.write("train.py", TRAIN)
    shell.write("idle.py", "")
    assert shell.dray("submit", "--name", "good", "train.py").returncode == 0
    assert shell.dray("submit", "--name", "empty", "idle.py").returncode == 0
    return shell


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder in which not even root can write."""
    place = tmp_path / "ro"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "none", place], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("this user may not mount")
    yield place
    subprocess.run(["umount", place], check=True)


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_outputs_are_listed(ran: Shell) -> None:
    files = json.loads(ran.dray("outputs", "good", "--json").stdout)

    assert {(file["path"], file["bytes"]) for file in files} == {("model.pkl", 5000), ("plots/a.png", 3)}
    assert b"model.pkl" in ran.dray("outputs", "good").stdout


@pytest.mark.parametrize(
    ("wish", "files"),
    [
        ([], ALL),
        (["model.pkl"], {"model.pkl"}),
        (["outputs/model.pkl"], {"model.pkl"}),
        (["plots"], {"plots/a.png"}),
        (["*.png"], {"plots/a.png"}),
    ],
)
def test_outputs_are_fetched(ran: Shell, tmp_path: Path, wish: list[str], files: set[str]) -> None:
    done = ran.dray("outputs", "good", *wish, "--to", str(tmp_path / "here"))

    assert files_in(tmp_path / "here") == files
    assert {Path(line) for line in done.stdout.decode().splitlines()} == {
        tmp_path / "here" / name for name in files
    }


def test_an_output_that_is_not_there_is_told_the_nearest(ran: Shell, tmp_path: Path) -> None:
    done = ran.dray("outputs", "good", "modle.pkl", "--to", str(tmp_path))

    assert done.returncode == 2
    assert f"  try: dray outputs good model.pkl --to {tmp_path}\n".encode() in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_of_a_run_that_left_nothing_nothing_is_fetched(ran: Shell, tmp_path: Path) -> None:
    everything = ran.dray("outputs", "empty", "--to", str(tmp_path / "here"))
    one = ran.dray("outputs", "empty", "model.pkl")

    assert everything.returncode == 0
    assert b"nothing to fetch" in everything.stderr
    assert not (tmp_path / "here").exists()
    assert one.returncode == 2
    assert b"  why: it left no outputs\n" in one.stderr


def test_what_is_there_already_is_left_alone(ran: Shell, tmp_path: Path) -> None:
    ran.dray("outputs", "good", "--to", str(tmp_path))
    before = (tmp_path / "model.pkl").stat()

    again = ran.dray("outputs", "good", "--to", str(tmp_path))

    assert again.returncode == 0
    assert (tmp_path / "model.pkl").stat().st_mtime_ns == before.st_mtime_ns
    assert b"2 already there" in again.stderr


@pytest.mark.parametrize("mine", [b"mine", bytes(4999) + b"x"], ids=["another size", "the same size"])
def test_a_different_file_is_replaced_only_by_force(ran: Shell, tmp_path: Path, mine: bytes) -> None:
    place = tmp_path / "model.pkl"
    place.write_bytes(mine)

    refused = ran.dray("outputs", "good", "--to", str(tmp_path))
    kept = place.read_bytes()
    forced = ran.dray("outputs", "good", "--to", str(tmp_path), "--force")

    assert refused.returncode == 1
    assert refused.stdout == f"{tmp_path}/plots/a.png\n".encode()
    assert f"cannot write `{place}`\n  why: a different file".encode() in refused.stderr
    assert b"--force" in refused.stderr
    assert kept == mine
    assert (forced.returncode, place.read_bytes()) == (0, bytes(5000))


@pytest.mark.parametrize(("key", "code", "content"), [(b"y\n", 0, bytes(5000)), (b"n\n", 1, b"mine")])
def test_on_a_terminal_the_user_is_asked(
    ran: Shell, tmp_path: Path, key: bytes, code: int, content: bytes
) -> None:
    (tmp_path / "model.pkl").write_bytes(b"mine")

    with ran.terminal("outputs", "good", "--to", str(tmp_path)) as terminal:
        terminal.until(b"[y/N]")
        terminal.press(key)
        assert terminal.ended() == code

    assert (tmp_path / "model.pkl").read_bytes() == content
    assert files_in(tmp_path) == ALL


def test_a_file_in_the_place_of_the_folder_is_told(ran: Shell, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")

    for place in (file, file / "below"):
        done = ran.dray("outputs", "good", "--to", str(place))
        assert done.returncode == 1
        assert (
            done.stderr
            == (
                f"dray: cannot write `{place}`\n  why: a file is in the way\n"
                "  try: name another folder with `--to`\n"
            ).encode()
        )
    assert file.read_text() == "mine"


def test_a_folder_in_the_place_of_a_file_keeps_only_that_one_away(ran: Shell, tmp_path: Path) -> None:
    (tmp_path / "model.pkl").mkdir()

    done = ran.dray("outputs", "good", "--to", str(tmp_path), "--force")

    assert (done.returncode, done.stdout) == (1, f"{tmp_path}/plots/a.png\n".encode())
    assert f"cannot write `{tmp_path}/model.pkl`\n  why: a folder of that name".encode() in done.stderr
    assert b".part" not in done.stderr


def test_a_folder_that_cannot_be_written_to_is_told_once_by_its_own_name(ran: Shell, read_only: Path) -> None:
    done = ran.dray("outputs", "good", "--to", str(read_only))

    assert done.returncode == 1
    assert done.stderr.count(b"cannot write") == 1
    assert f"cannot write `{read_only}`\n  why: you may not write there".encode() in done.stderr


def test_a_file_that_cannot_be_brought_keeps_none_of_the_others_away(shell: Shell, tmp_path: Path) -> None:
    shell.write("train.py", TRAIN)
    shell.dray("submit", "train.py")
    (lost,) = (shell.home / "machine").glob("*/runs/*/code/outputs/model.pkl")
    lost.unlink()

    done = shell.dray("outputs", "--to", str(tmp_path / "here"))

    assert done.returncode == 1
    assert files_in(tmp_path / "here") == {"plots/a.png"}
    assert b"outputs/model.pkl" in done.stderr
    assert b"1 file, 3 bytes" in done.stderr


def test_in_python_outputs_are_paths_and_show_what_they_are(ran: Shell, tmp_path: Path) -> None:
    with Workspace(ran.home) as workspace:
        outputs = workspace.run("good").outputs

        assert list(outputs) == ["model.pkl", "plots/a.png"]
        assert repr(outputs).endswith(": model.pkl, plots/a.png>")
        (tmp_path / "model.pkl").write_text("mine")
        with pytest.raises(DrayError, match="different file"):
            outputs.fetch("model.pkl", tmp_path)
        assert outputs.fetch("model.pkl", tmp_path, force=True).read_bytes() == bytes(5000)


def test_outputs_are_mirrored_until_the_run_ends(shell: Shell) -> None:
    shell.write(
        "grow.py",
        "import os, time\nfile = open('outputs/log', 'w')\n"
        "while not os.path.exists('outputs/stop'):\n"
        "    file.write('line\\n'); file.flush(); time.sleep(0.05)\n",
    )
    run = shell.detached("grow.py")
    with shell.start("outputs", run, "--follow", "--to", "here") as left:
        assert "until it ends; Ctrl-C leaves" in left.stderr.readline().decode()
        wait_until((shell.folder / "here/log").exists)
        left.send_signal(signal.SIGINT)
        assert left.wait(10) == 130
        assert f"{run} goes on" in left.stderr.read().decode()
    with shell.start("outputs", run, "--follow", "--to", "here") as process:
        shell.dray("exec", run, "touch", "outputs/stop")
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err.decode()
    assert sorted(out.decode().split()) == ["here/log", "here/stop"]
    (there,) = shell.home.glob(f"machine/*/runs/{run}/code/outputs/log")
    assert (shell.folder / "here/log").read_bytes() == there.read_bytes()
    assert not [*(shell.home / "cache").glob("mirrors/*")]
    refused = shell.dray("outputs", run, "--follow")
    assert refused.returncode == 2
    assert b"--follow needs a folder" in refused.stderr


def test_very_much_is_asked_about_on_a_terminal(shell: Shell, tmp_path: Path) -> None:
    shell.write("huge.py", "open('outputs/weights', 'wb').truncate(11_000_000_000)")
    shell.dray("submit", "huge.py")
    with shell.terminal("outputs", "--to", str(tmp_path / "got")) as terminal:
        terminal.until(b"Fetch 1 file, 11.0 GB?")
        terminal.press(b"n\n")
        assert terminal.ended() == 1

    assert b"nothing was fetched" in terminal.seen
    assert not (tmp_path / "got").exists()
