"""The runner's side of the guard: has it run one step after the other, and ends what has to end.

A step is one process and all below it: a command of the environment's build, or the script.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any, Callable

from . import processes
from .files import read_json, write_all
from .folder import RunFolder
from .guard import fork_guard
from .mask import Mask

_TICK_S = 0.2
_DRAIN_S = 5.0


class GuardGone(Exception):
    """The guard died before its time."""


class Steps:
    """One guard, from its fork to its end."""

    def __init__(self, folder: RunFolder, umask: int, will_keep: bool = False) -> None:
        """`will_keep`: the guard is to be given open files later, which takes a channel of its own."""
        self.folder = folder
        self.timed_out = False
        self._deadline: float | None = None
        self._grace_s = 0.0
        self._unread = b""
        processes.become_subreaper(processes.load_prctl())
        self._hand: Any = None
        theirs: Any = None
        if will_keep:
            import socket  # milliseconds, and few runs need it

            self._hand, theirs = socket.socketpair()
        self.guard, self._orders, self._reports = fork_guard(folder, umask, lambda: None, theirs)
        if theirs is not None:
            theirs.close()
        self.apart = {self.guard}
        """Processes below the runner that are no part of the run."""

    def run(
        self,
        step: dict[str, Any],
        begun: Callable[[dict[str, Any]], None] = lambda report: None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Run one step to its end; cancel and time limit are seen to. {"cannot": errno}, or how it ended.

        What has a keeper is begun when the keeper says that it is up.
        """
        first = self.begin(step)
        if "cannot" in first:
            return first
        if not step.get("keeper"):
            begun(first)
        return self.see_end(meanwhile, begun)

    def begin(self, step: dict[str, Any]) -> dict[str, Any]:
        """Have the step started, and do something else meanwhile: {"cannot": errno}, or `see_end` it."""
        self._order(step)
        return self._report()

    def see_end(
        self,
        meanwhile: Callable[[], None] = lambda: None,
        is_up: Callable[[dict[str, Any]], None] = lambda report: None,
    ) -> dict[str, Any]:
        """Wait for the end of the step that was begun; cancel and time limit are seen to."""
        while True:
            if self._has_report(_TICK_S):
                report = self._report()
                if "exit" in report:
                    seen: dict[str, Any] = report["exit"]
                    return seen
                is_up(report["up"])
                continue
            self._wake_guard()
            meanwhile()
            grace = self._grace()
            if grace is not None:
                return self._end(grace)

    def keep(self, files: list[int]) -> None:
        """Give the guard those open files too: their locks live as long as any of us, and as the script's own process."""
        import array
        import socket

        try:
            self._hand.sendmsg([b"k"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        except OSError:
            raise GuardGone from None
        self._order({"keep": len(files)})
        self._report()

    def pause(self, patience_s: float) -> None:
        """Wait while no step runs; a cancel is noticed by whoever asks afterwards. Raises GuardGone."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not self.asked():
            self._has_report(min(_TICK_S, max(0.0, deadline - time.monotonic())))

    def limit(self, seconds_from_now: float, grace_s: float) -> None:
        """End the step after that long."""
        self._deadline = time.monotonic() + seconds_from_now
        self._grace_s = grace_s

    def no_limit(self) -> bool:
        """The next step has all time again. Whether this one had come to its limit."""
        was_late, self.timed_out, self._deadline = self.timed_out, False, None
        return was_late

    def asked(self) -> dict[str, Any] | None:
        """What was written when somebody asked for the end."""
        return read_json(self.folder.cancel_file)

    def end_leftovers(self, patience: float, mask: Mask) -> list[dict[str, Any]]:
        """Processes that outlived the script: they get `patience` seconds, are ended, and are named."""
        if not processes.has_children(self.guard):
            return []
        self._wait_for_none(patience)
        named = [{"pid": pid, "name": processes.name_of(pid, mask)} for pid in self._alive()]
        if named:
            processes.send(self._ours(), signal.SIGTERM)
            self._wait_for_none(1.0)
            processes.kill_all(self._ours)
        return named

    def sweep(self) -> None:
        """Nothing of the run is alive afterwards."""
        self._wake_guard()
        if processes.has_children(self.guard):
            processes.kill_all(self._ours)

    def complete_log(self) -> str | None:
        """Of a run with secrets the guard writes the log: have it whole. What kept it from that, if anything did."""
        cut = None
        deadline = time.monotonic() + _DRAIN_S
        try:
            self._order({"drain": True})
            while time.monotonic() < deadline:
                if self._has_report(0.1):
                    report = self._report()
                    cut = report.get("cut") or cut
                    if report.get("drained"):
                        break
        except GuardGone:
            pass  # what it held went with it (docs/decisions/0005)
        return cut

    def quit(self) -> None:
        """The guard may go; whatever it guarded has ended."""
        try:
            self._order({"quit": True})
        except GuardGone:
            pass  # it went first
        if self._hand is not None:
            self._hand.close()

    def kill_without_guard(self, run_id: str) -> None:
        """The guard was killed: the script died with it (PDEATHSIG), its descendants are ours to end."""
        mine = os.getpid()
        # First those below us alone: to look for marks takes longer than a quick forker lives.
        processes.kill_all(lambda: processes.descendants(mine))
        processes.kill_all(lambda: processes.descendants(mine) + processes.marked(run_id))

    def _order(self, words: dict[str, Any]) -> None:
        """Tell the guard. Raises GuardGone."""
        try:
            write_all(self._orders, json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            raise GuardGone from None

    def _has_report(self, patience_s: float) -> bool:
        """Whether the guard has said something, waiting a little for it. Raises GuardGone."""
        if b"\n" not in self._unread and select.select([self._reports], [], [], patience_s)[0]:
            data = os.read(self._reports, 65536)
            if not data:
                raise GuardGone
            self._unread += data
        return b"\n" in self._unread

    def _report(self) -> dict[str, Any]:
        """The guard's next report, however long it takes."""
        while not self._has_report(60):
            continue
        line, _, self._unread = self._unread.partition(b"\n")
        report: dict[str, Any] = json.loads(line.decode())
        return report

    def _wake_guard(self) -> None:
        """A script may have stopped its parent; then nobody would see it end."""
        processes.send([self.guard], signal.SIGCONT)

    def _end(self, grace: float) -> dict[str, Any]:
        """SIGTERM to all, and SIGKILL to what is left after `grace` seconds, or fewer if somebody insists. How it ended."""
        processes.send(self._ours(), signal.SIGTERM)
        began = time.monotonic()
        while True:
            if self._has_report(0.05):
                report = self._report()
                if "exit" in report:
                    seen: dict[str, Any] = report["exit"]
                    return seen
                continue
            self._wake_guard()
            insisted = self._grace()
            if insisted is not None:
                grace = min(grace, insisted)
            if time.monotonic() - began >= grace:
                processes.kill_all(self._ours, 1.0)

    def _grace(self) -> float | None:
        """Seconds between SIGTERM and SIGKILL when the step is to end now; None when it may go on."""
        if self.folder.is_gone():
            return 0.0  # whoever asks is told that there is no such run: then nothing of it may go on
        asked = self.asked()
        if asked:
            return seconds(asked.get("grace"))
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self.timed_out = True
            return self._grace_s
        return None

    def _ours(self) -> list[int]:
        """Every process of the run. Orphans of a dead guard are ours by now."""
        return [pid for pid in processes.descendants(os.getpid()) if pid not in self.apart]

    def _alive(self) -> list[int]:
        return [pid for pid in self._ours() if not processes.is_zombie(pid)]

    def _wait_for_none(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self._alive():
            time.sleep(0.02)


def seconds(value: Any) -> float:
    """A length of time from a document that others can write; what is none is no time at all."""
    try:
        seconds = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return seconds if seconds > 0 else 0.0  # not-a-number is not
