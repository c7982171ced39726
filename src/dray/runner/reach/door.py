"""The way into a live run: what its launcher says of it, kept in the runner's memory and on no disk (docs/decisions/0038).

The runner keeps it (`keep`); whoever serves a channel of the same user finds it (`find`), by the process that the run is.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List

from .. import processes, visit
from ..files import write_all
from ..folder import RunFolder

_NAME = "dray-door-"
_MOST = 16 << 20

# To every process that has the variable $1: signal $2. With what the smallest images have.
_SIGNAL = (
    'for p in /proc/[0-9]*; do tr "\\000" "\\n" <$p/environ 2>/dev/null | grep -qxF "$1" '
    '&& kill -"$2" "${p#/proc/}"; done 2>/dev/null'
)

_kept: Dict[str, int] = {}


class Door:
    """How to get inside one run, for as long as it is open."""

    def __init__(self, pid: int, born: str, words: dict[str, Any]) -> None:
        self.pid = pid
        self._born = born
        self.env: Dict[str, str] = {str(name): str(value) for name, value in words["env"].items()}
        """The environment of a process that goes in; secrets included."""
        self.cwd = str(words["cwd"])
        self.hidden = [str(name) for name in words.get("hidden") or []]
        """Names of the variables that are secrets."""
        self._into = [str(word) for word in words.get("into") or []]
        self._into_tty = [str(word) for word in words.get("into_tty") or self._into]
        self.hosts: List[str] = [str(host) for host in words.get("hosts") or []]
        """Addresses at which this machine reaches the run's ports; none: the run shares the machine's own."""
        self._inside = [str(word) for word in words.get("inside") or []]

    @property
    def is_open(self) -> bool:
        """Whether the run's process is still there."""
        return processes.born(self.pid) == self._born

    def into(self, mark: str, *, tty: bool) -> List[str]:
        """Words that stand before a command to have it run inside; none where inside is here.

        There it carries the variable `mark`, by which `signal_inside` finds it.
        """
        words = self._into_tty if tty else self._into
        return [*words[:2], "--env", mark, *words[2:]] if words else []

    def signal_inside(self, mark: str, number: int, wait_s: float = 0.0) -> bool:
        """Send a signal to all that carries the mark inside; False where that is not needed, or cannot be done."""
        if self._inside:
            _run([*self._inside, "/bin/sh", "-c", _SIGNAL, "sh", mark, str(number)], self.env, wait_s)
        return bool(self._inside)


def _run(argv: List[str], env: Dict[str, str], wait_s: float) -> None:
    import subprocess

    quiet = subprocess.DEVNULL
    try:
        helper = subprocess.Popen(argv, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
        if wait_s:
            helper.wait(wait_s)
    except (OSError, subprocess.TimeoutExpired):
        return  # the engine is gone, or in trouble; the end of the run ends all that is inside


def keep(run_id: str, words: dict[str, Any]) -> None:
    """Leave the door where `find` looks for it, until this process ends or `shut` is called."""
    if hasattr(os, "memfd_create"):
        try:
            fd = os.memfd_create(_NAME + run_id)
            write_all(fd, json.dumps(words).encode())
        except OSError:
            return  # an old kernel: `find` asks the process itself
        shut(run_id)  # only now: there is one at any moment
        _kept[run_id] = fd


def shut(run_id: str) -> None:
    """Nobody finds it any more."""
    fd = _kept.pop(run_id, None)
    if fd is not None:
        os.close(fd)


def find(folder: RunFolder) -> Door | None:
    """The door of that run; None while it has none, or not any more."""
    number = (folder.attempts() or [1])[-1]
    if folder.end(number) is not None:
        return None
    said = visit.said_running(folder, number)
    pid = said[1] if said else None
    born = processes.born(pid) if pid else None
    if not pid or born is None:
        return None
    words = _of_runner(folder.id, pid) or _of_process(folder, pid)
    return Door(pid, born, words) if words else None


def _of_runner(run_id: str, pid: int) -> dict[str, Any] | None:
    """What the runner keeps: it is the parent of the guard, which is the parent of `pid`."""
    guard = processes.parent(pid)
    runner = processes.parent(guard) if guard else None
    if not runner:
        return None
    # It may be putting another one in its place just now: then a second look finds that.
    return _kept_by(runner, run_id) or _kept_by(runner, run_id)


def _kept_by(runner: int, run_id: str) -> dict[str, Any] | None:
    wanted = "/memfd:%s%s (deleted)" % (_NAME, run_id)
    folder = "/proc/%d/fd" % runner
    try:
        names = os.listdir(folder)
    except OSError:
        return None  # it has just ended
    for name in names:
        path = os.path.join(folder, name)
        try:
            if os.readlink(path) == wanted:
                with open(path, "rb") as file:
                    words = json.loads(file.read(_MOST).decode())
                if isinstance(words, dict):
                    return words
        except (OSError, ValueError):
            continue  # closed again, or not written yet
    return None


def _of_process(folder: RunFolder, pid: int) -> dict[str, Any] | None:
    """Where the runner could keep nothing: with what environment the process was started."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            rows = [os.fsdecode(row).partition("=") for row in file.read(_MOST).split(b"\0") if b"=" in row]
    except OSError:
        return None
    env = {name: value for name, _, value in rows}
    if env.get(processes.MARK) != folder.id:
        return None  # a script may write into its state what it likes
    return {"env": env, "cwd": folder.code, "hidden": env.get("DRAY_SECRETS", "").split(",")}
