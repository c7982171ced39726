"""`docker`: this machine, with runs in containers. `remotedocker`: the same behind ssh. Hosts and schedulers are those of `local` and `vm`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dray.core.container_wish import ContainerWish
from dray.core.errors import UsageError
from dray.hosts import Answers
from dray.targets.local import LocalTarget
from dray.targets.vm import VmOptions, VmTarget


@dataclass(frozen=True, slots=True)
class RemoteDockerOptions(VmOptions):
    """What `dray attach remotedocker` can say: the way there, and the same."""

    container: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DockerOptions(RemoteDockerOptions):
    """What `dray attach docker` can say: nothing of a way, because it is this machine."""

    def checked(self, name: str) -> DockerOptions:
        """Itself. Refuses what tells the way to another machine."""
        way = [one.name for one in fields(VmOptions) if one.name != "default_gpus"]
        said = [flag for flag in way if getattr(self, flag)]
        if said:
            flag = f"--{said[0].replace('_', '-')}"
            raise UsageError(
                f"`{flag}` is about another machine, and `docker` is the engine of this one",
                hint=f"dray attach remotedocker {name} {flag} ...",
            )
        return self


class DockerTarget(LocalTarget):
    """This machine's engine."""

    kind = "docker"

    def __init__(self, name: str, options: DockerOptions, home: Path) -> None:
        super().__init__(home)
        self.name = name
        self.options = options
        self.container = ContainerWish.of(options.container)

    @property
    def default_gpus(self) -> int | None:
        """This compute's own, else what was said of this machine."""
        return super().default_gpus if self.options.default_gpus is None else self.options.default_gpus


class RemoteDockerTarget(VmTarget):
    """The engine of a machine behind ssh."""

    kind = "remotedocker"

    def __init__(
        self, name: str, options: RemoteDockerOptions, home: Path, answers: Answers | None = None
    ) -> None:
        super().__init__(name, options, home, answers)
        self.container = ContainerWish.of(options.container)
