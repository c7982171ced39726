"""A driver to ask: the fake one, for this process and all that it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.fake import FakeNvml
from tests.gpu.machines import Machine


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path / "driver")
    for name, value in fake.environ().items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture
def world(tmp_path: Path, driver: FakeNvml) -> Iterator[Machine]:
    made = Machine(tmp_path / "world", driver)
    yield made
    made.clean()
