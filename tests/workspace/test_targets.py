"""The contract of targets, kept by this machine and by another user's shell in another folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.core.interfaces import Target
from dray.targets import LocalTarget
from tests.runner.machines import Elsewhere
from tests.workspace.contract import TargetContract


class TestLocal(TargetContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> Target:
        return LocalTarget(tmp_path / "history")


class ElsewhereTarget:
    """Nothing is shared with the client: no files, no user, no environment."""

    name = "elsewhere"
    kind = "test"
    is_here = False
    setup: str | None = None
    default_gpus: int | None = None
    container: None = None

    def __init__(self, machine: Elsewhere) -> None:
        self.host = machine.host
        self.root = machine.root
        self.python = machine.python

    def near(self) -> dict[str, Any]:
        return {}


class TestElsewhere(TargetContract):
    @pytest.fixture
    def target(self) -> Iterator[Target]:
        machine = Elsewhere()
        yield ElsewhereTarget(machine)
        machine.clean()
