"""Which processes are a run's: those below its guard, those that carry its mark, those in a cgroup that is its own."""

from __future__ import annotations

import os
import time
from typing import Dict, List, Optional, Sequence

from .. import processes

_REMEMBERED_S = 60.0
_MANY = 256


class Own:
    """The processes of one run, those that have ended included."""

    def __init__(self, run_id: str, guard: int, cgroups: Sequence[str] = ()) -> None:
        """`cgroups`: beginnings or parts of names of cgroups in which nothing but the run is, such as a container's id."""
        self.guard = guard
        self.first = 0
        self.cgroups = [name for name in cgroups if name]
        self._mark = ("%s=%s" % (processes.MARK, run_id)).encode()
        self._known: Dict[int, float] = {}
        """pid -> when it was last seen as the run's: the driver speaks of processes that have ended, for a while."""
        self._strangers: Dict[int, Optional[str]] = {}
        self.alive: List[int] = []

    def look(self) -> List[int]:
        """All that are alive below the guard now."""
        self.alive = processes.descendants(self.guard)
        # A container's first process is below its engine.
        if self.first and self.first not in self.alive and _begun(self.first) is not None:
            self.alive += [self.first, *processes.descendants(self.first)]
        now = time.monotonic()
        if len(self._known) > 2 * len(self.alive) + _MANY:
            self._known = {pid: seen for pid, seen in self._known.items() if now - seen < _REMEMBERED_S}
        self._known.update(dict.fromkeys(self.alive, now))
        return self.alive

    def begin(self, pid: int) -> None:
        """The run's first process, below the guard or not."""
        self.first = pid
        self.look()
        if pid:
            self._known[pid] = time.monotonic()

    def has(self, pid: int) -> Optional[bool]:
        """Whether `pid`, as the driver names it, is the run's; None when no such process can be seen from here."""
        now = time.monotonic()
        # Ids come back: what ended long ago is not meant any more.
        if now - self._known.get(pid, -_REMEMBERED_S) < _REMEMBERED_S:
            return True
        begun = _begun(pid)
        if begun is None:
            return None
        if self._strangers.get(pid) == begun:
            return False
        if self._carries_mark(pid) or self._is_in_cgroup(pid):
            self._known[pid] = now
            return True
        self._strangers[pid] = begun
        return False

    def _carries_mark(self, pid: int) -> bool:
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                return self._mark in file.read().split(b"\0")
        except OSError:
            return False

    def _is_in_cgroup(self, pid: int) -> bool:
        if not self.cgroups:
            return False
        try:
            with open("/proc/%d/cgroup" % pid) as file:
                text = file.read()
        except OSError:
            return False
        return any(name in text for name in self.cgroups)


def _begun(pid: int) -> Optional[str]:
    """Something that tells this process from a later one of the same pid; None when there is none."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None


def opens_gpu(pid: int) -> bool:
    """Whether the process has a GPU open; False also where we may not look."""
    top = "/proc/%d/fd" % pid
    try:
        for fd in os.listdir(top):
            path = os.readlink("%s/%s" % (top, fd))
            if path.startswith("/dev/nvidia") and path[11:].isdigit():
                return True
    except OSError:
        return False
    return False
