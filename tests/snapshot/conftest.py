"""The world around a snapshot: a git repository, a user without rights, a disk that is nearly full."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.core.errors import DrayError
from tests.snapshot.repositories import Git

_NOBODY = 65534


@pytest.fixture(scope="session")
def git(tmp_path_factory: pytest.TempPathFactory) -> Git:
    """One repository; every test that uses it clears it first."""
    return Git(tmp_path_factory.mktemp("repository"))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can enter and change; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="dray-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_nobody() -> Callable[[Callable[[], Any]], Any]:
    """Calls a function in a process of a user who may do little, and gives its result or its DrayError back."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    return _in_process_of_nobody


def _in_process_of_nobody(act: Callable[[], Any]) -> Any:
    back, out = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(back)
        answer: object
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            answer = act()
        except DrayError as error:
            answer = (type(error).__name__, error.what, error.why, error.hint)
        except BaseException:
            answer = traceback.format_exc()
        with os.fdopen(out, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(out)
    with os.fdopen(back, "rb") as pipe:
        answer = pickle.load(pipe)
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.decode()}")
    yield place
    subprocess.run(["umount", place], check=True)
