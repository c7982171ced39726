"""The kinds of compute: each names its host, and how runs are started on it. Those that are attached are imported when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dray.targets.local import LocalTarget

if TYPE_CHECKING:
    from pathlib import Path

    from dray.hosts import Answers
    from dray.targets.docker import DockerOptions, DockerTarget, RemoteDockerOptions, RemoteDockerTarget
    from dray.targets.vm import VmOptions, VmTarget

__all__ = [
    "HERE",
    "KINDS",
    "DockerOptions",
    "DockerTarget",
    "LocalTarget",
    "RemoteDockerOptions",
    "RemoteDockerTarget",
    "VmOptions",
    "VmTarget",
    "far_target",
    "near_target",
    "options_of",
]

KINDS = {
    "vm": "A machine that you reach with ssh.",
    "docker": "This machine, with runs in containers.",
    "remotedocker": "A machine that you reach with ssh, with runs in containers.",
}
"""What can be attached, each with the first line of its help."""

HERE = frozenset({"docker"})
"""Kinds that are this very machine: there is no way to it to be told."""

OLD_WORDS = {"remote": "vm", "remotevm": "vm", "ssh": "vm", "localdocker": "docker"}
"""What the same things were called elsewhere."""


def __getattr__(name: str) -> Any:
    """Import a kind of compute when somebody has one."""
    if name in ("VmOptions", "VmTarget"):
        from dray.targets import vm

        return getattr(vm, name)
    if name in ("DockerOptions", "DockerTarget", "RemoteDockerOptions", "RemoteDockerTarget"):
        from dray.targets import docker

        return getattr(docker, name)
    raise AttributeError(f"module 'dray.targets' has no attribute {name!r}")


def options_of(kind: str) -> type[VmOptions]:
    """The dataclass with the options of that kind."""
    if kind in ("docker", "remotedocker"):
        from dray.targets.docker import DockerOptions, RemoteDockerOptions

        return DockerOptions if kind == "docker" else RemoteDockerOptions
    from dray.targets.vm import VmOptions

    return {"vm": VmOptions}[kind]


def far_target(kind: str, name: str, options: VmOptions, home: Path, answers: Answers) -> VmTarget:
    """The compute of that name behind ssh."""
    if kind == "remotedocker":
        from dray.targets.docker import RemoteDockerOptions, RemoteDockerTarget

        assert isinstance(options, RemoteDockerOptions)
        return RemoteDockerTarget(name, options, home, answers)
    from dray.targets.vm import VmTarget

    return VmTarget(name, options, home, answers)


def near_target(name: str, options: VmOptions, home: Path) -> DockerTarget:
    """The compute of that name on this machine."""
    from dray.targets.docker import DockerOptions, DockerTarget

    assert isinstance(options, DockerOptions)
    return DockerTarget(name, options, home)
