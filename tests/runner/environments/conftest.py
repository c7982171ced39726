"""An index, a machine that builds from it, and nothing of the user's own settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.environments.world import Builder, Index


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(tmp_path / "packages")
    made.add("apple", "1.0", script="eat-apple")
    made.add("pear", "1.0", requires=["apple"])
    yield made
    made.stop()


@pytest.fixture
def builder(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """Its builds ask `index` and nobody else."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv cache"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    made = Builder(tmp_path)
    yield made
    made.clean()
