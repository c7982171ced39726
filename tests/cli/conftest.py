"""A folder with a script, and a shell to try dray in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An empty project and an empty history."""
    project = tmp_path / "project"
    project.mkdir()
    return Shell(project, tmp_path / "home")
