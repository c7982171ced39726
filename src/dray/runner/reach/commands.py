"""Answers `exec`: a command inside a live run, its input and output carried by the channel, which serves nothing else from then on."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from typing import Any, Dict, List, Optional

from .. import visit
from ..folder import RunFolder
from ..frames import Frame
from ..trouble import Trouble
from . import door as doors
from .door import Door
from .escort import Escorted
from .line import Line

_PIECE = 256 * 1024
_MOST_INPUT = 4 << 20  # a client that keeps to the rules never has so much on its way
_LOOK_S = 0.05
_SETTLE_S = 1.0
_PATIENT_S = 0.3
_SIGNALS = {
    name: getattr(signal, "SIG" + name) for name in ("INT", "TERM", "HUP", "QUIT", "KILL", "USR1", "USR2")
}


def execute(folder: RunFolder, header: Dict[str, Any], line: Line) -> None:
    """From the wish to the exit code. Returns early when the channel ends, and then nothing is left running."""
    argv = [str(word) for word in header["argv"]]
    if not argv or not argv[0]:
        raise Trouble("no-command", "nothing to run")
    door = await_door(folder, line)
    if door is None:
        return
    terminal = header.get("tty")
    folder.note_visit()
    env = _environment(door, header.get("secrets"), terminal)
    size = [int(n) for n in terminal["size"]] if terminal else None
    mark = "DRAY_EXEC=" + os.urandom(8).hex()
    whole = [*door.into(mark, tty=bool(terminal)), *argv]
    escorted = Escorted(door, mark, whole, env, size, stdin=bool(header.get("stdin")))
    _Talk(escorted, line, [] if header.get("secrets") else door.hidden, argv[0], door).all()


def await_door(folder: RunFolder, line: Line) -> Optional[Door]:
    """The run's door, as soon as it has one; None when the channel ended first. Raises Trouble when there will be none."""
    began = settled = time.monotonic()
    told = False
    early: List[Frame] = []  # input for the command, mostly: never more than a window of it
    while True:
        number = (folder.attempts() or [1])[-1]
        has_begun = (
            visit.said_running(folder, number) is not None
        )  # before the look at its door, which it has by then
        found = doors.find(folder)
        if found is not None:
            line.unread(early)
            return found
        now = time.monotonic()
        if folder.end(number) is None and now - settled > _SETTLE_S:
            visit.settle(folder)
            settled = now
        if folder.end(number) is not None or folder.is_gone() or has_begun:
            raise Trouble("not-running", "the script has ended")
        if not told and now - began > _PATIENT_S:
            line.send({"waiting": True})
            told = True
        if line.has_frame(line.poll({}, _LOOK_S)):
            frame = line.receive()
            if frame is None:
                return None
            early.append(frame)


def _environment(door: Door, secrets: Any, terminal: Any) -> Dict[str, str]:
    env = dict(door.env)
    if not secrets:
        for name in (*door.hidden, "DRAY_SECRETS"):
            env.pop(name, None)
    if terminal:
        for name in ("COLUMNS", "LINES"):
            env.pop(name, None)
        env["TERM"] = str(terminal.get("term") or "xterm")[:64]
    return env


class _Talk:
    """A command that was started, and the channel."""

    def __init__(self, escorted: Escorted, line: Line, hidden: List[str], program: str, door: Door) -> None:
        self._door = door
        self._command = escorted
        self._line = line
        self._hidden = hidden
        self._program = program
        self._outputs = dict(escorted.outputs)
        self._input = b""
        self._ends = False
        self._unread = b""
        self._exit: Optional[int] = None
        self._over = False
        self._is_escorted = True

    def all(self) -> None:
        """Until it has ended and all that it said is on its way."""
        while self._is_escorted:
            found = self._line.poll(self._wanted(), 60.0)
            if self._line.has_frame(found) and not self._hear():
                return  # the order pipe closes with this process: the escort sees to the rest
            if self._command.reports in found:
                self._reported()
            for fd in found:
                if fd in self._outputs and found[fd] & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    self._say(fd)
                if fd == self._command.input and found[fd] & (select.POLLOUT | select.POLLERR):
                    self._give()
        if self._exit is None:
            self._command.kill()
            self._exit = int(signal.SIGKILL)
        self._command.gone()
        for fd in list(self._outputs):
            while fd in self._outputs and self._say(fd):
                self._line.finish()
        self._line.send(_ended(self._exit, over=self._over or not self._door.is_open))
        self._line.finish()

    def _wanted(self) -> Dict[int, int]:
        wanted = {self._command.reports: select.POLLIN}
        if not self._line.is_full:
            wanted.update(dict.fromkeys(self._outputs, select.POLLIN))
        if self._input and self._command.input is not None:
            wanted[self._command.input] = wanted.get(self._command.input, 0) | select.POLLOUT
        return wanted

    def _hear(self) -> bool:
        """One frame of the client's. False: it is gone."""
        frame = self._line.receive()
        if frame is None:
            return False
        header, body = frame
        if "in" in header:
            self._input += body
            if len(self._input) > _MOST_INPUT:
                raise Trouble("too-much-input", "more came for the command than was asked for")
            self._give()
        elif "in_end" in header:
            self._ends = True
            self._give()
        elif "signal" in header:
            number = _SIGNALS.get(str(header["signal"]))
            if number:
                self._command.signal(int(number))
        elif "size" in header:
            self._command.resize(list(header["size"]))
        return True

    def _give(self) -> None:
        """Hand over what came for it, as much as it takes."""
        fd = self._command.input
        taken = 0
        while self._input:
            try:
                if fd is None:
                    raise BrokenPipeError
                written = os.write(fd, self._input)
            except BlockingIOError:
                break
            except OSError:  # it reads no more: what comes for it goes nowhere, and the client need not wait
                written = len(self._input)
            self._input = self._input[written:]
            taken += written
        if taken:
            self._line.send({"took": taken})
        if self._ends and not self._input:
            self._command.close_input()

    def _say(self, fd: int) -> bool:
        """Pass on what it said there. False: nothing for now, or nothing ever again."""
        try:
            data = os.read(fd, _PIECE)
        except BlockingIOError:
            return False
        except OSError:  # EIO: nobody has the terminal open any more
            data = b""
        if data:
            self._line.send({"out": self._outputs[fd]}, data)
            return True
        del self._outputs[fd]
        if fd != self._command.terminal:
            os.close(fd)
        return False

    def _reported(self) -> None:
        data = os.read(self._command.reports, 65536)
        if not data:
            self._is_escorted = False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for report in map(json.loads, lines):
            if "started" in report:
                self._line.send({"started": report["started"], "hidden": self._hidden})
            elif "cannot" in report:
                raise Trouble("cannot-start-%d" % report["cannot"], _cannot(self._program, report["cannot"]))
            elif "over" in report:
                self._over = True
            elif "exit" in report:
                self._exit = int(report["exit"])


def _ended(status: int, *, over: bool) -> Dict[str, Any]:
    if os.WIFSIGNALED(status):
        return {"code": None, "signal": os.WTERMSIG(status), "over": over}
    return {"code": os.WEXITSTATUS(status), "signal": None, "over": over}


def _cannot(program: str, number: int) -> str:
    told = {
        errno.ENOENT: "`%s` was not found in the run's environment" % program,
        errno.EACCES: "`%s` is not executable" % program,
        errno.ENOEXEC: "`%s` is no program: it has no `#!` line" % program,
    }
    return told.get(number) or "`%s` cannot be executed: %s" % (program, os.strerror(number))
