"""Whether a driver runs what was built with a CUDA, and which build of PyTorch fits a driver. Pure functions over `tables`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from dray.gpu.tables import (
    FLOOR,
    OLDEST_CARD,
    SHIPPED_DRIVER,
    TORCH,
    TORCH_WITHOUT_VOLTA_ON_12_8,
    TorchRelease,
    Version,
)


class Fit(Enum):
    """How a driver and a CUDA go together."""

    CLEAN = "clean"
    MAYBE = "maybe"
    """It runs; what is compiled while running may not."""
    TOO_OLD = "too old"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a machine, as far as it matters before anything runs there."""

    driver: Version | None = None
    names: tuple[str, ...] = ()
    capabilities: tuple[tuple[int, int], ...] = ()
    why: str | None = None
    """Why there are none to be seen."""

    @property
    def oldest(self) -> tuple[int, int] | None:
        """The compute capability of the oldest card."""
        return min(self.capabilities, default=None)


def version(text: str | None) -> Version | None:
    """535.54.03 as numbers that can be compared."""
    found = re.match(r"\d+(?:\.\d+)*", text or "")
    return tuple(map(int, found[0].split("."))) if found else None


def shown(numbers: Version) -> str:
    """(12, 6) as 12.6."""
    return ".".join(map(str, numbers))


def fit(driver: Version, cuda: Version) -> Fit:
    """Whether that driver runs what was built with that CUDA. What is newer than the tables is measured by its major version."""
    floor = FLOOR.get(cuda[0])
    if floor is None:
        floor = FLOOR[max(FLOOR)] if cuda[0] > max(FLOOR) else min(SHIPPED_DRIVER.values())
    if driver < floor:
        return Fit.TOO_OLD
    # A toolkit that is not in the table needs no more than the next one that is.
    later = [shipped for toolkit, shipped in sorted(SHIPPED_DRIVER.items()) if toolkit >= cuda[:2]]
    return Fit.CLEAN if later and driver >= later[0] else Fit.MAYBE


def needed_driver(cuda: Version) -> Version:
    """The oldest driver that runs anything of that CUDA."""
    return FLOOR.get(cuda[0]) or SHIPPED_DRIVER.get(cuda[:2]) or max(FLOOR.values())


def oldest_card(release: Version, cuda: Version) -> tuple[int, int]:
    """The oldest compute capability that this build of PyTorch has code for."""
    if cuda[:2] == (12, 8) and release[:2] >= TORCH_WITHOUT_VOLTA_ON_12_8:
        return (7, 5)
    return OLDEST_CARD.get(cuda[:2], (7, 5) if cuda[0] >= 13 else (5, 0))


def torch_build(release: TorchRelease, gpus: Gpus) -> Version | None:
    """The CUDA of the build that fits best: the newest that surely works, else the newest that may; None: there is none."""
    if gpus.driver is None:
        return None
    able = [
        cuda
        for cuda in sorted(release.builds, reverse=True)
        if gpus.oldest is None or gpus.oldest >= oldest_card(release.version, cuda)
    ]
    for wanted in (Fit.CLEAN, Fit.MAYBE):
        for cuda in able:
            if fit(gpus.driver, cuda) is wanted:
                return cuda
    return None


def newest_torch(
    allowed: Callable[[Version], bool], releases: Sequence[TorchRelease] = TORCH
) -> TorchRelease | None:
    """The newest release that is allowed."""
    return next((one for one in reversed(releases) if allowed(one.version)), None)
