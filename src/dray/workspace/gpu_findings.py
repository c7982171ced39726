"""What a machine's GPUs lack, as findings of `dray doctor`: each with its evidence and the command that mends it.

Read `findings` first: facts in (what the machine answered to `examine`), findings out, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dray.core.durations import show_bytes
from dray.gpu.drivers import Fit, fit, needed_driver, shown, version
from dray.gpu.verdict import familiar_lines
from dray.runner.gpu.verdict import covered
from dray.workspace.finding import Finding

_FEW_BYTES = 600 << 20  # what a driver keeps for itself on a large card
_HARDWARE_SLOWDOWN = 0x8 | 0x40 | 0x80
_LATE_S = 2.0
_NOT_LOADED, _NO_PERMISSION, _MISMATCH, _NO_LIBRARY = 9, 4, 18, 12


def findings(name: str, facts: Mapping[str, Any], offset_s: float | None = None) -> list[Finding]:
    """Of the compute `name`; `offset_s` is how far its clock is ahead of ours."""
    told = _dict(facts.get("gpus"))
    devices = [one for one in told.get("devices") or () if isinstance(one, Mapping)]
    found = [*_clock(name, offset_s)]
    if not devices:
        return [*found, _without(name, facts, told)]
    found += _driver(name, facts, told, devices)
    for device in devices:
        found += _device(name, device)
    found += _frameworks(name, facts, told, devices)
    return found


def _clock(name: str, offset_s: float | None) -> Iterator[Finding]:
    if offset_s is not None and abs(offset_s) > _LATE_S:
        way = "ahead of" if offset_s > 0 else "behind"
        text = f"{abs(offset_s):.1f} s {way} this machine's: times of runs there look shifted"
        yield Finding("warn", f"clock of {name}", text, "sudo timedatectl set-ntp true")


def _without(name: str, facts: Mapping[str, Any], told: Mapping[str, Any]) -> Finding:
    """No GPU can be used: whether that is as it should be, and what mends it."""
    what, why, code = f"GPUs of {name}", str(told.get("why") or "none"), told.get("code")
    if not told.get("has_hardware") and not facts.get("cards"):
        return Finding("ok", what, f"none: {why}")
    shut = [one for one in facts.get("files") or () if not one.get("open")]
    if shut and code in (_NO_PERMISSION, _NOT_LOADED, 999):
        modes = ", ".join(f"{one['path']} {one.get('mode')} {one.get('group')}" for one in shut[:3])
        group = next((one["group"] for one in shut if one.get("group") not in (None, "root")), None)
        hint = (
            f"sudo usermod -aG {group} {facts.get('user')}"
            if group
            else "sudo chmod 666 " + " ".join(one["path"] for one in shut)
        )
        return Finding("bad", what, f"{facts.get('user')} may not open them: {modes}", hint)
    if code == _MISMATCH:
        text = f"{why}; the kernel has: {facts.get('kernel') or 'an older one'}. The driver was updated under a running kernel"
        return Finding("bad", what, text, "sudo reboot")
    modules = facts.get("modules") or ()
    if "nouveau" in modules and "nvidia" not in modules:
        hint = "echo blacklist nouveau | sudo tee /etc/modprobe.d/no-nouveau.conf && sudo update-initramfs -u && sudo reboot"
        return Finding(
            "bad", what, f"{why}: the kernel runs the card with nouveau, which cannot compute", hint
        )
    if code == _NOT_LOADED:
        return Finding(
            "bad",
            what,
            f"{why} (no `nvidia` among the kernel's modules)",
            "sudo modprobe nvidia && nvidia-smi",
        )
    if code == _NO_LIBRARY:
        hint = (
            "start the container with its GPUs: `--gpus all`"
            if facts.get("container")
            else "sudo ubuntu-drivers install, or your distribution's package of the NVIDIA driver"
        )
        return Finding("bad", what, why, hint)
    return Finding("bad", what, why, "nvidia-smi; sudo dmesg | grep -i -e nvrm -e xid")


def _driver(
    name: str, facts: Mapping[str, Any], told: Mapping[str, Any], devices: list[Mapping[str, Any]]
) -> Iterator[Finding]:
    if told.get("driver"):
        yield Finding(
            "ok", f"driver of {name}", f"{told['driver']}, runs CUDA up to {told.get('cuda') or 'unknown'}"
        )
    cards = facts.get("cards")
    if isinstance(cards, int) and cards > len(devices):
        text = f"{cards} cards on the bus, and the driver has {len(devices)}: one has fallen off, or was not taken"
        yield Finding("bad", f"GPUs of {name}", text, "sudo dmesg | grep -i -e nvrm -e xid; then sudo reboot")
    if facts.get("libcuda") is False and told.get("driver"):
        hint = (
            "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            if facts.get("container")
            else "sudo ldconfig, or install the compute part of the driver (libnvidia-compute, nvidia-driver-cuda)"
        )
        yield Finding("bad", f"CUDA of {name}", "libcuda.so.1 is not found: no program can compute", hint)
    paths = [one["path"] for one in facts.get("files") or ()]
    if paths and "/dev/nvidia-uvm" not in paths:
        yield Finding(
            "bad",
            f"CUDA of {name}",
            "/dev/nvidia-uvm is missing: CUDA cannot start",
            "sudo nvidia-modprobe -u -c=0",
        )
    for one in facts.get("files") or ():
        if not one.get("open"):
            text = f"{facts.get('user')} may not open {one['path']} ({one.get('mode')} {one.get('group')})"
            yield Finding(
                "bad",
                f"GPUs of {name}",
                text,
                f"sudo usermod -aG {one.get('group') or 'video'} {facts.get('user')}",
            )


def _device(name: str, device: Mapping[str, Any]) -> Iterator[Finding]:
    """One GPU: what it is, and what is wrong with it."""
    index = device.get("index")
    what = f"GPU {index} of {name}"
    if device.get("trouble"):
        yield Finding(
            "bad",
            what,
            f"{device['trouble']} ({device.get('uuid') or 'it does not even tell its UUID'})",
            f"sudo nvidia-smi --gpu-reset -i {index}, or sudo reboot",
        )
        return
    yield Finding("ok", what, ", ".join(familiar_lines(device)))
    yield from _parts(what, device)
    users = [one for one in device.get("processes") or () if isinstance(one, Mapping)]
    if users:
        named = ", ".join(_who(one) for one in users[:4]) + (" ..." if len(users) > 4 else "")
        yield Finding(
            "warn",
            what,
            f"in use: {named}",
            f"ps -o user,pid,lstart,cmd -p {','.join(str(one.get('pid')) for one in users[:4])}",
        )
    total, free = device.get("memory_total"), device.get("memory_free")
    if (
        not users
        and isinstance(total, int)
        and isinstance(free, int)
        and total - free > max(_FEW_BYTES, total // 50)
    ):
        yield Finding(
            "warn",
            what,
            f"{show_bytes(total - free)} are in use, by nobody who can be seen from here",
            f"sudo fuser -v /dev/nvidia{device.get('minor', index)}",
        )
    corrected, uncorrected = [*(device.get("ecc") or (0, 0))][:2]
    if uncorrected:
        yield Finding(
            "bad",
            what,
            f"{uncorrected} uncorrected memory errors since the driver was loaded",
            f"nvidia-smi -q -d ECC,ROW_REMAPPER -i {index}; then sudo nvidia-smi --gpu-reset -i {index}",
        )
    elif corrected:
        yield Finding("ok", f"{what}, memory", f"{corrected} memory errors, all corrected")
    if device.get("persistence") is False:
        yield Finding(
            "warn",
            what,
            "persistence is off: each first use waits for the driver to start",
            f"sudo nvidia-smi -pm 1 -i {index}",
        )
    if isinstance(device.get("slowed"), int) and device["slowed"] & _HARDWARE_SLOWDOWN:
        yield Finding(
            "warn",
            what,
            f"slowed down by its hardware, at {device.get('temperature')} C: cooling or power",
            f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i {index}",
        )


def _parts(what: str, device: Mapping[str, Any]) -> Iterator[Finding]:
    parts = device.get("mig")
    if parts is None:
        return
    if parts:
        yield Finding(
            "ok", f"{what}, parts", "; ".join(f"{one.get('name')} {one.get('uuid')}" for one in parts)
        )
    else:
        index = device.get("index")
        hint = f"sudo nvidia-smi mig -lgip -i {index}, then -cgi ID -C; or whole again: sudo nvidia-smi -mig 0 -i {index}"
        yield Finding("bad", what, "cut up (MIG), and no part was made: nothing can run there", hint)


def _who(one: Mapping[str, Any]) -> str:
    memory = one.get("memory")
    held = f", {show_bytes(memory)}" if isinstance(memory, int) else ""
    return f"{one.get('user') or 'a process that cannot be seen from here'} (pid {one.get('pid')}{held})"


def _frameworks(
    name: str, facts: Mapping[str, Any], told: Mapping[str, Any], devices: list[Mapping[str, Any]]
) -> Iterator[Finding]:
    """The builds that runs would meet."""
    python = _dict(facts.get("python"))
    for one in python.get("frameworks") or ():
        yield _build(f"{one.get('name')} of {name}", f"in {python.get('path')}", one, told, devices)
    for environment in facts.get("environments") or ():
        for one in environment.get("frameworks") or ():
            yield _build(
                f"{one.get('name')} of {name}",
                f"in environment {str(environment.get('name'))[:12]}",
                one,
                told,
                devices,
            )


def _build(
    what: str, where: str, one: Mapping[str, Any], told: Mapping[str, Any], devices: list[Mapping[str, Any]]
) -> Finding:
    named = f"{one.get('version')} {where}"
    cuda, driver = version(str(one.get("cuda") or "")), version(told.get("driver"))
    if one.get("hip"):
        return Finding("ok", what, f"{named}, built for ROCm {one['hip']}")
    if cuda is None:
        if one.get("cuda"):
            return Finding("ok", what, f"{named}, built with CUDA")
        return Finding(
            "warn",
            what,
            f"{named} was built without CUDA: it cannot use the GPU",
            "name a GPU build in the environment file; for PyTorch: dray submit --torch auto",
        )
    if driver and fit(driver, cuda) is Fit.TOO_OLD:
        text = f"{named} was built with CUDA {one['cuda']}, which needs driver {shown(needed_driver(cuda))}; this one is {told['driver']}"
        return Finding("bad", what, text, "dray submit --torch auto (PyTorch), or have the driver updated")
    archs = one.get("archs")
    for device in devices:
        capability = version(str(device.get("compute_capability") or ""))
        if (
            archs
            and capability
            and len(capability) > 1
            and not covered(list(archs), (capability[0], capability[1]))
        ):
            return Finding(
                "bad", what, f"{named} has no code for {device.get('name')}", "dray submit --torch auto"
            )
    return Finding("ok", what, f"{named}, built with CUDA {one['cuda']}")


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
