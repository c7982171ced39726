"""Whether a run used a GPU, and if not, why: facts and telemetry in, one word with its reason out. No I/O.

Read `judge` first. USED means compute time of this run's own processes; a process that only opened the GPU is VISIBLE-NOT-USED.
The rungs below are asked from the machine upwards, and the first that is broken is the reason.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

USED = "USED"
VISIBLE_NOT_USED = "VISIBLE-NOT-USED"
NOT_VISIBLE = "NOT-VISIBLE"
CPU_BUILD = "CPU-BUILD"
DRIVER_TOO_OLD = "DRIVER-TOO-OLD"
ARCH_UNSUPPORTED = "ARCH-UNSUPPORTED"
NO_GPU = "NO-GPU"
NOT_REQUESTED = "NOT-REQUESTED"
NOT_MEASURABLE = "NOT-MEASURABLE"
ALL = (
    USED, VISIBLE_NOT_USED, NOT_VISIBLE, CPU_BUILD, DRIVER_TOO_OLD, ARCH_UNSUPPORTED, NO_GPU, NOT_REQUESTED, NOT_MEASURABLE,
)  # fmt: skip

LEAST_CAPABILITY = {"13": (7, 5), "12.8": (7, 0), "12.9": (7, 0)}
"""The oldest GPU for which frameworks are built with that CUDA; the longer name goes first. For builds that do not list theirs."""


class Seen(NamedTuple):
    """All that a verdict is made of."""

    machine: Optional[Dict[str, Any]]
    """What the driver told of the machine; None: it did not answer."""
    requested: Optional[int]
    """How many GPUs were asked for; None: nobody said."""
    held: Optional[List[str]]
    """UUIDs that the run was to see; None: all that there are."""
    hidden_by: Optional[str]
    """What keeps GPUs from the run's sight, such as "CUDA_VISIBLE_DEVICES is empty"."""
    frameworks: List[Dict[str, Any]]
    """Those that the run loaded, or else those that its Python has."""
    usage: Optional[Dict[str, Any]]
    """The sampler's totals."""
    trouble: Optional[str]
    """Why there are none."""
    duration_s: Optional[float]


def judge(seen: Seen) -> Dict[str, Any]:
    """{"verdict", "reason", and the numbers}; "reason" is one sentence, and None only for USED."""
    word, reason = _word(seen)
    return dict({"verdict": word, "reason": reason}, **_numbers(seen))


def held_devices(seen: Seen) -> List[Dict[str, Any]]:
    """The devices that the run was to see."""
    found = []
    for device in (seen.machine or {}).get("devices") or ():
        parts = [part["uuid"] for part in device.get("mig") or ()]
        if seen.held is None or device["uuid"] in seen.held or any(part in seen.held for part in parts):
            found.append(device)
    return found


def _word(seen: Seen) -> Tuple[str, Optional[str]]:
    gpus = (seen.usage or {}).get("gpus") or []
    if any(gpu.get("first_use_s") is not None or gpu.get("accounted") for gpu in gpus):
        return USED, None
    for rung in (_machine, _visible, _build, _driver, _architecture):
        broken = rung(seen)
        if broken:
            return broken
    return _measured(seen, gpus)


def _machine(seen: Seen) -> Optional[Tuple[str, str]]:
    """The first rung: a GPU that works."""
    machine = seen.machine
    if machine is None:
        return NOT_MEASURABLE, seen.trouble or "the driver did not answer"
    if machine.get("devices"):
        return None
    why = machine.get("why") or "there is none"
    if machine.get("has_hardware"):
        return NOT_VISIBLE, "there is a GPU in the machine, and it cannot be used: %s" % why
    return NO_GPU, why


def _visible(seen: Seen) -> Optional[Tuple[str, str]]:
    """The second: the run may see one."""
    if seen.requested == 0:
        return NOT_REQUESTED, "the run asked for no GPU"
    devices = held_devices(seen)
    if not devices or seen.hidden_by:
        return NOT_VISIBLE, seen.hidden_by or "none of the machine's GPUs was given to the run"
    lost = [device for device in devices if device.get("trouble")]
    if len(lost) == len(devices):
        return NOT_VISIBLE, "GPU %s: %s" % (lost[0].get("index"), lost[0]["trouble"])
    return None


def _build(seen: Seen) -> Optional[Tuple[str, str]]:
    """The third: the framework was built for GPUs."""
    if seen.frameworks and all(one.get("cuda") is None and not one.get("hip") for one in seen.frameworks):
        named = ", ".join("%s %s" % (one["name"], one["version"]) for one in seen.frameworks)
        where = "" if seen.frameworks[0].get("loaded", True) else " in the run's Python"
        return CPU_BUILD, "%s%s was built without CUDA" % (named, where)
    return None


def _driver(seen: Seen) -> Optional[Tuple[str, str]]:
    """The fourth: the driver runs what the framework was built with. Of one major version of CUDA it runs all."""
    ceiling = _version((seen.machine or {}).get("cuda"))
    if ceiling is None:
        return None
    for one in _cuda_builds(seen):
        wanted = _version(one["cuda"])
        if wanted is None or wanted[0] <= ceiling[0]:
            return None
    for one in _cuda_builds(seen):
        text = "%s %s was built with CUDA %s, and driver %s runs CUDA up to %s"
        return DRIVER_TOO_OLD, text % (
            one["name"], one["version"], one["cuda"], (seen.machine or {}).get("driver"), (seen.machine or {}).get("cuda"),
        )  # fmt: skip
    return None


def _architecture(seen: Seen) -> Optional[Tuple[str, str]]:
    """The fifth: the framework has code for this GPU."""
    for one in _cuda_builds(seen):
        for device in held_devices(seen):
            capability = _version(device.get("compute_capability"))
            if capability is None or _covers(one, capability):
                return None
    for one in _cuda_builds(seen):
        device = held_devices(seen)[0]
        text = "%s %s (CUDA %s) has no code for %s, compute capability %s"
        return ARCH_UNSUPPORTED, text % (
            one["name"], one["version"], one["cuda"], device.get("name"), device.get("compute_capability"),
        )  # fmt: skip
    return None


def _measured(seen: Seen, gpus: List[Dict[str, Any]]) -> Tuple[str, str]:
    """The ladder is whole: what was seen of the run itself."""
    if seen.usage is None:
        return NOT_MEASURABLE, seen.trouble or "nothing was measured"
    if (held_devices(seen) or [{}])[0].get("vendor") == "amd":
        return NOT_MEASURABLE, "AMD's tools do not tell what of a GPU's time was this run's"
    context = any(gpu.get("context") for gpu in gpus)
    if not gpus or not all(gpu.get("own_s") is not None for gpu in gpus):
        return NOT_MEASURABLE, "the driver does not tell here what processes do on a GPU" + (
            "; the run held memory there" if context else ""
        )
    if context:
        return VISIBLE_NOT_USED, "the run opened the GPU and computed nothing there"
    if any(gpu.get("unseen") for gpu in gpus):
        text = "the driver names processes that cannot be told apart from here, as in a container with its own process ids"
        return NOT_MEASURABLE, text
    return VISIBLE_NOT_USED, "no process of the run opened the GPU"


def _cuda_builds(seen: Seen) -> List[Dict[str, Any]]:
    return [one for one in seen.frameworks if one.get("cuda")]


def _covers(framework: Dict[str, Any], capability: Tuple[int, int]) -> bool:
    """Whether the framework has code for GPUs of that compute capability."""
    archs = framework.get("archs")
    if archs:
        return covered(archs, capability)
    cuda = str(framework["cuda"])
    least = LEAST_CAPABILITY.get(cuda) or LEAST_CAPABILITY.get(cuda.split(".", maxsplit=1)[0])
    return framework["name"] == "tensorflow" or least is None or capability >= least


def covered(archs: List[str], capability: Tuple[int, int]) -> bool:
    """sm_80 runs on 8.0 and what is newer in the same major version; compute_80 (PTX) on all that is newer."""
    for arch in archs:
        kind, _, number = str(arch).partition("_")
        digits = "".join(c for c in number if c.isdigit())
        if len(digits) < 2:
            continue
        major, minor = int(digits[:-1]), int(digits[-1])
        if kind == "compute" and (major, minor) <= capability:
            return True
        # A letter behind the number binds it to that very GPU.
        fits = minor == capability[1] if number[-1:].isalpha() else minor <= capability[1]
        if kind == "sm" and major == capability[0] and fits:
            return True
    return False


def _version(text: Any) -> Optional[Tuple[int, int]]:
    """(12, 8) of "12.8"; None of what is no version."""
    major, _, rest = str(text or "").partition(".")
    minor = rest.partition(".")[0]
    if not major.isdigit():
        return None
    return int(major), int(minor) if minor.isdigit() else 0


def _numbers(seen: Seen) -> Dict[str, Any]:
    """What was measured; None is "not measurable"."""
    gpus = (seen.usage or {}).get("gpus") or []
    devices = held_devices(seen)
    machine = seen.machine or {}
    own = [gpu["own_s"] for gpu in gpus if gpu.get("own_s") is not None]
    first = [gpu["first_use_s"] for gpu in gpus if gpu.get("first_use_s") is not None]
    shares = "mean_utilisation" if any(gpu.get("by_device") for gpu in gpus) else "mean_share"
    peaks = "peak_utilisation" if any(gpu.get("by_device") for gpu in gpus) else "peak_share"
    hours = None if seen.duration_s is None else len(gpus or devices) * seen.duration_s / 3600.0
    return {
        "requested": seen.requested,
        "driver": machine.get("driver"),
        "cuda": machine.get("cuda"),
        "devices": devices,
        "frameworks": [{k: v for k, v in one.items() if k != "path"} for one in seen.frameworks],
        "peak_memory": _total(gpus, "peak_memory"),
        "mean_utilisation": _mean(gpus, shares),
        "peak_utilisation": _most(gpus, peaks),
        "by_device": any(gpu.get("by_device") for gpu in gpus),
        "first_use_s": min(first) if first else None,
        "held_gpu_h": None if hours is None else round(hours, 6),
        "used_gpu_h": round(sum(own) / 3600.0, 6) if own and len(own) == len(gpus) else None,
        "energy_j": _total(gpus, "energy_j"),
        "run": (seen.usage or {}).get("run"),
    }


def _values(gpus: List[Dict[str, Any]], name: str) -> List[float]:
    return [gpu[name] for gpu in gpus if gpu.get(name) is not None]


def _total(gpus: List[Dict[str, Any]], name: str) -> Optional[float]:
    values = _values(gpus, name)
    return sum(values) if values else None


def _mean(gpus: List[Dict[str, Any]], name: str) -> Optional[float]:
    values = _values(gpus, name)
    return round(sum(values) / len(values), 1) if values else None


def _most(gpus: List[Dict[str, Any]], name: str) -> Optional[float]:
    values = _values(gpus, name)
    return max(values) if values else None
