"""The world of the history's tests: an empty history, a run in it, a small disk."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.core.ids import new_run_id
from dray.core.spec import RunSpec
from dray.store import Store


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
def open_place() -> Iterator[Path]:
    """A folder that every user may look into; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", point], check=True)
    yield point
    subprocess.run(["umount", "-l", point], check=True)
