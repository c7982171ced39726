"""What a run does on one GPU, look by look: its share, its memory, and what the GPU itself does meanwhile.

Read `Track.look` first. The driver remembers the shares of processes between two looks, and is asked for all since the last one: so a
multiplication of 0.2 s between two looks is seen. What the driver does not tell stays None.
"""

from __future__ import annotations

import time
from ctypes import c_void_p
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .nvml import FUNCTION_NOT_FOUND, NOT_SUPPORTED, Nvml, NvmlError, or_none
from .own import Own, opens_gpu

SLOWED = {
    0x2: "set by an administrator",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "temperature",
    0x40: "hardware temperature",
    0x80: "power brake",
}
_NEVER = (NOT_SUPPORTED, FUNCTION_NOT_FOUND)


class Mean:
    """A mean over time and the greatest value."""

    def __init__(self) -> None:
        self.sum = 0.0
        self.seconds = 0.0
        self.most: Optional[float] = None

    def add(self, value: Optional[float], seconds: float) -> None:
        """`value` held for that long; None adds nothing."""
        if value is None:
            return
        self.sum += value * seconds
        self.seconds += seconds
        self.most = value if self.most is None else max(self.most, value)

    @property
    def mean(self) -> Optional[float]:
        """Over the time for which there were values."""
        if self.most is None:
            return None
        return self.sum / self.seconds if self.seconds else self.most


class Track:
    """One GPU, or a part of one, from the beginning of the run on."""

    def __init__(self, library: Nvml, uuid: str, handle: c_void_p, whole: c_void_p, own: Own) -> None:
        self.library = library
        self.uuid = uuid
        self.handle = handle
        self.whole = whole
        """The GPU that `handle` is a part of, or the same: power, clocks and temperature are the whole GPU's."""
        self.own = own
        self.began = time.monotonic()
        self._since = 0
        self._peaks_since = 0
        self._last = self.began
        self._asked: Dict[str, bool] = {}
        self._accounts = bool(or_none(library.accounts, whole))
        self._accounted: Dict[int, Tuple[int, Optional[int], int]] = {}
        self._ours: Dict[int, bool] = {}
        self._before: Set[int] = set()
        self.energy_before = self._try("energy", library.energy_mj, whole)
        self.energy_now = self.energy_before
        self.util = Mean()
        self.share = Mean()
        self.own_s = 0.0
        self.peak_memory: Optional[int] = None
        self.has_context = False
        self.has_strangers = False
        self.has_unseen = False
        self.first_use: Optional[float] = None
        self.last_use: Optional[float] = None
        self.lost: Optional[str] = None
        self.by_device = False
        """The use was seen on the whole GPU, on which nobody else was, because the driver does not tell shares."""
        self._start_reading()
        self._was_idle = not self._utilisation()[1]

    def _start_reading(self) -> None:
        """What the driver remembers of before is nobody's of ours; but a quick script may have been here already."""
        rows = self._try("shares", self.library.shares, self.handle, 0) or ()
        ours = min([row.t for row in rows if self.own.has(row.pid)], default=None)
        self._since = max([row.t for row in rows if ours is None or row.t < ours], default=0)
        for t, _ in self._try("peaks", self.library.peaks, self.handle, 0) or ():
            self._peaks_since = max(self._peaks_since, t)
        for row in self._try("processes", self.library.processes, self.handle) or ():
            # Whoever cannot be seen from here and was there before is nobody of ours.
            if self.own.has(row.pid) is None:
                self._before.add(row.pid)

    @property
    def shares_are_told(self) -> bool:
        """Whether the driver tells shares of processes on this GPU."""
        return self._asked.get("shares", True)

    def look(self) -> Dict[str, Any]:
        """One sample; the run's processes were looked for just before."""
        now = time.monotonic()
        passed, self._last = max(now - self._last, 1e-3), now
        memory = self._try("memory", self.library.memory, self.handle)
        own_memory = self._who(now)
        share = self._shares(now, passed)
        mean, most = self._utilisation()
        self.util.add(mean, passed)
        self.share.add(share, passed)
        if most is not None and self.util.most is not None:
            self.util.most = max(self.util.most, most)
        if mean and self._is_only_ours():
            self.by_device = True
            self.used(now, mean / 100.0 * passed)
        energy = self._try("energy", self.library.energy_mj, self.whole)
        if energy is not None:
            self.energy_now = energy
        slowed = self._try("slowed", self.library.slowed_by, self.whole)
        return {
            "gpu": self.uuid,
            "util": mean,
            "util_max": most,
            "memory": memory.used if memory else None,
            "power_w": _rounded(self._try("power", self.library.power_w, self.whole)),
            "temperature": self._try("temperature", self.library.temperature, self.whole),
            "clock": self._try("clock", self.library.clock, self.whole),
            "slowed": None if slowed is None else [word for bit, word in SLOWED.items() if slowed & bit],
            "own_util": _rounded(share),
            "own_memory": own_memory,
        }

    def _who(self, now: float) -> Optional[int]:
        """Bytes of the run's own processes; None where the driver does not tell."""
        rows = self._try("processes", self.library.processes, self.handle)
        if rows is None:
            return None
        found: List[Optional[int]] = []
        for row in rows:
            whose = self._has(row.pid)
            if whose:
                self._ours[row.pid] = True
                found.append(row.memory)
            elif whose is None:
                self.has_unseen = True
            else:
                self.has_strangers = True
        if not found:
            return 0
        self.has_context = True
        known = [memory for memory in found if memory is not None]
        if not known:
            return None
        self.peak_memory = max(self.peak_memory or 0, sum(known))
        self._books()
        return sum(known)

    def _has(self, pid: int) -> Optional[bool]:
        return False if pid in self._before else self.own.has(pid)

    def _books(self) -> None:
        """Where the driver keeps books of processes, they are read while the process lives, and once more at the end."""
        if not self._accounts:
            return
        for pid in self._ours:
            row = or_none(self.library.account, self.whole, pid)
            if row is not None:
                self._accounted[pid] = row

    def _shares(self, now: float, passed: float) -> Optional[float]:
        """Percent of the GPU that the run's own processes had since the last look."""
        rows = self._try("shares", self.library.shares, self.handle, self._since)
        if rows is None:
            return None
        times: Dict[int, List[Tuple[int, int]]] = {}
        for row in rows:
            whose = self._has(row.pid)
            if whose is None and row.sm:
                self.has_unseen = True
            elif whose is False and row.sm:
                self.has_strangers = True
            if whose:
                times.setdefault(row.pid, []).append((row.t, row.sm))
        busy = sum(_seconds(samples, self._since, passed) for samples in times.values())
        if any(sm for samples in times.values() for _, sm in samples):
            self.used(now, busy)
        self._since = max([self._since] + [row.t for row in rows])
        return min(100.0 * busy / passed, 100.0)

    def _is_only_ours(self) -> bool:
        """Whether all that happens on the GPU can only be the run's: asked where shares are not told, or name nobody."""
        if self.own_s and not self.by_device:
            return False
        if (self.shares_are_told and not self.has_unseen) or self.has_strangers or not self._was_idle:
            return False
        return self.has_context or any(opens_gpu(pid) for pid in self.own.alive)

    def used(self, now: float, busy_s: float) -> None:
        """The run's own processes computed here for so long."""
        self.own_s += busy_s
        self.first_use = now if self.first_use is None else self.first_use
        self.last_use = now

    def _utilisation(self) -> Tuple[Optional[float], Optional[float]]:
        """(mean since the last look, greatest): from the driver's own samples, else its last period."""
        rows = self._try("peaks", self.library.peaks, self.handle, self._peaks_since)
        if rows:
            self._peaks_since = max(t for t, _ in rows)
            values = [value for _, value in rows]
            return _rounded(sum(values) / len(values)), float(max(values))
        now = self._try("util", self.library.utilisation, self.handle)
        return (None, None) if now is None else (float(now), float(now))

    def finish(self) -> Dict[str, Any]:
        """All of it."""
        self._books()
        known = [peak for _, peak, _ in self._accounted.values() if peak is not None]
        if known:
            self.peak_memory = max([self.peak_memory or 0, *known])
        energy = None
        if self.energy_before is not None and self.energy_now is not None:
            energy = (self.energy_now - self.energy_before) / 1000.0
        return {
            "gpu": self.uuid,
            "measured_s": round(self._last - self.began, 3),
            "own_s": round(self.own_s, 3) if self.shares_are_told or self.by_device else None,
            "by_device": self.by_device,
            "accounted": max((gpu for gpu, _, _ in self._accounted.values()), default=None),
            "mean_share": _rounded(self.share.mean),
            "peak_share": _rounded(self.share.most),
            "mean_utilisation": _rounded(self.util.mean),
            "peak_utilisation": _rounded(self.util.most),
            "peak_memory": self.peak_memory,
            "first_use_s": None if self.first_use is None else round(max(self.first_use - self.began, 0), 3),
            "context": self.has_context,
            "strangers": self.has_strangers,
            "unseen": self.has_unseen,
            "energy_j": _rounded(energy),
            "lost": self.lost,
        }

    def _try(self, what: str, ask: Callable[..., Any], *words: Any) -> Any:
        """The answer or None; what this GPU never tells is not asked again."""
        if not self._asked.get(what, True):
            return None
        try:
            return ask(*words)
        except NvmlError as trouble:
            if trouble.code in _NEVER:
                self._asked[what] = False
            elif trouble.code in (15, 16):
                self.lost = trouble.words
            return None


def _seconds(samples: List[Tuple[int, int]], since: int, passed: float) -> float:
    """Seconds of computing that one process's samples stand for: each is the mean since the one before it."""
    total, before = 0.0, since
    for t, sm in sorted(samples):
        # Without an earlier look there is none before it; and no sample stands for more than the time that has passed.
        span = min((t - before) / 1e6, passed) if before else passed
        total += max(span, 0.0) * sm / 100.0
        before = t
    return min(total, passed)


def _rounded(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 1)
