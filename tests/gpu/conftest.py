"""A driver to ask: the fake one, for this process and all that it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.fake import FakeNvml


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path / "driver")
    for name, value in fake.environ().items():
        monkeypatch.setenv(name, value)
    return fake
