"""A shared machine; tests that make users need root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.fake import FakeNvml
from tests.queue.people import SharedMachine


@pytest.fixture
def shared() -> Iterator[SharedMachine]:
    """Two GPUs, and users as they come."""
    if os.getuid() != 0:
        pytest.skip("makes users, which needs root")
    made = SharedMachine()
    yield made
    made.remove()


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A driver for this very process."""
    fake = FakeNvml(tmp_path / "driver")
    for name, value in fake.environ().items():
        monkeypatch.setenv(name, value)
    return fake
