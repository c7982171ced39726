"""What `dray doctor` wants to know of this machine's GPUs: facts alone; what they mean is said by the client.

Read `examine` first. The driver is asked in a process of its own, because one that is broken may not answer at all.
"""

from __future__ import annotations

import ctypes
import os
import stat
import time
from typing import Any, Dict, List, Optional, Tuple

from ..files import read_text
from ..machine import Machine, user_of
from . import devices, frameworks, nvml
from .asking import patience_s, within
from .nvml import Nvml, NvmlError, or_none

_THOROUGH = 2  # who looks for what is wrong waits longer than who wants to go on


def examine(machine: Machine, python: Optional[str], path: str) -> Dict[str, Any]:
    """All facts. `python` is the one of runs (None: the machine's own, found on `path`)."""
    from ..environments.pythons import find_program

    python = python or find_program(["python", "python3"], path)
    facts: Dict[str, Any] = {
        "time": time.time(),
        "files": [_file(name) for name in devices.device_files()],
        "user": user_of(os.getuid())[0] or str(os.getuid()),
        "groups": sorted(filter(None, (_group(number) for number in os.getgroups()))),
        "kernel": read_text("/proc/driver/nvidia/version").split("\n")[0][:200] or None,
        "modules": sorted(
            {line.split(" ")[0] for line in read_text("/proc/modules").splitlines()} & _MODULES
        ),
        "cards": devices.display_vendors().count(devices.NVIDIA_VENDOR),
        "libcuda": _has_library("libcuda.so.1"),
        "container": os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"),
        "python": {
            "path": python,
            "frameworks": frameworks.of_python(python, dict(os.environ)) if python else [],
        },
        "environments": _environments(machine),
    }
    limit_s = _THOROUGH * patience_s()
    told = within(limit_s, _driver)
    facts["gpus"] = (
        told if told is not None else {"devices": [], "why": "the driver did not answer in %d s" % limit_s}
    )
    return facts


_MODULES = {"nvidia", "nvidia_uvm", "nouveau", "amdgpu"}


def has_gpu() -> Tuple[bool, str]:
    """(a GPU is in the machine, what is wrong with its driver); from a driver that may hang."""
    limit_s = _THOROUGH * patience_s()
    told = within(limit_s, _has_gpu)
    if told is None:
        return True, "the driver did not answer in %d s" % limit_s
    return bool(told["there"]), str(told["trouble"])


def _has_gpu() -> Dict[str, Any]:
    seen = devices.devices()
    wrong = bool(seen.has_hardware and not seen.devices)
    return {"there": bool(seen.devices) or seen.has_hardware, "trouble": str(seen.why or "") if wrong else ""}


def _driver() -> Dict[str, Any]:
    from .facts import of_machine

    try:
        library = Nvml()
    except (OSError, NvmlError) as trouble:
        from . import amd

        return of_machine(amd.devices() or devices.unseen(trouble))
    seen = devices.read_all(library)
    told = of_machine(seen)
    for row, device in zip(told["devices"], seen.devices):
        row["processes"] = [
            {
                "pid": one.pid,
                "user": None if one.uid is None else user_of(one.uid)[0] or str(one.uid),
                "memory": one.memory,
            }
            for one in device.processes
        ]
        row.update(_health(library, device.index))
    return told


def _health(library: Nvml, index: int) -> Dict[str, Any]:
    """What a healthy GPU says; None where it says nothing."""
    try:
        handle = library.device(index)
    except NvmlError:
        return {}
    ecc = or_none(library.ecc_errors, handle)
    return {
        "persistence": or_none(library.persistence, handle),
        "ecc": None if ecc is None else list(ecc),
        "util": or_none(library.utilisation, handle),
        "temperature": or_none(library.temperature, handle),
        "slowed": or_none(library.slowed_by, handle),
        "minor": or_none(library.minor, handle),
    }


def _file(path: str) -> Dict[str, Any]:
    """Whether this user may open that device."""
    try:
        seen = os.stat(path)
    except OSError as trouble:
        return {"path": path, "open": False, "mode": None, "group": None, "trouble": trouble.strerror}
    return {
        "path": path,
        "open": os.access(path, os.R_OK | os.W_OK),
        "mode": stat.filemode(seen.st_mode),
        "group": _group(seen.st_gid),
    }


def _group(number: int) -> Optional[str]:
    try:
        import grp

        return grp.getgrgid(number).gr_name
    except (ImportError, KeyError):
        return None


def _has_library(name: str) -> Optional[bool]:
    """Whether programs find that library; None where libraries are not looked up so."""
    if os.environ.get(nvml.DOOR):
        return None
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _environments(machine: Machine) -> List[Dict[str, Any]]:
    """Built environments that have a framework."""
    found = []
    try:
        names = sorted(os.listdir(machine.environments))
    except OSError:
        return []
    for name in names:
        python = os.path.join(machine.environments, name, "bin", "python")
        if os.path.lexists(python):
            known = frameworks.of_python(python, {})
            if known:
                found.append({"name": name, "frameworks": known})
    return found
