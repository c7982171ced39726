"""The process that watches a run: samples GPUs and the run's processes, and writes `telemetry.jsonl`.

It is a process of its own, so that a driver that hangs or crashes touches neither the runner nor the run. It hears orders on a pipe and
answers on another, one JSON line each; a closed order pipe is its end. Read `Sampler.main` first.

How often it looks: often at first, then every second, and more seldom where a look is dear, so that it takes at most 0.4 % of a core. How often
it writes: the interval grows with the run's age, and each line has the mean and the greatest value since the one before.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any, Dict, List, Optional

from .. import processes
from . import frameworks
from .devices import Seen, read_all, unseen
from .facts import of_machine
from .nvml import Nvml, NvmlError, or_none
from .own import Own, opens_gpu
from .shown import visible
from .track import Mean, Track
from .usage import Usage

_FIRST_S, _USUAL_S = 0.05, 1.0
_SHARE_OF_A_CORE = 0.004
_LINES_PER_AGE = 600
_LINGER_S = 1.5
_MOST_OPEN = 64
_FRAMEWORKS_AT_S = (0.3, 0.7, 1.5, 3.0, 10.0, 60.0, 600.0)


class Sampler:
    """Watches the run below `guard`; `say` sends a document to the runner."""

    def __init__(self, run_id: str, guard: int, stream: str, orders: int, reports: int) -> None:
        self.own = Own(run_id, guard)
        self.usage = Usage(guard)
        self.stream = stream
        self.orders = orders
        self.reports = reports
        self.library: Optional[Nvml] = None
        self.tracks: List[Track] = []
        self.began: Optional[float] = None
        self._fd = -1
        self._seq = 0
        self._unread = b""
        self._cpu_rate = Mean()
        self._line = _Line()
        self._written = 0.0
        self._cpu_before: Optional[float] = None
        self._touched = False
        self._facts: Dict[str, Any] = {}
        self._frameworks: List[Dict[str, Any]] = []
        self._frameworks_at = list(_FRAMEWORKS_AT_S)

    def main(self) -> None:
        """Look at the machine, wait for the run to begin, watch it to its end, and tell what it used."""
        self._facts = of_machine(self._look_at_machine())
        self._say(devices=self._facts)
        started = self._next_order(None)
        if started is None or "began" not in started:
            return
        self._begin(started)
        if not processes.IS_LINUX:  # what there is to see is in /proc
            order = self._next_order(None)
            self._say(usage={"gpus": [], "frameworks": [], "run": None})
            return
        pause = _FIRST_S
        while True:
            order = self._next_order(pause)
            if order is not None:
                break
            cost = time.process_time()
            self._sample()
            cost = time.process_time() - cost
            pause = max(min(pause * 1.5, _USUAL_S), cost / _SHARE_OF_A_CORE)
        self._finish(order)

    def _look_at_machine(self) -> Seen:
        """One look, and the driver is let go: a run that waits, or has no GPU, keeps nobody from resetting one."""
        try:
            library = Nvml()
        except (OSError, NvmlError) as trouble:
            from . import amd

            return amd.devices() or unseen(trouble)
        seen = read_all(library)
        library.close()
        return seen

    def _begin(self, started: Dict[str, Any]) -> None:
        """The run's first process is there."""
        self.own.cgroups = [str(name) for name in started.get("cgroups") or ()]
        self.began = time.monotonic()
        self.own.begin(int(started["began"] or 0))
        wanted, _ = visible(started.get("shown"), self._facts)
        if wanted != [] and any(device["vendor"] == "nvidia" for device in self._facts["devices"]):
            self._open_driver(wanted)
        self._fd = os.open(self.stream, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _open_driver(self, wanted: Optional[List[str]]) -> None:
        try:
            self.library = Nvml()
        except (OSError, NvmlError):
            return  # it was there a moment ago; without it nothing can be measured
        for index in range(or_none(self.library.count) or 0):
            self._track(index, wanted)

    def _track(self, index: int, wanted: Optional[List[str]]) -> None:
        """Follow that GPU, or those parts of it, if the run holds them (None: whatever is there)."""
        library = self.library
        assert library is not None
        try:
            whole = library.device(index)
            parts = library.mig_devices(whole)
            for handle in [whole] if parts is None else parts:
                uuid = library.uuid(handle)
                if wanted is None or uuid in wanted:
                    self.tracks.append(Track(library, uuid, handle, whole, self.own))
        except NvmlError:
            return  # told as that GPU's trouble

    def _sample(self) -> None:
        """One look; a line, when it is time for one."""
        now = time.monotonic()
        pids = self.own.look()
        run = self.usage.sample(pids)
        gpus = [track.look() for track in self.tracks]
        self._line.add(gpus)
        if self.tracks and not self._touched:
            self._touched = any(opens_gpu(pid) for pid in pids[:_MOST_OPEN])
        age = now - (self.began or now)
        if self._frameworks_at and age >= self._frameworks_at[0]:
            self._frameworks_at = [at for at in self._frameworks_at if at > age]
            self._see_frameworks(pids)
        if now - self._written >= age / _LINES_PER_AGE:
            self._write_sample(now, run)
        self._tell_idle(now)

    def _write_sample(self, now: float, run: Dict[str, Any]) -> None:
        passed = now - self._written if self._written else None
        cpu = run["cpu_s"]
        cores = None
        if passed and cpu is not None and self._cpu_before is not None:
            cores = max(cpu - self._cpu_before, 0.0) / passed
            self._cpu_rate.add(cores, passed)
        self._cpu_before, self._written = cpu, now
        run = dict(run, cpu=None if cores is None else round(cores, 3))
        self._append("sample", {"gpus": self._line.take(), "run": run})

    def _tell_idle(self, now: float) -> None:
        """For how long no GPU of the run computed for it; nothing where that cannot be known."""
        if not self.tracks or not all(track.shares_are_told or track.by_device for track in self.tracks):
            return
        last = max([track.last_use or 0.0 for track in self.tracks])
        self._say(idle_s=round(now - max(last, self.began or now), 1))

    def _see_frameworks(self, pids: List[int]) -> None:
        if self._facts["devices"]:
            known = {one["name"]: one for one in self._frameworks}
            known.update({one["name"]: one for one in frameworks.loaded(pids)})
            self._frameworks = list(known.values())

    def _finish(self, order: Dict[str, Any]) -> None:
        """The first process has ended. The driver's word about the last moments comes a little late, and is waited for."""
        self._sample()
        until = time.monotonic() + _LINGER_S
        while self._may_come_late() and time.monotonic() < until:
            time.sleep(0.1)
            for track in self.tracks:
                track.look()
        usage = self.usage
        totals = {
            "gpus": [track.finish() for track in self.tracks],
            "frameworks": self._frameworks,
            "run": {
                "cpu_s": usage.cpu_s and round(usage.cpu_s, 2),
                "peak_cores": _rounded(self._cpu_rate.most),
                "peak_memory": usage.peak_memory,
                "read": usage.read,
                "written": usage.written,
                "received": usage.received,
                "sent": usage.sent,
            },
        }
        self._append("usage", totals)
        self._say(usage=totals)

    def _may_come_late(self) -> bool:
        """Whether use is still to be hoped for: a GPU was touched, and nothing seen of it yet."""
        if not self.tracks or any(track.first_use is not None for track in self.tracks):
            return False
        return self._touched or any(track.has_context for track in self.tracks)

    # -- pipes and the stream

    def _next_order(self, patience_s: Optional[float]) -> Optional[Dict[str, Any]]:
        """An order, or None when none came in time. Does not return when the runner is gone."""
        while b"\n" not in self._unread:
            if not select.select([self.orders], [], [], patience_s)[0]:
                return None
            data = os.read(self.orders, 65536)
            if not data:
                os._exit(0)
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        order: Dict[str, Any] = json.loads(line.decode())
        return order

    def _say(self, **words: Any) -> None:
        try:
            os.write(self.reports, json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            os._exit(0)

    def _append(self, kind: str, data: Dict[str, Any]) -> None:
        """One event, one line, one write. What does not fit on the disk is left out; the totals go to the runner as well."""
        line = {"v": 1, "seq": self._seq, "t": round(time.time(), 3), "type": kind, "data": data}
        self._seq += 1
        try:
            os.write(self._fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError:
            return


class _Line:
    """The samples since the last line, as one."""

    def __init__(self) -> None:
        self._last: List[Dict[str, Any]] = []
        self._means: Dict[str, Dict[str, Mean]] = {}

    def add(self, gpus: List[Dict[str, Any]]) -> None:
        self._last = gpus
        for one in gpus:
            means = self._means.setdefault(one["gpu"], {})
            for name in ("util", "own_util", "power_w"):
                means.setdefault(name, Mean()).add(one[name], 1.0)
            means.setdefault("util_max", Mean()).add(one["util_max"], 1.0)

    def take(self) -> List[Dict[str, Any]]:
        """What memory, temperature and clocks are now; the mean of what goes up and down, and its greatest value."""
        merged = []
        for one in self._last:
            means = self._means[one["gpu"]]
            row = dict(one, **{name: _rounded(means[name].mean) for name in ("util", "own_util", "power_w")})
            row["util_max"] = _rounded(means["util_max"].most)
            row["own_util_max"] = _rounded(means["own_util"].most)
            merged.append(row)
        self._means = {}
        return merged


def _rounded(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 2)
