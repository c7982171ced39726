"""Finding and ending processes: everything below one, or everything that carries a run's mark.

Linux: /proc and prctl. Elsewhere (macOS) `ps`, and process groups for what has left its parent: best effort.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Callable

IS_LINUX = sys.platform.startswith("linux")
MARK = "DRAY_RUN_ID"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def load_prctl() -> Callable[[int, int], int]:
    """prctl(2), looked up now, so that a child can call it between fork and exec. Does nothing where there is none."""
    if not IS_LINUX:
        return lambda option, value: 0
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def call(option: int, value: int) -> int:
        return int(prctl(option, ctypes.c_ulong(value), 0, 0, 0))

    return call


def become_subreaper(prctl: Callable[[int, int], int]) -> None:
    """Orphans below this process become its children, and not init's."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(prctl: Callable[[int, int], int], parent: int) -> None:
    """SIGKILL for this process when `parent` ends; at once, if it has ended already."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _parents() -> dict[int, int]:
    """pid -> parent's pid, of all processes."""
    if not IS_LINUX:
        return _parents_by_ps()
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    # "pid (any name, even with brackets) state ppid ..."
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
    return parents


def _parents_by_ps() -> dict[int, int]:
    """The same where there is no /proc. An orphan counts as a child of its process group's leader."""
    import subprocess

    parents = {}
    told = subprocess.run(["ps", "-axo", "pid=,ppid=,pgid="], stdout=subprocess.PIPE, check=False).stdout
    for line in told.splitlines():
        pid, parent, group = (int(word) for word in line.split())
        parents[pid] = group if parent == 1 and group != pid else parent
    return parents


def has_children(pid: int) -> bool:
    """Whether any process, zombies included, has `pid` as its parent. Cheap."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid), "rb") as file:
            return bool(file.read(1))
    except OSError:
        return bool(descendants(pid))


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, parents before children."""
    below: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        below.setdefault(parent, []).append(child)
    found = []
    ahead = [pid]
    while ahead:
        children = below.get(ahead.pop(), [])
        found += children
        ahead += children
    return found


def marked(run_id: str) -> list[int]:
    """All processes of ours that carry the run's mark, whoever their parent is now."""
    wanted = ("%s=%s" % (MARK, run_id)).encode()
    found = []
    for name in os.listdir("/proc") if IS_LINUX else []:
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/%s/environ" % name, "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue
    return found


def name_of(pid: int) -> str:
    """What a person would call that process."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read(400).split(b"\0")
        return b" ".join(w for w in words if w)[:200].decode(errors="replace")
    except OSError:
        return ""


def is_zombie(pid: int) -> bool:
    """Ended, and only waiting to be noticed by its parent."""
    if not IS_LINUX:
        return False  # `ps` is asked again until the guard has reaped it
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return True


def send(pids: list[int], number: int) -> None:
    """Send a signal to each that is still there and ours."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_all(find: Callable[[], list[int]], limit_s: float = 5.0) -> list[int]:
    """SIGKILL everything that `find` finds until it finds nothing alive; returns what would not die.

    First all are stopped, so that a program that forks quickly cannot outrun us.
    """
    deadline = time.monotonic() + limit_s
    while True:
        alive = [pid for pid in find() if not is_zombie(pid)]
        if not alive or time.monotonic() > deadline:
            return alive
        send(alive, signal.SIGSTOP)
        send(alive, signal.SIGKILL)
        time.sleep(0.005)


def oom_kills() -> int:
    """How often the kernel's out-of-memory killer has struck, as far as this machine tells."""
    total = 0
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path) as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except (OSError, ValueError, IndexError):
            continue
    return total
