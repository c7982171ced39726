"""One run's folder: where things lie, how it is claimed, who holds its lock.

Claiming is one rename of a prepared folder, so a run folder is always whole, and always locked while its people live.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from typing import Any

from .files import dump, make_folder, read_json, remove_tree, write_once
from .machine import Machine

RUN_ID = re.compile(r"[a-z][a-z0-9]{5,31}\Z")
STREAM = re.compile(r"[a-z]+\.[A-Za-z0-9_.-]{1,80}\Z")


class Taken(Exception):
    """The id is in use: by a tombstone (`never` is true) or by a run."""

    def __init__(self, never: bool, same: bool) -> None:
        super().__init__("taken")
        self.never = never
        self.same = same


class RunFolder:
    """The folder of run `run_id` on `machine`, there or not."""

    def __init__(self, machine: Machine, run_id: str) -> None:
        if not RUN_ID.match(run_id):
            raise ValueError("`%s` is no run id" % run_id)
        self.machine = machine
        self.id = run_id
        self.path = os.path.join(machine.runs, run_id)
        self.code = os.path.join(self.path, "code")
        self.cancel_file = os.path.join(self.path, "cancel.json")
        self.reserve = os.path.join(self.path, "reserve")

    def attempt(self, number: int) -> str:
        """Folder of that attempt."""
        return os.path.join(self.path, "attempts", str(number))

    def streams(self, number: int) -> str:
        """Folder of that attempt's streams."""
        return os.path.join(self.attempt(number), "streams")

    def attempts(self) -> list[int]:
        """Numbers of the attempts, oldest first."""
        try:
            return sorted(int(n) for n in os.listdir(os.path.join(self.path, "attempts")) if n.isdigit())
        except OSError:
            return []

    def claim(self, spec: dict[str, Any], manifest: dict[str, Any]) -> int:
        """Make the folder, locked; returns the lock's file descriptor. Raises Taken."""
        prepared = self._prepare()
        for folder in ("attempts/1/streams", "code"):
            make_folder(os.path.join(prepared, folder))
        facts = {
            "v": 1,
            "spec": spec,
            "machine": self.machine.id,
            "boot": self.machine.boot,
            "claimed": time.time(),
        }
        write_once(os.path.join(prepared, "manifest.json"), dump(manifest))
        write_once(os.path.join(prepared, "run.json"), dump(facts))
        # Space for the last words, should the disk be full by then.
        write_once(os.path.join(prepared, "reserve"), b"\0" * 65536)
        lock = os.open(os.path.join(prepared, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._appear(prepared, spec.get("token"))
        return lock

    def bury(self, spec: dict[str, Any]) -> None:
        """Put a tombstone: this run was not started and never will be. Raises Taken when it was."""
        prepared = self._prepare()
        write_once(os.path.join(prepared, "never.json"), dump({"v": 1, "spec": spec, "t": time.time()}))
        self._appear(prepared, spec.get("token"))

    def _prepare(self) -> str:
        prepared = os.path.join(self.machine.runs, ".new-%s-%s" % (self.id, os.urandom(4).hex()))
        make_folder(prepared)
        return prepared

    def _appear(self, prepared: str, token: Any) -> None:
        try:
            os.rename(prepared, self.path)
        except OSError as trouble:
            remove_tree(prepared)
            if trouble.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            other = self.run_json() or self.tombstone() or {}
            raise Taken(
                never=self.tombstone() is not None, same=other.get("spec", {}).get("token") == token
            ) from None

    def run_json(self) -> dict[str, Any] | None:
        """What was claimed, or None."""
        return read_json(os.path.join(self.path, "run.json"))

    def tombstone(self) -> dict[str, Any] | None:
        """The tombstone's words, or None when this is none."""
        return read_json(os.path.join(self.path, "never.json"))

    def end(self, number: int) -> dict[str, Any] | None:
        """The attempt's end, or None while there is none."""
        return read_json(os.path.join(self.attempt(number), "end.json"))

    def write_end(self, number: int, end: dict[str, Any]) -> bool:
        """Write the end, unless there is one already. Uses the reserved space when the disk is full."""
        path = os.path.join(self.attempt(number), "end.json")
        data = dump(end)
        for patience in (0.0, 0.2, 1.0, 5.0, 20.0):
            time.sleep(patience)
            try:
                return write_once(path, data)
            except OSError as trouble:
                if trouble.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self.release_reserve()
        return write_once(path, data)

    def release_reserve(self) -> None:
        """Give back the space kept for the last words."""
        try:
            os.unlink(self.reserve)
        except OSError:
            return

    def try_lock(self) -> int | None:
        """The lock, when nobody holds it (close it to let go); None while the run's people live."""
        try:
            lock = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            os.close(lock)
            return None
