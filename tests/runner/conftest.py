"""Machines to run on: this user's own, and another user's in another folder with a clean environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.machines import Elsewhere, Here, Place


@pytest.fixture(params=["here", "elsewhere"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Every promise of the protocol is tested over both."""
    made: Place = Here(tmp_path) if request.param == "here" else Elsewhere()
    yield made
    made.clean()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """This user's own machine folder."""
    made = Here(tmp_path)
    yield made
    made.clean()
