"""The devices of this machine as things to be held, from what the driver says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Tuple

from .wants import Unit

if TYPE_CHECKING:
    from ..gpu import devices, nvml


class Look(NamedTuple):
    """What was seen. Without units, `why` is a sentence."""

    units: Tuple[Unit, ...]
    cores: int
    why: Optional[str]
    has_hardware: bool


def look(busy: bool = False) -> Look:
    """Ask the driver; never raises. `busy`: also how much each GPU computes just now."""
    from ..gpu import devices, nvml  # milliseconds, and most runs ask for no GPU

    if not busy:
        return _look(devices.devices(), {})
    try:
        library = nvml.Nvml()
    except (OSError, nvml.NvmlError):
        return _look(devices.devices(), {})
    try:
        seen = devices.read_all(library)
        percents = {one.index: _percent(library, one.index) for one in seen.devices}
    finally:
        library.close()
    return _look(seen, percents)


def _percent(library: nvml.Nvml, index: int) -> Optional[int]:
    from ..gpu import nvml

    try:
        return int(library.utilisation(library.device(index)))
    except nvml.NvmlError:
        return None


def _look(seen: devices.Seen, percents: Dict[int, Optional[int]]) -> Look:
    units: List[Unit] = []
    for device in seen.devices:
        users = tuple((one.pid, one.uid) for one in device.processes if one.kind == "compute")
        if device.mig is None:
            used = 0
            if device.memory_total is not None and device.memory_free is not None:
                used = device.memory_total - device.memory_free
            units.append(
                Unit(
                    device.uuid or "GPU-lost-%d" % device.index,
                    device.name or "GPU that does not answer",
                    device.index,
                    device.memory_total,
                    used,
                    users,
                    None,
                    device.vendor,
                    device.trouble,
                    percents.get(device.index),
                )
            )
        for number, part in enumerate(device.mig or ()):
            # Which part a process is on, the driver tells only where there is one part.
            theirs = users if len(device.mig or ()) == 1 else ()
            used = part.memory_total - part.memory_free
            units.append(
                Unit(
                    part.uuid, part.name, device.index, part.memory_total, used, theirs, number, device.vendor
                )
            )
    return Look(tuple(units), cores(), seen.why, seen.has_hardware)


def may_have_gpus() -> bool:
    """Whether it is worth while to ask a driver: a look at a few files, where asking takes milliseconds."""
    # The device files may come with the first use; the module is there before.
    files = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
    return bool(os.environ.get("DRAY_NVML")) or any(map(os.path.exists, files))


def cores() -> int:
    """How many cores a run may use here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
