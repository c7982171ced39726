"""The escort: parent of one command in a live run. It starts it, passes signals on, and leaves nothing of it behind.

It obeys the channel's process by a pipe; when that closes, or the run's own process ends, the command and all below it end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from typing import Any, Dict, List, NoReturn, Optional

from .. import processes
from ..files import write_all
from ..guard import execute
from .door import Door

_TICK_S = 0.1
_GRACE_S = 0.4  # when the run is over: a command may say a last word, and must not outlive it by much
_INSIDE_S = 5.0  # what an engine may take to pass a signal on
_LEFT_GRACE_S = 2.0  # when the channel is gone: a shell may want to write its history


class Escort:
    """Runs in a process of its own; `main` does not return."""

    def __init__(self, door: Door, order: Dict[str, Any], orders: int, reports: int) -> None:
        """`order`: argv, env, cwd, the three `files` for the command, and whether they are a terminal (`tty`)."""
        self._door = door
        self._order = order
        self._orders = orders
        self._reports = reports
        self._prctl = processes.load_prctl()
        self._child = 0
        self._status: Optional[int] = None
        self._unread = b""

    def main(self) -> NoReturn:
        """Start the command, and see it end."""
        processes.become_subreaper(self._prctl)
        os.setsid()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        wake_r, wake_w = os.pipe()
        for fd in (wake_r, wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        cannot = self._start()
        for fd in set(self._order["files"]):
            os.close(fd)
        if cannot:
            self._report(cannot=cannot)
            os._exit(0)
        self._report(started=self._child)
        while self._status is None:
            ready, _, _ = select.select([self._orders, wake_r], [], [], _TICK_S)
            if wake_r in ready:
                os.read(wake_r, 4096)
                self._reap()
            if self._orders in ready and not self._obey():
                self._end(_LEFT_GRACE_S)
            elif self._status is None and not self._door.is_open:
                self._report(over=True)
                self._end(_GRACE_S)
        self._report(exit=self._status)
        self._end(_GRACE_S)
        os._exit(0)

    def _start(self) -> int:
        """Start the command; 0, or the errno that it met."""
        trouble_r, trouble_w = os.pipe()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as trouble:
            return trouble.errno or 11
        if pid == 0:
            self._become(trouble_w, parent)
        self._child = pid
        os.close(trouble_w)
        number = os.read(trouble_r, 16)
        os.close(trouble_r)
        return int(number or 0)

    def _become(self, trouble: int, parent: int) -> NoReturn:
        try:
            os.setsid()
            processes.die_with_parent(self._prctl, parent)
            signal.set_wakeup_fd(-1)
            for number in (
                signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ
            ):  # fmt: skip
                signal.signal(number, signal.SIG_DFL)
            if self._order["tty"]:
                import fcntl
                import termios

                fcntl.ioctl(self._order["files"][0], termios.TIOCSCTTY, 0)
            for place, fd in enumerate(self._order["files"]):
                os.dup2(fd, place)
            os.chdir(self._order["cwd"])
            execute(self._order["argv"], self._order["env"])
        except OSError as problem:
            os.write(trouble, str(problem.errno or 8).encode())
        except ValueError:  # a NUL byte, or a letter that this machine's names cannot hold
            os.write(trouble, b"22")
        finally:
            os._exit(127)

    def _obey(self) -> bool:
        """Pass on the signals that were asked for. False: nobody asks any more."""
        data = os.read(self._orders, 65536)
        if not data:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            try:
                # What went in on our behalf would leave at once, and the command would go on inside.
                if (
                    not self._door.signal_inside(self._order["mark"], int(line))
                    or int(line) == signal.SIGKILL
                ):
                    os.killpg(self._child, int(line))
            except (ProcessLookupError, PermissionError, ValueError):
                continue
        return True

    def _reap(self) -> None:
        """Take note of every child that ended; some are orphans of the command's."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._child:
                    self._status = status
        except ChildProcessError:
            return

    def _end(self, grace_s: float) -> None:
        """End the command and everything below it: first asked to, then killed."""
        me = os.getpid()
        deadline = time.monotonic() + grace_s
        if self._status is None:
            self._door.signal_inside(self._order["mark"], signal.SIGTERM, _INSIDE_S)
        below = _alive(me)
        if below:
            processes.send(below, signal.SIGHUP)
            processes.send(below, signal.SIGTERM)
            processes.send(below, signal.SIGCONT)
        while time.monotonic() < deadline and _alive(me):
            time.sleep(0.01)
            self._reap()
        if self._door.is_open:
            self._door.signal_inside(self._order["mark"], signal.SIGKILL, _INSIDE_S)
        processes.kill_all(lambda: processes.descendants(me))
        while processes.has_children(me) and time.monotonic() < deadline + 5:
            self._reap()
            time.sleep(0.005)
        if self._status is None:
            self._status = signal.SIGKILL

    def _report(self, **words: Any) -> None:
        try:
            write_all(self._reports, json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            return  # the channel's process is gone; the order pipe says so too


def _alive(pid: int) -> List[int]:
    return [one for one in processes.descendants(pid) if not processes.is_zombie(one)]


class Escorted:
    """One command, seen from the channel's process."""

    def __init__(
        self,
        door: Door,
        mark: str,
        argv: List[str],
        env: Dict[str, str],
        tty: Optional[List[int]],
        *,
        stdin: bool,
    ) -> None:
        """`tty`: rows and columns of a terminal of its own, or None; then it has pipes."""
        self.outputs: Dict[int, int] = {}
        """Where its output comes from -> 1 for stdout, 2 for stderr."""
        self.input: Optional[int] = None
        self.terminal: Optional[int] = None
        self._door, self._mark = door, mark
        processes.become_subreaper(processes.load_prctl())
        files = self._terminal(tty) if tty else self._pipes(stdin=stdin)
        orders_r, self._orders = os.pipe()
        self.reports, reports_w = os.pipe()
        order = {"argv": argv, "env": env, "cwd": door.cwd, "files": files, "tty": bool(tty)}
        order["mark"] = mark
        ours = {self._orders, self.reports, *self.outputs, *([] if self.input is None else [self.input])}
        self.escort = os.fork()
        if self.escort == 0:
            try:
                for fd in ours:
                    os.close(fd)
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, 0)  # else the channel would be held open from here
                os.dup2(nothing, 1)
                Escort(door, order, orders_r, reports_w).main()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        for fd in {*files, orders_r, reports_w}:
            os.close(fd)
        for fd in ours - {self._orders, self.reports}:
            os.set_blocking(fd, False)

    def _terminal(self, size: List[int]) -> List[int]:
        self.terminal, inner = os.openpty()
        self.input = self.terminal
        self.outputs = {self.terminal: 1}
        self.resize(size)
        return [inner, inner, inner]

    def _pipes(self, *, stdin: bool) -> List[int]:
        files = []
        if stdin:
            theirs, self.input = os.pipe()
            files.append(theirs)
        else:
            files.append(os.open(os.devnull, os.O_RDONLY))
        for number in (1, 2):
            ours, theirs = os.pipe()
            self.outputs[ours] = number
            files.append(theirs)
        return files

    def resize(self, size: List[int]) -> None:
        """Its terminal has so many rows and columns now."""
        if self.terminal is not None:
            import fcntl
            import struct
            import termios

            rows, columns = (max(0, min(int(n), 65535)) for n in size)
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def signal(self, number: int) -> None:
        """Send a signal to the command and its group."""
        try:
            os.write(self._orders, b"%d\n" % number)
        except BrokenPipeError:
            return  # it has ended

    def close_input(self) -> None:
        """Nothing more will be given to it."""
        if self.input is not None and self.input != self.terminal:
            os.close(self.input)
            self.input = None

    def kill(self) -> None:
        """The escort was killed: what it escorted is ours to end."""
        me = os.getpid()
        self._door.signal_inside(self._mark, signal.SIGKILL, _INSIDE_S)
        processes.kill_all(lambda: processes.descendants(me))

    def gone(self) -> None:
        """See the escort off."""
        try:
            os.waitpid(self.escort, 0)
        except ChildProcessError:
            return
