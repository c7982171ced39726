"""A run's verdict in words: what the closing summary, `dray show` and `show --json` say about GPUs.

The verdict itself is made beside the run (`dray.runner.gpu.verdict`), because a run can be refused by it. Here it is read, completed for a run whose
runner was killed before it could make one, and told: the reason, and for anything but USED the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dray.core.durations import show_duration
from dray.core.errors import printable
from dray.runner.gpu import verdict

if TYPE_CHECKING:
    from dray.gpu.tables import Version

GIB = 1 << 30
FEW = 3


@dataclass(frozen=True, slots=True)
class Told:
    """A verdict as a person reads it."""

    verdict: str
    reason: str | None
    next: str | None
    facts: Mapping[str, Any]

    @property
    def is_news(self) -> bool:
        """Worth a line of its own accord: a machine without GPUs, of which nobody wanted one, is not."""
        return self.verdict != verdict.NO_GPU or bool(self.facts.get("requested"))

    def to_json(self) -> dict[str, Any]:
        """The `gpu` of `show --json`."""
        return {"verdict": self.verdict, "reason": self.reason, "next": self.next, **self.facts}

    def lines(self) -> list[str]:
        """One line that says it, and for anything but USED one with the next step."""
        head = f"gpu: {self.verdict}" + (f": {printable(self.reason)}" if self.reason else "")
        if self.verdict == verdict.USED:
            head += ": " + ", ".join(self._measured())
        return [head, *([f"     {self.next}"] if self.next else [])]

    def _measured(self) -> list[str]:
        """Peak 11.2 GiB, mean 83 %, ..."""
        facts = self.facts
        mean, peak = facts.get("mean_utilisation"), facts.get("peak_utilisation")
        held, used = facts.get("held_gpu_h"), facts.get("used_gpu_h")
        told = [
            _names(facts.get("devices") or []),
            f"peak {_gib(facts.get('peak_memory'))}",
            f"busy {_percent(mean)} (peak {_percent(peak)})",
        ]
        if facts.get("first_use_s") is not None:
            told.append(f"first used after {show_duration(facts['first_use_s'])}")
        if held is not None and used is not None:
            told.append(f"{_hours(used)} GPU time of {_hours(held)} held")
        if facts.get("energy_j") is not None:
            told.append(f"{facts['energy_j'] / 3600:.3g} Wh")
        if facts.get("by_device"):
            told.append("seen on the whole GPU, on which nobody else was")
        return [printable(text) for text in told if text]


def of_run(
    end: Mapping[str, Any] | None,
    devices: Mapping[str, Any] | None,
    samples: Sequence[Mapping[str, Any]] = (),
    compute: str = "",
) -> Told | None:
    """The verdict of an ended run: its runner's, or, when that was killed, what its samples still tell. None: too early, or too old."""
    facts = (end or {}).get("gpu")
    if not isinstance(facts, Mapping):
        if end is None or end.get("started") is None or (devices is None and not samples):
            return None
        facts = _from_samples(devices, samples)
    word = str(facts.get("verdict"))
    reason = facts.get("reason")
    rest = {name: value for name, value in facts.items() if name not in ("verdict", "reason")}
    return Told(
        word, str(reason) if reason else None, next_step(word, rest, str(reason or ""), compute), rest
    )


def _from_samples(devices: Mapping[str, Any] | None, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Nobody was left to sum up. Use that was sampled is use; that none was sampled proves nothing."""
    rows = [row for sample in samples for row in sample.get("gpus") or () if isinstance(row, Mapping)]
    shares = [row["own_util_max"] for row in rows if _is_number(row.get("own_util_max"))]
    memory = [row["own_memory"] for row in rows if _is_number(row.get("own_memory"))]
    is_used = any(share > 0 for share in shares)
    known = devices or {}
    return {
        "verdict": verdict.USED if is_used else verdict.NOT_MEASURABLE,
        "reason": None if is_used else "the runner was killed before it could sum up",
        "devices": list(known.get("devices") or []),
        "driver": known.get("driver"),
        "cuda": known.get("cuda"),
        "peak_memory": max(memory, default=None),
        "mean_utilisation": round(sum(shares) / len(shares), 1) if shares else None,
        "peak_utilisation": max(shares, default=None),
    }


def next_step(word: str, facts: Mapping[str, Any], reason: str, compute: str) -> str | None:
    """What to do about it, in a line."""
    doctor = f"dray doctor -c {compute}" if compute else "dray doctor"
    ceiling = facts.get("cuda")
    if word == verdict.VISIBLE_NOT_USED:
        return "next: move the model and its data there, such as `model.to('cuda')`; then look at `dray metrics --plot gpu`"
    if word == verdict.NOT_VISIBLE:
        if "CUDA_VISIBLE_DEVICES" in reason:
            return "next: look for what sets CUDA_VISIBLE_DEVICES: the script, `-e`, the compute's set-up, `--gpus`"
        return f"next: {doctor}"
    if word == verdict.CPU_BUILD:
        limit = f" for CUDA {ceiling} or older" if ceiling else ""
        return f"next: name a GPU build of it{limit} in the environment file; for PyTorch `--torch auto` takes one that fits"
    if word == verdict.DRIVER_TOO_OLD:
        from dray.gpu.drivers import needed_driver, shown

        cuda = _cuda_wanted(facts)
        newer = f" to {shown(needed_driver(cuda))} or newer" if cuda else ""
        return f"next: a build for CUDA {ceiling} or older (`--torch auto` takes one that fits), or have the driver updated{newer}"
    if word == verdict.ARCH_UNSUPPORTED:
        return "next: name a build that has code for this GPU: builds for older CUDA keep older cards, those for newer CUDA have new ones"
    if word == verdict.NOT_REQUESTED:
        return None
    if word == verdict.NOT_MEASURABLE:
        return f"next: {doctor}"
    return None


def _cuda_wanted(facts: Mapping[str, Any]) -> Version | None:
    """The newest CUDA that the run's frameworks were built with."""
    from dray.gpu.drivers import version

    found = [version(str(one.get("cuda") or "")) for one in facts.get("frameworks") or ()]
    return max((one for one in found if one), default=None)


def familiar_lines(device: Mapping[str, Any]) -> list[str]:
    """The five facts as frameworks used to print them, for old eyes and old scripts; what is not known is left out."""
    major, _, minor = str(device.get("compute_capability") or "").partition(".")
    clock = device.get("clock_mhz")
    second = [
        f"major: {major} minor: {minor}" if major else "",
        f"memoryClockRate (GHz) {clock / 1000:.4g}" if _is_number(clock) and clock else "",
    ]
    total, free = device.get("memory_total"), device.get("memory_free")
    lines = [
        f"name: {device.get('name')}",
        " ".join(part for part in second if part),
        f"pciBusID {device['pci_bus_id']}" if device.get("pci_bus_id") else "",
        f"Total memory: {total / GIB:.2f}GiB" if _is_number(total) and total is not None else "",
        f"Free memory: {free / GIB:.2f}GiB" if _is_number(free) and free is not None else "",
    ]
    if device.get("trouble"):
        lines.append(f"trouble: {device['trouble']}")
    return [printable(line) for line in lines if line]


def header_lines(devices: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those lines for each device; where there are many, one line each."""
    told = [familiar_lines(device) for device in devices]
    return (
        [line for lines in told for line in lines]
        if len(told) < FEW
        else [", ".join(lines) for lines in told]
    )


def _names(devices: Sequence[Mapping[str, Any]]) -> str:
    names = [str(device.get("name")) for device in devices]
    counted = {name: names.count(name) for name in names}
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counted.items())


def _gib(value: Any) -> str:
    return f"{value / GIB:.2f} GiB" if _is_number(value) else "memory not measurable"


def _percent(value: Any) -> str:
    return f"{value:.0f} %" if _is_number(value) else "not measurable"


def _hours(hours: float) -> str:
    return show_duration(hours * 3600)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
