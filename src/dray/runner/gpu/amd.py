"""AMD's GPUs, by what `amd-smi` or `rocm-smi` print; there is nothing to link to that is the same everywhere.

Devices and their memory alone: what of a GPU's time was this run's is not told by either.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any, Dict, List, Optional

from .devices import Device, Seen, display_vendors

_VENDOR = "0x1002"
_PATIENCE_S = 10
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def devices() -> Optional[Seen]:
    """The AMD GPUs of this machine; None where there are none, or no ROCm."""
    if not os.path.exists("/dev/kfd") and _VENDOR not in display_vendors():
        return None
    return ask()


def ask() -> Optional[Seen]:
    """What the tools say; None where neither is there."""
    text = _run(["amd-smi", "static", "--json"])
    if text is not None:
        return Seen(tuple(parse_amd_smi(text)), None, has_hardware=True)
    text = _run(
        ["rocm-smi", "--showproductname", "--showuniqueid", "--showbus", "--showmeminfo", "vram", "--json"]
    )
    if text is not None:
        return Seen(tuple(parse_rocm_smi(text)), None, has_hardware=True)
    if os.path.exists("/dev/kfd"):
        why = "there is an AMD GPU, and neither `amd-smi` nor `rocm-smi` to ask about it"
        return Seen((), why, has_hardware=True)
    return None


def _run(argv: List[str]) -> Optional[str]:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def parse_amd_smi(text: str) -> List[Device]:
    """`amd-smi static --json`: a list of GPUs, or {"gpu_data": list} since ROCm 7."""
    found = []
    for number, row in enumerate(_rows(_json(text))):
        asic, bus, vram = (_part(row, name) for name in ("asic", "bus", "vram"))
        index = row.get("gpu", number)
        serial = str(asic.get("asic_serial") or "")
        name = str(asic.get("market_name") or _part(row, "board").get("product_name") or "AMD GPU")
        found.append(_device(index, serial, name, bus.get("bdf"), _size(vram.get("size"))))
    return found


def parse_rocm_smi(text: str) -> List[Device]:
    """`rocm-smi ... --json`: {"card0": {...}, "card1": {...}, "system": {...}}."""
    told = _json(text)
    found = []
    for key in sorted(told if isinstance(told, dict) else {}, key=lambda key: (len(key), key)):
        match = re.match(r"card(\d+)$", key)
        row = told[key]
        if not match or not isinstance(row, dict):
            continue
        total, used = row.get("VRAM Total Memory (B)"), row.get("VRAM Total Used Memory (B)")
        name = str(row.get("Card Series") or row.get("Card series") or row.get("Card Model") or "AMD GPU")
        one = _device(
            int(match.group(1)), str(row.get("Unique ID") or ""), name, row.get("PCI Bus"), _size(total)
        )
        if one.memory_total is not None and _size(used) is not None:
            one = one._replace(memory_free=one.memory_total - (_size(used) or 0))
        found.append(one)
    return found


def _device(index: Any, serial: str, name: str, bus: Any, total: Optional[int]) -> Device:
    number = index if isinstance(index, int) else 0
    pci = str(bus).lower() if bus else None
    uuid = "AMD-" + (serial if serial and serial != "N/A" else pci or str(number))
    return Device(number, uuid, name, total, None, pci, None, None, (), None, None, "amd")


def _json(text: str) -> Any:
    """Both tools may print warnings before the document."""
    start = min([at for at in (text.find("{"), text.find("[")) if at >= 0] or [0])
    try:
        return json.loads(text[start:])
    except ValueError:
        return None


def _rows(told: Any) -> List[Dict[str, Any]]:
    if isinstance(told, dict):
        told = told.get("gpu_data")
    return [row for row in told if isinstance(row, dict)] if isinstance(told, list) else []


def _part(row: Dict[str, Any], name: str) -> Dict[str, Any]:
    part = row.get(name)
    return part if isinstance(part, dict) else {}


def _size(told: Any) -> Optional[int]:
    """12884901888, "12884901888" or {"value": 12288, "unit": "MB"}."""
    if isinstance(told, dict):
        value, unit = told.get("value"), _UNITS.get(str(told.get("unit")).upper())
        return int(value) * unit if isinstance(value, (int, float)) and unit else None
    try:
        return int(told)
    except (TypeError, ValueError):
        return None
