"""What the processes of a run use of the machine: cores, memory, disk, and the network where they have one of their own.

Read `Usage.sample` first. All of it comes from /proc; where that says nothing (another system, another user's process), the
answer is None, never 0.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

_TICK_S = 1.0 / (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Usage:
    """The processes below `guard`, from now on."""

    def __init__(self, guard: int) -> None:
        self.guard = guard
        self._cpu_before = _ended_below(guard)
        self._io: Dict[Tuple[int, int], Tuple[int, int]] = {}
        self._io_total = [0, 0]
        self.cpu_s: Optional[float] = None
        self.peak_memory: Optional[int] = None
        self.read: Optional[int] = None
        self.written: Optional[int] = None
        self.received: Optional[int] = None
        self.sent: Optional[int] = None

    def sample(self, pids: List[int]) -> Dict[str, Any]:
        """Look at `pids`, all that are alive; totals since the run began, and the memory now."""
        found = {pid: _stat(pid) for pid in pids}
        rows = {pid: row for pid, row in found.items() if row}
        ended = _ended_below(self.guard)
        if ended is not None:
            # What has ended is in the guard's books once it was waited for; what lives has its own, with its children's.
            own = sum(row[0] for row in rows.values()) + ended - (self._cpu_before or 0.0)
            self.cpu_s = max(own, self.cpu_s or 0.0)
        memory = _memory(pids)
        if memory is not None:
            self.peak_memory = max(memory, self.peak_memory or 0)
        self._count_io({pid: row[1] for pid, row in rows.items()})
        self.received, self.sent = _network(pids)
        return {
            "cpu_s": self.cpu_s and round(self.cpu_s, 2),
            "memory": memory,
            "processes": len(rows),
            "read": self.read,
            "written": self.written,
            "received": self.received,
            "sent": self.sent,
        }

    def _count_io(self, begun: Dict[int, int]) -> None:
        """Bytes to and from disks. A process is known by pid and start, because pids come back."""
        before, self._io = self._io, {}
        for pid, start in begun.items():
            now = _io(pid)
            if now is None:
                continue
            key = (pid, start)
            old = before.get(key, (0, 0))
            for at in (0, 1):
                self._io_total[at] += max(now[at] - old[at], 0)
            self._io[key] = now
            self.read, self.written = self._io_total


def _stat(pid: int) -> Optional[Tuple[float, int]]:
    """(seconds of CPU with its ended children's, start in ticks since boot)."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return sum(int(word) for word in words[11:15]) * _TICK_S, int(words[19])
    except (OSError, ValueError, IndexError):
        return None


def _ended_below(guard: int) -> Optional[float]:
    """Seconds of CPU of all that ended below the guard."""
    try:
        with open("/proc/%d/stat" % guard, "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return (int(words[13]) + int(words[14])) * _TICK_S
    except (OSError, ValueError, IndexError):
        return None


def _memory(pids: List[int]) -> Optional[int]:
    """Bytes in memory: each process's own, and what they share once."""
    own, shared, known = 0, 0, False
    for pid in pids:
        try:
            with open("/proc/%d/statm" % pid, "rb") as file:
                _, resident, common = file.read().split()[:3]
        except (OSError, ValueError):
            continue
        known = True
        own += (int(resident) - int(common)) * _PAGE
        shared = max(shared, int(common) * _PAGE)
    return own + shared if known else None


def _io(pid: int) -> Optional[Tuple[int, int]]:
    try:
        with open("/proc/%d/io" % pid, "rb") as file:
            told = dict(line.split(b": ") for line in file.read().splitlines())
        return int(told[b"read_bytes"]), int(told[b"write_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def _network(pids: List[int]) -> Tuple[Optional[int], Optional[int]]:
    """(received, sent) bytes, if the run has a network of its own, as in a container. The machine's is not the run's."""
    try:
        ours = os.readlink("/proc/self/ns/net")
    except OSError:
        return None, None
    for pid in pids:
        try:
            if os.readlink("/proc/%d/ns/net" % pid) == ours:
                continue
            with open("/proc/%d/net/dev" % pid) as file:
                rows = [line.split(":", 1) for line in file if ":" in line]
        except OSError:
            continue
        counts = [rest.split() for name, rest in rows if name.strip() != "lo"]
        return sum(int(row[0]) for row in counts), sum(int(row[8]) for row in counts)
    return None, None
