"""Finding and ending processes: everything below one, or everything that carries a run's mark.

Linux: /proc and prctl. Elsewhere (macOS) `ps`, and process groups for what has left its parent: best effort.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Callable

from .mask import Mask

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


def _children(pid: int) -> list[int]:
    """By the kernel's own lists, one for each thread: exact at the moment, and cheap however much runs on the machine."""
    found: list[int] = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task), "rb") as file:
                found += [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has just ended: its children are another's now, and are found there next time
    return found


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, parents before children."""
    if os.path.exists("/proc/thread-self/children"):
        found = []
        ahead = [pid]
        while ahead:
            children = _children(ahead.pop())
            found += children
            ahead += children
        return found
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
    names = [name for name in os.listdir("/proc") if name.isdigit()] if IS_LINUX else []
    return [int(name) for name in names if int(name) != os.getpid() and _carries(name, wanted)]


def _carries(name: str, mark: bytes) -> bool:
    try:
        with open("/proc/%s/environ" % name, "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def writers(logs: list[str]) -> list[int]:
    """All processes whose stdout or stderr is one of the files `logs`: of the run, even with a cleaned environment."""
    wanted = set()
    for path in logs:
        try:
            seen = os.stat(path)
            wanted.add((seen.st_dev, seen.st_ino))
        except OSError:
            continue
    found = []
    for name in os.listdir("/proc") if IS_LINUX and wanted else []:
        for fd in ("1", "2"):
            try:
                seen = os.stat("/proc/%s/fd/%s" % (name, fd))
            except OSError:
                continue
            if (seen.st_dev, seen.st_ino) in wanted and name.isdigit() and int(name) != os.getpid():
                found.append(int(name))
                break
    return found


def is_usurped(lock: str, run_id: str) -> bool:
    """Whether the flock on `lock` was taken by a process of the run's script: then the run's people, whose it is, are dead."""
    mark = ("%s=%s" % (MARK, run_id)).encode()
    try:
        inode = ":%d" % os.stat(lock).st_ino
        with open("/proc/locks", "rb") as file:
            rows = [line.decode().split() for line in file if b" FLOCK " in line and b"->" not in line]
    except OSError:
        return False
    return any(row[5].endswith(inode) and _carries(row[4], mark) for row in rows)


def holds_removed(path: str) -> bool:
    """Whether any process still has the removed file `path` open."""
    wanted = os.path.realpath(path) + " (deleted)"
    for name in os.listdir("/proc") if IS_LINUX else []:
        try:
            for fd in os.listdir("/proc/%s/fd" % name) if name.isdigit() else []:
                if os.readlink("/proc/%s/fd/%s" % (name, fd)) == wanted:
                    return True
        except OSError:
            continue
    return not IS_LINUX


def name_of(pid: int, mask: Mask) -> str:
    """What a person would call that process; a secret among its words is hidden."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read(4096).split(b"\0")
    except OSError:
        return ""
    return mask.feed(b" ".join(w for w in words if w))[:200].decode(errors="replace")


def born(pid: int) -> str | None:
    """What tells this process from a later one of the same number; None when it is gone, or a zombie."""
    if not IS_LINUX:
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):
            return None
        return ""
    row = _stat(pid)
    return row[19] if row and row[0] not in ("Z", "X") else None


def parent(pid: int) -> int | None:
    """The parent's pid; None when it is gone."""
    if not IS_LINUX:
        return _parents_by_ps().get(pid)
    row = _stat(pid)
    return int(row[1]) if row else None


def _stat(pid: int) -> list[str] | None:
    """Its row in /proc, from the state on."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return None


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

    First all are stopped, so that a program that forks quickly cannot outrun us. One that ends as soon as it has forked is
    a zombie whenever we look; that there are ever new ones tells it from the truly dead.
    """
    deadline = time.monotonic() + limit_s
    known: set[int] = set()
    while True:
        found = find()
        send(found, signal.SIGSTOP)
        send(found, signal.SIGKILL)
        alive = [pid for pid in found if not is_zombie(pid)]
        if (not alive and known.issuperset(found)) or time.monotonic() > deadline:
            return alive
        known = set(found)
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
