"""What was seen of GPUs as plain data: for the stream, for the end, for the wire."""

from __future__ import annotations

from typing import Any, Dict

from . import asking, devices
from .devices import Device, Seen


def of_machine(seen: Seen) -> Dict[str, Any]:
    """For people and for the history: no list of other people's processes."""
    return {
        "driver": seen.driver,
        "cuda": None if seen.cuda is None else "%d.%d" % seen.cuda,
        "why": seen.why,
        "code": seen.code,
        "has_hardware": seen.has_hardware,
        "devices": [of_device(device) for device in seen.devices],
    }


def of_device(device: Device) -> Dict[str, Any]:
    """One device; what is not known is None."""
    capability = device.compute_capability
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "vendor": device.vendor,
        "pci_bus_id": device.pci_bus_id,
        "compute_capability": None if capability is None else "%d.%d" % capability,
        "clock_mhz": device.clock,
        "memory_total": device.memory_total,
        "memory_free": device.memory_free,
        "busy": len(device.processes),
        "mig": None
        if device.mig is None
        else [
            {
                "uuid": part.uuid,
                "name": part.name,
                "memory_total": part.memory_total,
                "memory_free": part.memory_free,
            }
            for part in device.mig
        ],
        "trouble": device.trouble,
    }


def for_builds() -> Dict[str, Any]:
    """What decides which build of a framework uses the GPUs; never waits for a driver that hangs."""
    told = asking.within(asking.patience_s(), _for_builds)
    return {"driver": None, "why": asking.silence(), "devices": []} if told is None else told


def _for_builds() -> Dict[str, Any]:
    seen = devices.devices()
    rows = [{"name": one.name, "capability": one.compute_capability} for one in seen.devices]
    return {"driver": seen.driver, "why": seen.why, "devices": rows}
