"""A shared machine; tests that make users need root."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.queue.people import SharedMachine


@pytest.fixture
def shared() -> Iterator[SharedMachine]:
    """Two GPUs, and users as they come."""
    if os.getuid() != 0:
        pytest.skip("makes users, which needs root")
    made = SharedMachine()
    yield made
    made.remove()
