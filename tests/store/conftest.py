"""The world of the history's tests: an empty history, another user, a small disk."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dray.core.ids import new_run_id
from dray.core.spec import RunSpec
from dray.store import Store

NOBODY = 65534


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


@pytest.fixture
def run_id(store: Store) -> str:
    made = new_run_id()
    store.create_run(RunSpec(made, "digits", "local", ("train.py",), created=1000.0))
    return made


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", point], check=True)
    yield point
    subprocess.run(["umount", "-l", point], check=True)


def as_nobody(work: Callable[[], None]) -> None:
    """Do `work` in a child process that may do only what everybody may; fails as the child fails."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            work()
            os._exit(0)
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, said


def python(script: Path, *words: object) -> subprocess.Popen[bytes]:
    """Start a test's helper program with our Python."""
    return subprocess.Popen(
        [sys.executable, script, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
