"""The lock on a build, and waiting for whoever has it: with their log, and as far as they are."""

from __future__ import annotations

import json
import os
import time
from typing import Callable, Optional, Tuple

from ..folder import RUN_ID, RunFolder
from ..work import LOG, Work
from . import Stopped
from .place import Place, builder_of, try_lock

_TICK_S = 0.1
_DYING_S = 15.0
_PIECE = 1 << 20


def take(place: Place, work: Work, is_enough: Callable[[], bool]) -> Tuple[Optional[int], str]:
    """The lock of that environment (close it to let go), and who had it before. Raises Stopped.

    None as soon as `is_enough`: twenty that wait do not queue for a lock that they no longer need.
    """
    before = builder_of(place.lock_path)
    watched: Optional[_Builder] = None
    while True:
        lock = try_lock(place.lock_path, work.folder.id)
        if lock is not None:
            return lock, watched.name if watched else before
        name = builder_of(place.lock_path)
        if watched is None or name != watched.name:
            watched = _Builder(name, work)
        watched.pass_on()
        if is_enough():
            return None, name
        if not work.may_go_on():
            raise Stopped
        time.sleep(_TICK_S)


def let_die(builder: str, work: Work) -> None:
    """A builder that was killed may have processes that write for a moment more, which its guard is ending."""
    if builder == work.folder.id or not RUN_ID.match(builder):
        return
    folder = RunFolder(work.machine, builder)
    if folder.run_json() is None:
        return
    deadline = time.monotonic() + _DYING_S
    while time.monotonic() < deadline and work.may_go_on():
        held = folder.try_lock()
        if held is not None:
            os.close(held)
            return
        time.sleep(0.02)


class _Builder:
    """Another run that builds what we need: what it says becomes ours."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self.work = work
        self._log_at = 0
        self._state_at = 0
        self._rest = b""
        self._streams = ""
        work.tell(
            "progress",
            of="environment",
            phase="waiting",
            done=0,
            total=None,
            unit="packages",
            text=name or None,
        )
        if RUN_ID.match(name):
            folder = RunFolder(work.machine, name)
            self._streams = folder.streams((folder.attempts() or [1])[-1])
            work.note("run %s is building the same environment; waiting for it" % name)
        else:
            work.note("another run is building the same environment; waiting for it")

    def pass_on(self) -> None:
        """What it has said since."""
        if not self._streams:
            return
        data = _read_on(os.path.join(self._streams, LOG), self._log_at)
        self._log_at += len(data)
        if data:
            self.work.append(data)
        data = _read_on(os.path.join(self._streams, "state.jsonl"), self._state_at)
        self._state_at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        latest = None
        for line in lines:
            try:
                event = json.loads(line.decode())
                latest = event["data"] if event["type"] == "progress" else latest
            except (ValueError, KeyError, TypeError):
                continue
        if isinstance(latest, dict):
            self.work.tell("progress", **{str(key): value for key, value in latest.items()})


def _read_on(path: str, offset: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(_PIECE)
    except OSError:
        return b""
