"""Looks at the machine's GPUs before anything is sent: whether what is to be installed would use them.

Read `checked`. The machine is asked only when the environment names a framework that could, or the submit says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dray.core.errors import UnknownName, UsageError
from dray.core.spec import Environment
from dray.gpu.builds import backend, concerns, doubts, torch_release
from dray.gpu.drivers import Gpus, shown, torch_build, version
from dray.gpu.tables import TORCH, TorchRelease
from dray.workspace.errors import NoTorchBuild, WouldNotUseGpu

if TYPE_CHECKING:
    from dray.workspace.choosing import Choice

_BACKEND = re.compile(r"cpu|cu\d{3}|rocm\d+(?:\.\d+)*|xpu")


def checked(choice: Choice, torch: str | None, *, required: bool, ask: Callable[[], Gpus]) -> Choice:
    """The choice with the build of PyTorch that was asked for, and what speaks against its using a GPU among the notes.

    Raises WouldNotUseGpu instead where a GPU is `required`.
    """
    environment = choice.environment
    if environment is None or not (torch or concerns(environment)):
        return choice
    notes = list(choice.notes)
    chosen = torch == "auto"
    gpus: Gpus | None = None
    if torch:
        release = _release(environment)
        if torch == "auto":
            gpus = ask()
            torch, note = _fitting(release, gpus)
            notes.append(note)
        elif not _BACKEND.fullmatch(torch):
            known = sorted({backend(cuda) for one in TORCH for cuda in one.builds})
            raise UnknownName("build of torch", torch, ["auto", "cpu", *known])
        environment = replace(environment, index={**environment.index, "torch_backend": torch})
    gpus = gpus or ask()
    against = doubts(environment, gpus)
    certain = [doubt for doubt in against if doubt.is_certain]
    if required and certain:
        raise WouldNotUseGpu(certain[0].text, certain[0].hint)
    # Of what was chosen because nothing fits better, nothing better can be proposed.
    told = [doubt for doubt in against if doubt.is_certain or not chosen]
    notes += [f"gpu: {doubt.text}; {doubt.hint}" for doubt in told]
    return replace(choice, environment=environment, notes=tuple(notes))


def gpus_of(machine: Mapping[str, Any]) -> Gpus:
    """From what a machine answers to `probe`."""
    said = machine.get("gpus") or {}
    devices = [one for one in said.get("devices") or () if isinstance(one, Mapping)]
    able = [(str(one.get("name")), one["capability"]) for one in devices if one.get("capability")]
    return Gpus(
        version(said.get("driver")) if devices else None,
        tuple(name for name, _ in able),
        tuple((int(pair[0]), int(pair[1])) for _, pair in able),
        said.get("why"),
    )


def _release(environment: Environment) -> TorchRelease:
    if environment.lock:
        raise UsageError(
            "--torch cannot choose a build: the environment is a lock, which is installed exactly as it is"
        )
    if environment.conda:
        raise UsageError(
            "--torch chooses among builds for pip, and this environment is conda's",
            hint="name the build in the file: `pytorch-gpu`, or `pytorch=*=*cuda*`",
        )
    release = torch_release(environment)
    if release is None:
        raise UsageError("--torch has nothing to choose: the environment does not name `torch`")
    return release


def _fitting(release: TorchRelease, gpus: Gpus) -> tuple[str, str]:
    """`(build, why)` for that machine."""
    if gpus.driver is None:
        return "cpu", f"torch: the CPU build, as {gpus.why or 'no GPU can be seen there'}"
    cuda = torch_build(release, gpus)
    if cuda is None:
        raise NoTorchBuild(
            shown(release.version),
            [backend(one) for one in release.builds],
            shown(gpus.driver),
            gpus.names[:1],
        )
    return backend(cuda), f"torch: the build {backend(cuda)}, the newest for driver {shown(gpus.driver)}"
