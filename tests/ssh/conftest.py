"""A world of ssh servers and a client, and a shell to try dray in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.dray_shell import Shell
from tests.ssh.world import World, new_world


@pytest.fixture
def world() -> Iterator[World]:
    """Servers that a test starts, and a client."""
    yield from new_world()


@pytest.fixture
def shell(world: World) -> Shell:
    """A project on the client."""
    project = world.folder / "project"
    project.mkdir()
    made = Shell(project, world.client.dray_home)
    made.env.update(world.client.env)
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many drills as `--drills` says."""
    if "drill_number" in metafunc.fixturenames:
        metafunc.parametrize("drill_number", range(metafunc.config.getoption("--drills")))
