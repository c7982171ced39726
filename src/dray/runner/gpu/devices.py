"""Which GPUs this machine has, and who is on them; or a sentence why there are none to be seen.

Read `devices` first. It opens the driver for one look. Who looks often keeps an `Nvml` open and calls `read_all`.
"""

from __future__ import annotations

import os
from ctypes import c_void_p
from typing import List, NamedTuple, Optional, Tuple

from . import nvml
from .nvml import Nvml, NvmlError, or_none

NVIDIA_VENDOR = "0x10de"


class Process(NamedTuple):
    """Somebody on a GPU. `uid` is None where the process cannot be seen, as from inside a container; so is `memory` where the
    driver does not tell. `kind` is "compute" or "graphics".
    """

    pid: int
    uid: Optional[int]
    memory: Optional[int]
    kind: str = "compute"


class Instance(NamedTuple):
    """A part of a GPU that was cut up (MIG); a run may hold it like a GPU."""

    uuid: str
    name: str
    memory_total: int
    memory_free: int


class Device(NamedTuple):
    """One GPU. What the driver does not tell is None, but for `trouble`: why nothing can be said of a GPU that is there."""

    index: int  # type: ignore[assignment]  # a tuple's own `index` is not missed
    uuid: str
    name: str
    memory_total: Optional[int]
    memory_free: Optional[int]
    pci_bus_id: Optional[str]
    compute_capability: Optional[Tuple[int, int]]
    clock: Optional[int]
    """MHz of the multiprocessors at most: what old logs called memoryClockRate."""
    processes: Tuple[Process, ...]
    mig: Optional[Tuple[Instance, ...]]
    """None: not cut up. Empty: cut up, and no part was made."""
    trouble: Optional[str] = None
    vendor: str = "nvidia"


class Seen(NamedTuple):
    """What a look gave. Without devices, `why` is a sentence."""

    devices: Tuple[Device, ...]
    why: Optional[str] = None
    driver: Optional[str] = None
    cuda: Optional[Tuple[int, int]] = None
    code: Optional[int] = None
    """NVML's number for `why`."""
    has_hardware: bool = False
    """A GPU is in the machine, whether or not it can be used."""


def devices() -> Seen:
    """All GPUs of this machine; never raises."""
    try:
        library = Nvml()
    except (OSError, NvmlError) as trouble:
        return unseen(trouble)
    try:
        return read_all(library)
    finally:
        library.close()


def read_all(library: Nvml) -> Seen:
    """The same, with a driver that is open."""
    driver, cuda = or_none(library.driver), or_none(library.cuda)
    try:
        count = library.count()
    except NvmlError as trouble:
        return unseen(trouble)._replace(driver=driver, cuda=cuda)
    found = tuple(read_one(library, index) for index in range(count))
    if not found:
        return Seen((), "the NVIDIA driver sees no GPU", driver, cuda, has_hardware=has_nvidia())
    return Seen(found, None, driver, cuda, has_hardware=True)


def read_one(library: Nvml, index: int) -> Device:
    """One GPU; one that is lost or shut says so in `trouble`."""
    try:
        handle = library.device(index)
        uuid = library.uuid(handle)
    except NvmlError as trouble:
        return Device(index, "", "", None, None, None, None, None, (), None, trouble.words)
    trouble_words = None
    memory = None
    try:
        memory = library.memory(handle)
    except NvmlError as trouble:
        # A card that shares the machine's memory has none of its own; anything else is wrong with the card.
        trouble_words = None if trouble.code == nvml.NOT_SUPPORTED else trouble.words
    return Device(
        index,
        uuid,
        or_none(library.name, handle) or "NVIDIA GPU",
        memory.total if memory else None,
        memory.free if memory else None,
        or_none(library.pci_bus_id, handle),
        or_none(library.capability, handle),
        or_none(library.most_clock, handle),
        tuple(_processes(library, handle)),
        _instances(library, handle),
        trouble_words,
    )


def _processes(library: Nvml, handle: c_void_p) -> List[Process]:
    """Who is on it; a process that both computes and draws is told once."""
    found = {}
    for kind, ask in (("graphics", library.drawing), ("compute", library.processes)):
        for row in or_none(ask, handle) or ():
            found[row.pid] = Process(row.pid, uid_of(row.pid), row.memory, kind)
    return list(found.values())


def _instances(library: Nvml, handle: c_void_p) -> Optional[Tuple[Instance, ...]]:
    try:
        parts = library.mig_devices(handle)
        if parts is None:
            return None
        found = []
        for part in parts:
            memory = library.memory(part)
            found.append(Instance(library.uuid(part), library.name(part), memory.total, memory.free))
        return tuple(found)
    except NvmlError:
        return None


def uid_of(pid: int) -> Optional[int]:
    """Whose process that is."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None


def has_nvidia() -> bool:
    """Whether a card of NVIDIA's is on the bus, driver or not."""
    return NVIDIA_VENDOR in display_vendors()


def display_vendors() -> List[str]:
    """The makers of the graphics and compute cards on the PCI bus."""
    found = []
    top = "/sys/bus/pci/devices"
    try:
        slots = os.listdir(top)
    except OSError:
        return []
    for slot in slots:
        try:
            with open("%s/%s/class" % (top, slot)) as file:
                # 03: display; 0302 is a 3D controller, as data-centre cards call themselves. 12: accelerator.
                if not file.read().startswith(("0x03", "0x12")):
                    continue
            with open("%s/%s/vendor" % (top, slot)) as file:
                found.append(file.read().strip())
        except OSError:
            continue
    return found


def unseen(trouble: Exception) -> Seen:
    """No look was possible; says why, and whether there is a GPU all the same."""
    hardware = has_nvidia() or bool(device_files())
    if isinstance(trouble, NvmlError):
        shut = [path for path in device_files() if not os.access(path, os.R_OK | os.W_OK)]
        if shut and trouble.code in (nvml.NO_PERMISSION, nvml.DRIVER_NOT_LOADED, 999):
            why = "this user may not open %s" % ", ".join(shut[:3])
            return Seen((), why, code=nvml.NO_PERMISSION, has_hardware=True)
        return Seen((), trouble.words, code=trouble.code, has_hardware=hardware)
    if os.environ.get(nvml.DOOR):
        return Seen((), "%s: %s" % (nvml.DOOR, trouble), code=nvml.LIBRARY_NOT_FOUND, has_hardware=hardware)
    if hardware:
        why = "there is an NVIDIA card, but no driver for it: %s was not found" % nvml.LIBRARY
        return Seen((), why, code=nvml.LIBRARY_NOT_FOUND, has_hardware=True)
    return Seen((), "there is no NVIDIA driver on this machine", code=nvml.LIBRARY_NOT_FOUND)


def device_files() -> List[str]:
    """/dev/nvidiactl and /dev/nvidia0 ..., where they are."""
    try:
        names = os.listdir("/dev")
    except OSError:
        return []
    named = [name for name in names if name == "nvidiactl" or (name[:6] == "nvidia" and name[6:].isdigit())]
    return sorted("/dev/" + name for name in named)
