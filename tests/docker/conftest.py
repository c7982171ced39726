"""One engine for all tests of a process, and a shell whose runs may use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell
from tests.docker.registry import PASSWORD, USER, new_registry
from tests.docker.world import BASE, Docker, new_docker
from tests.ssh.world import World, new_world


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    """Started once: a test leaves no container behind, and images of its own only."""
    yield from new_docker()


@pytest.fixture
def shell(docker: Docker, tmp_path: Path) -> Iterator[Shell]:
    """A project on this machine, whose engine is the test's."""
    project = tmp_path / "project"
    project.mkdir()
    made = Shell(project, tmp_path / "home")
    # The engine's own programs first: there may be another `docker` on the PATH.
    made.env.update(docker.env, PATH="/usr/sbin:/usr/bin:/sbin:/bin")
    yield made
    left = docker.containers()
    if left:
        docker.docker("rm", "--force", *left)
    assert left == [], "a container was left"


@pytest.fixture
def world() -> Iterator[World]:
    """Servers behind ssh, and a client."""
    yield from new_world()


@pytest.fixture(scope="session")
def private(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that lets nobody in but one, with one image."""
    for host in new_registry(tmp_path_factory.mktemp("private"), is_private=True):
        docker.docker("tag", BASE, f"{host}/ana/secret:1")
        docker.docker("login", "--username", USER, "--password-stdin", host, stdin=PASSWORD.encode())
        docker.docker("push", f"{host}/ana/secret:1")
        docker.docker("logout", host)
        docker.docker("rmi", f"{host}/ana/secret:1")
        yield host


@pytest.fixture
def image(docker: Docker, private: str) -> Iterator[str]:
    """Its name; not on this machine."""
    name = f"{private}/ana/secret:1"
    yield name
    docker.docker("rmi", name, check=False)
