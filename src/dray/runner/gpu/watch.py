"""The runner's side of the sampler: starts it, hears it, and ends it; whatever it does, the run goes on without it.

Read `Watch` first: `begin` when the script is there, `hear` now and then, `finish` when it has ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from typing import Any, Dict, List, Optional

from .. import processes
from ..files import write_all

STREAM = "telemetry.jsonl"
_PATIENCE_S = 5.0
_MOST_FD = 1 << 16


class Watch:
    """One sampler. Without one (no process to be had, or it died) all answers are None."""

    def __init__(self, run_id: str, guard: int, streams: str) -> None:
        self.pid = 0
        self.devices: Optional[Dict[str, Any]] = None
        """What the machine has, once it has been looked at."""
        self.idle_s: Optional[float] = None
        self.usage: Optional[Dict[str, Any]] = None
        self.trouble: Optional[str] = None
        self._unread = b""
        self._orders = self._reports = -1
        prctl = processes.load_prctl()
        mine = os.getpid()
        pipes: List[int] = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            pid = os.fork()
        except OSError as trouble:
            for fd in pipes:
                os.close(fd)
            self.trouble = "no sampler could be started: %s" % trouble.strerror
            return
        orders_r, orders_w, reports_r, reports_w = pipes
        if pid == 0:
            try:
                processes.die_with_parent(prctl, mine)
                let_go_of_all_but(orders_r, reports_w)
                from .sampler import Sampler

                Sampler(run_id, guard, os.path.join(streams, STREAM), orders_r, reports_w).main()
            except BaseException:
                traceback.print_exc()  # stderr is runner.log
            finally:
                os._exit(0)
        os.close(orders_r)
        os.close(reports_w)
        self.pid, self._orders, self._reports = pid, orders_w, reports_r

    def begin(self, pid: int, shown: Optional[str], cgroups: Optional[List[str]] = None) -> None:
        """The script is there as `pid`; `shown` is its CUDA_VISIBLE_DEVICES."""
        self._order({"began": pid, "shown": shown, "cgroups": cgroups or []})

    def hear(self, patience_s: float = 0.0) -> None:
        """Take in what the sampler has said."""
        while self._reports >= 0 and select.select([self._reports], [], [], patience_s)[0]:
            data = os.read(self._reports, 1 << 20)
            if not data:
                self._gone("the sampler ended before its time")
                return
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line.decode()))
            patience_s = 0.0

    def wait_for_devices(self, patience_s: float) -> Optional[Dict[str, Any]]:
        """What the machine has; None when the driver does not say in time."""
        until = time.monotonic() + patience_s
        while self.devices is None and self._reports >= 0 and time.monotonic() < until:
            self.hear(0.1)
        return self.devices

    def finish(self, patience_s: float = _PATIENCE_S) -> Optional[Dict[str, Any]]:
        """The script has ended: what it used. Not later than in `patience_s`."""
        self._order({"ended": True})
        until = time.monotonic() + patience_s
        while self.usage is None and self._reports >= 0 and time.monotonic() < until:
            self.hear(min(0.2, max(until - time.monotonic(), 0.0)))
        if self.usage is None and not self.trouble:
            self.trouble = "the driver did not answer in time"
        self.close()
        return self.usage

    def close(self) -> None:
        """End the sampler. Safe to repeat, and never waits for a driver that hangs."""
        for fd in (self._orders, self._reports):
            if fd >= 0:
                os.close(fd)
        self._orders = self._reports = -1
        if self.pid:
            processes.send([self.pid], signal.SIGKILL)
            try:
                os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pass  # somebody else has waited for it
            self.pid = 0

    def _take(self, words: Dict[str, Any]) -> None:
        if "devices" in words:
            self.devices = words["devices"]
        if "idle_s" in words:
            self.idle_s = words["idle_s"]
        if "usage" in words:
            self.usage = words["usage"]

    def _order(self, words: Dict[str, Any]) -> None:
        if self._orders < 0:
            return
        try:
            write_all(self._orders, json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            self._gone("the sampler ended before its time")

    def _gone(self, why: str) -> None:
        if self.usage is None:  # once it has summed up, its end is as it should be
            self.trouble = why
        self.close()


def let_go_of_all_but(*kept: int) -> None:
    """The locks of the run are held by runner and guard alone."""
    try:
        known = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        known = list(range(3, _MOST_FD))
    for fd in known:
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # the one that listed them
