"""The devices of this machine as things to be held, from what the driver says."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple

from .wants import Unit

if TYPE_CHECKING:
    from ..gpu import devices, nvml

_SOON_S = 0.3  # most drivers answer sooner


class Look(NamedTuple):
    """What was seen. Without units, `why` is a sentence."""

    units: Tuple[Unit, ...]
    cores: int
    why: Optional[str]
    has_hardware: bool
    is_silent: bool = False
    """The driver did not answer: what there is is not known."""


def look(busy: bool = False) -> Look:
    """Ask the driver; never raises, and never waits for long. `busy`: also how much each GPU computes just now."""
    from ..gpu import asking, devices, nvml  # noqa: F401 # milliseconds, once here and not in each process that asks

    told = asking.within(asking.patience_s(), lambda: _told(busy))
    return silent() if told is None else _understood(told)


class Looking:
    """Looks again and again, for who has other things to do than to wait for a driver."""

    def __init__(self) -> None:
        from ..gpu import asking, devices, nvml  # noqa: F401 # as above

        self._asking = asking.Asking(lambda: _told(busy=False))
        self._patience_s = asking.patience_s()

    def soon(self) -> Optional[Look]:
        """A look; None while the driver has not answered, and one that says so when that takes long or comes to nothing."""
        told = self._asking.answer(_SOON_S)
        if told is not None:
            return _understood(told)
        is_late = time.monotonic() - self._asking.since > self._patience_s
        return silent() if is_late or not self._asking.pid else None

    def end(self) -> None:
        """No more looks are wanted."""
        self._asking.drop()


def silent() -> Look:
    """What is seen of a driver that does not answer."""
    from ..gpu import asking

    return Look((), cores(), asking.silence(), has_hardware=True, is_silent=True)


def _told(busy: bool) -> Dict[str, Any]:
    seen = _seen(busy)
    return {"units": seen.units, "why": seen.why, "has_hardware": seen.has_hardware}


def _understood(told: Dict[str, Any]) -> Look:
    """What `_told` said, after its way between two processes."""
    units = (Unit._make(row) for row in told["units"])
    return Look(
        tuple(unit._replace(users=tuple((pid, uid) for pid, uid in unit.users)) for unit in units),
        cores(),
        told["why"],
        told["has_hardware"],
    )


def _seen(busy: bool) -> Look:
    from ..gpu import devices, nvml

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
