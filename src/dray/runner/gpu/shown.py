"""Which GPUs a process sees: CUDA_VISIBLE_DEVICES, read as CUDA reads it."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible(
    told: Optional[str], machine: Optional[Dict[str, Any]]
) -> Tuple[Optional[List[str]], Optional[str]]:
    """(UUIDs that CUDA shows where CUDA_VISIBLE_DEVICES is `told`, why there are none); None for all of them."""
    if told is None:
        return None, None
    devices = (machine or {}).get("devices") or []
    found = []
    for word in told.split(","):
        uuid = _named(word.strip(), devices)
        if uuid is None:
            break  # CUDA shows what stands before the first word that it does not know
        found.append(uuid)
    if found or not devices:
        return found, None
    return [], "%s is %s" % (
        VISIBLE,
        "empty" if not told.strip() else "`%s`, and names none of the GPUs" % told[:80],
    )


def _named(word: str, devices: List[Dict[str, Any]]) -> Optional[str]:
    """The UUID that a word of CUDA_VISIBLE_DEVICES means: an index, or an unambiguous beginning of a UUID."""
    if word.isdigit():
        return devices[int(word)]["uuid"] if int(word) < len(devices) else None
    known = [device["uuid"] for device in devices]
    known += [part["uuid"] for device in devices for part in device.get("mig") or ()]
    fitting = [uuid for uuid in known if word and uuid.startswith(word)]
    return fitting[0] if len(fitting) == 1 else None
