"""What was seen of GPUs as plain data: for the stream, for the end, for the wire."""

from __future__ import annotations

from typing import Any, Dict

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
