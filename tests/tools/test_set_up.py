"""`./dray` and `./dev` of a fresh clone: what they make, and that what they make is whole."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Stands in for the command line, to show what reaches it.
MIRROR = """\
import json, os, sys
print(json.dumps({"words": sys.argv[1:], "folder": os.getcwd(), "env": dict(os.environ), "path": sys.path}))
"""


def _clone(folder: Path) -> Path:
    """What git would check out, as it lies here now, in a folder with a space in its name."""
    for name in ("src", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dray", "dev", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, folder / name)
    return folder


def _call(checkout: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "dray", *words], env=_shell() | variables, capture_output=True, text=True, check=False
    )


def _shell() -> dict[str, str]:
    """A person's variables, without the virtual environment that the tests run in."""
    own = str(Path(sys.executable).parent)
    path = [folder for folder in os.environ["PATH"].split(":") if folder != own]
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return env | {"PATH": ":".join(path)}


def _stamp(checkout: Path) -> Path:
    return checkout / ".venv" / "dray-stamp"


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout after its first `./dray`, made with bytecode switched off."""
    checkout = _clone(tmp_path_factory.mktemp("a clone") / "dray")
    first = _call(checkout, "--version", PYTHONDONTWRITEBYTECODE="1")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("dray ")
    assert "setting up dray" in first.stderr
    checkout.joinpath("src/dray/__main__.py").write_text(MIRROR)
    yield checkout
    shutil.rmtree(checkout)


def test_a_machine_without_a_fitting_python_gets_a_sentence(tmp_path: Path) -> None:
    checkout = _clone(tmp_path / "dray")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    refuses = bin_folder / "python3"
    refuses.write_text("#!/bin/sh\nexit 1\n")
    refuses.chmod(0o755)

    said = _call(checkout, "--version", PATH=str(bin_folder))

    assert said.returncode == 125
    assert "needs Python 3.11 or newer" in said.stderr
    assert not (checkout / ".venv").exists()


def test_a_set_up_that_fails_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    checkout = _clone(tmp_path / "dray")
    checkout.joinpath("pyproject.toml").write_text("[build-system]\nthis is not toml")

    said = _call(checkout, "--version")

    assert said.returncode == 125
    assert "could not be set up" in said.stderr
    assert not _stamp(checkout).exists()


def test_dev_alone_lists_its_commands() -> None:
    said = subprocess.run(
        [sys.executable, "-I", ROOT / "tools" / "dev.py"], capture_output=True, text=True, check=True
    )

    assert all(f"\n  {name} " in said.stdout for name in ("check", "test", "bench", "docs", "fmt"))


@pytest.mark.slow
def test_words_and_folder_reach_dray_as_they_were_given(ready: Path, tmp_path: Path) -> None:
    words = ["a b", "c\"'d", "", "two\nlines", "*", "$HOME", "--", "-x"]

    said = subprocess.run(
        [ready / "dray", *words], cwd=tmp_path, env=_shell(), capture_output=True, text=True, check=True
    )

    seen = json.loads(said.stdout)
    assert seen["words"] == words
    assert seen["folder"] == str(tmp_path)
    assert said.stderr == ""


@pytest.mark.slow
def test_the_variables_of_the_shell_stay_as_they_are(ready: Path) -> None:
    before = _shell() | {"root": "/r", "self": "s", "PYTHONPATH": "/nowhere"}

    said = subprocess.run([ready / "dray"], env=before, capture_output=True, text=True, check=True)

    seen = json.loads(said.stdout)
    of_the_shell = {"_", "PWD", "OLDPWD", "SHLVL"}  # any `sh` sets these
    assert {k: v for k, v in seen["env"].items() if k not in of_the_shell} == {
        k: v for k, v in before.items() if k not in of_the_shell
    }
    assert "/nowhere" not in seen["path"]


@pytest.mark.slow
def test_links_to_it_find_the_checkout(ready: Path, tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(ready / "dray")
    (tmp_path / "two").symlink_to("one")

    said = subprocess.run(["two", "x"], env=_shell() | {"PATH": f"{tmp_path}:{_shell()['PATH']}"},
                          executable=tmp_path / "two", capture_output=True, text=True, check=True)  # fmt: skip

    assert json.loads(said.stdout)["words"] == ["x"]


@pytest.mark.slow
def test_bytecode_is_there_whatever_the_shell_says(ready: Path) -> None:
    sources = list((ready / ".venv" / "lib").glob("python3*/site-packages/click/*.py"))
    sources += ready.joinpath("src/dray/core").glob("*.py")

    assert sources
    assert all(list(s.parent.glob(f"__pycache__/{s.stem}.*.pyc")) for s in sources)


@pytest.mark.slow
def test_a_touched_project_file_costs_no_new_set_up_and_a_changed_one_does(ready: Path) -> None:
    project = ready / "pyproject.toml"
    project.touch()
    touched = _call(ready)

    project.write_text(project.read_text() + "\n# changed\n")
    changed = _call(ready)

    assert touched.stderr == ""
    assert "setting up dray" in changed.stderr
    assert _call(ready).stderr == ""


@pytest.mark.slow
def test_a_moved_checkout_is_made_anew(ready: Path) -> None:
    moved = ready.with_name("moved")
    ready.rename(moved)
    try:
        said = _call(moved, "x")

        assert "setting up dray" in said.stderr
        assert json.loads(said.stdout)["words"] == ["x"]
        subprocess.run([moved / ".venv/bin/dray", "--version"], check=True)  # names its Python by full path
    finally:
        moved.rename(ready)


@pytest.mark.slow
def test_a_set_up_killed_in_the_middle_is_begun_anew(tmp_path: Path) -> None:
    checkout = _clone(tmp_path / "dray")
    first = subprocess.Popen(
        [checkout / "dray"], env=_shell(), stderr=subprocess.DEVNULL, start_new_session=True
    )
    _wait_until(lambda: any(checkout.glob(".venv/lib/python3*/site-packages/*")))
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not _stamp(checkout).exists()

    said = _call(checkout, "--version")

    assert said.returncode == 0, said.stderr
    assert "setting up dray" in said.stderr
    assert _stamp(checkout).exists()


@pytest.mark.slow
def test_two_shells_at_once_make_one_set_up(tmp_path: Path) -> None:
    checkout = _clone(tmp_path / "dray")
    both = [
        subprocess.Popen(
            [checkout / "dray", "--version"],
            env=_shell(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip

    said = [shell.communicate() for shell in both]

    assert [shell.returncode for shell in both] == [0, 0]
    assert all(out.startswith("dray ") for out, _ in said)
    assert sum("setting up dray" in words for _, words in said) == 1


def _wait_until(fact: Callable[[], bool], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not fact():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
