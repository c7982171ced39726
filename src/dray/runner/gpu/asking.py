"""Asks what may never answer, a GPU's driver mostly, in a process of its own: one that hangs or crashes holds up and harms nobody.

Read `Asking` first. `within` is one question with a limit.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any, Callable, Dict, Optional

from .. import processes
from ..files import write_all
from .watch import let_go_of_all_but

VARIABLE = "DRAY_DRIVER_PATIENCE"
"""Seconds that a driver is given, where the usual ones are not enough."""
_PATIENCE_S = 10.0
_LEAVES_S = 0.5


class Asking:
    """One question at a time. Who has no answer yet may ask on later: it is the same question, and the same process."""

    def __init__(self, ask: Callable[[], Dict[str, Any]]) -> None:
        self._ask = ask
        self.pid = 0
        """The process that asks; 0 while none does."""
        self.since = 0.0
        """When the question was put."""
        self._answer = -1
        self._said = b""

    def answer(self, patience_s: float) -> Optional[Dict[str, Any]]:
        """What `ask` says. None when that has not come yet, or never will because its process crashed: then `pid` is 0."""
        if not self.pid:
            self._put()
        until = time.monotonic() + patience_s
        while select.select([self._answer], [], [], max(until - time.monotonic(), 0.0))[0]:
            piece = os.read(self._answer, 1 << 20)
            if piece:
                self._said += piece
                continue
            said = self._said
            self.drop(_LEAVES_S)
            try:
                told: Dict[str, Any] = json.loads(said.decode())
            except ValueError:
                return None
            return told
        return None

    def drop(self, patience_s: float = 0.0) -> None:
        """Nobody wants to know any more. Safe to repeat. `patience_s`: for one that has said all, and is about to end."""
        if not self.pid:
            return
        os.close(self._answer)
        pid, self.pid, self._answer, self._said = self.pid, 0, -1, b""
        until = time.monotonic() + patience_s
        while not _has_ended(pid):
            if time.monotonic() >= until:
                os.kill(pid, signal.SIGKILL)
                _has_ended(pid)  # one that hangs in the driver is not waited for
                return
            time.sleep(0.001)

    def _put(self) -> None:
        prctl, mine = processes.load_prctl(), os.getpid()
        self._answer, words = os.pipe()
        self.since = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                processes.die_with_parent(prctl, mine)
                # Nothing of ours lives as long as it may hang: no lock, and no channel.
                let_go_of_all_but(words)
                nothing = os.open(os.devnull, os.O_RDWR)
                for fd in (0, 1, 2):
                    os.dup2(nothing, fd)
                write_all(words, json.dumps(self._ask()).encode())
            finally:
                os._exit(0)
        os.close(words)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True  # somebody else has waited for it


def within(patience_s: float, ask: Callable[[], Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """What `ask` says; None when it does not come in time, or the process crashes."""
    asking = Asking(ask)
    try:
        return asking.answer(patience_s)
    finally:
        asking.drop()


def patience_s() -> float:
    """How long whoever waits for an answer waits for a driver."""
    try:
        return float(os.environ.get(VARIABLE) or _PATIENCE_S)
    except ValueError:
        return _PATIENCE_S


def silence() -> str:
    """What to say of a driver that did not answer in `patience_s`."""
    return (
        "the NVIDIA driver does not answer (it was asked for %g s); `dray doctor` looks into it"
        % patience_s()
    )
