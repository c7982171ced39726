"""A fresh world for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspace.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A home, a project, the command line."""
    made = World(tmp_path)
    yield made
    made.clean()
