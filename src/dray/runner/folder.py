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

from . import processes
from .files import dump, make_folder, read_json, remove_tree, replace, write_once
from .machine import Machine

RUN_ID = re.compile(r"[a-z][a-z0-9]{5,31}\Z")
STREAM = re.compile(r"[a-z]{1,40}\.[A-Za-z0-9_.-]{1,80}\Z")
_ATTEMPT = re.compile(r"[1-9][0-9]{0,5}\Z")
_FULL = (errno.ENOSPC, errno.EDQUOT)


_RESERVED = 65536
_KEPT = 32768  # of it, for the end, when a cancel has taken its part


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
            names = os.listdir(os.path.join(self.path, "attempts"))
        except OSError:
            return []
        return sorted(int(name) for name in names if _ATTEMPT.match(name))

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
        write_once(os.path.join(prepared, "reserve"), b"\0" * _RESERVED)
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
        if os.path.isdir(self.path) and not os.access(self.path, os.R_OK | os.X_OK):
            self._open_up(self.path)  # its script has shut it: that makes it no less of a run
        return read_json(os.path.join(self.path, "run.json"))

    def is_gone(self) -> bool:
        """Whether somebody has removed it: then nobody can find it, cancel it, or be told its end."""
        try:
            os.stat(os.path.join(self.path, "run.json"))
        except FileNotFoundError:
            return True
        except OSError:
            return False  # a disk in trouble may come back
        return False

    def tombstone(self) -> dict[str, Any] | None:
        """The tombstone's words, or None when this is none."""
        return read_json(os.path.join(self.path, "never.json"))

    def may_have_started(self, number: int) -> bool:
        """Whether the script's log is there: the guard makes it just before the script. Without it, there was none."""
        return os.path.lexists(os.path.join(self.streams(number), "log.script"))

    def end(self, number: int) -> dict[str, Any] | None:
        """The attempt's end, or None while there is none."""
        return read_json(os.path.join(self.attempt(number), "end.json"))

    def write_end(self, number: int, end: dict[str, Any]) -> bool:
        """Write the end, unless there is one already. Uses the reserved space when the disk is full.

        Only whoever holds the lock may. Whatever a script did to the folder meanwhile is put right; only in one that it
        has removed altogether nothing is written.
        """
        for patience in (0.0, 0.2, 1.0, 5.0, 20.0):
            time.sleep(patience)
            try:
                return self._write_end(number, end)
            except OSError as trouble:
                if self.is_gone():
                    return False
                if trouble.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM):
                    self._mend(number)
                elif trouble.errno not in _FULL:
                    raise
                elif not self.release_reserve():
                    end = _shortened(end)
        return self._write_end(number, end)

    def _write_end(self, number: int, end: dict[str, Any]) -> bool:
        path = os.path.join(self.attempt(number), "end.json")
        if write_once(path, dump(end)):
            return True
        if self.end(number) is not None:
            return False
        # Empty after a power cut, or something else that a script put there: it would keep the truth out for ever.
        remove_tree(path)
        return write_once(path, dump(end))

    def _mend(self, number: int) -> None:
        """Make the way to the end's place again."""
        self._open_up(self.path)
        for place in (os.path.dirname(self.attempt(number)), self.attempt(number)):
            if os.path.islink(place) or not os.path.isdir(place):
                remove_tree(place)
                make_folder(place)
            self._open_up(place)

    @staticmethod
    def _open_up(place: str) -> None:
        try:
            os.chmod(place, 0o700)
        except OSError:
            return  # not ours: what fails because of it says so itself

    def release_reserve(self) -> bool:
        """Give back the space kept for the last words; False when that was done before."""
        try:
            os.unlink(self.reserve)
        except OSError:
            return False
        return True

    def note_visit(self) -> None:
        """Somebody has a command run inside: whatever becomes of who started it, it is looked for when the run ends."""
        try:
            os.close(os.open(self._visited(), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError:
            return  # a full disk: then only its escort ends it

    def was_visited(self) -> bool:
        """Whether there may be commands that others have started inside."""
        return os.path.lexists(self._visited())

    def _visited(self) -> str:
        return os.path.join(self.attempt((self.attempts() or [1])[-1]), "visited")

    def ask_to_cancel(self, asked: dict[str, Any]) -> None:
        """Put the request where the runner looks. A script that has filled the disk can be ended too."""
        try:
            replace(self.cancel_file, dump(asked))
        except OSError as trouble:
            if trouble.errno not in _FULL:
                raise
            try:
                os.truncate(self.reserve, _KEPT)
            except OSError:
                raise trouble from None
            replace(self.cancel_file, dump(asked))

    def try_lock(self) -> int | None:
        """The lock, when nobody holds it (close it to let go); None while the run's people live."""
        path = os.path.join(self.path, "lock")
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # Removed by the script. The run's people hold it all the same; only if nobody does, it is made again.
            if self.is_gone() or processes.holds_removed(path):
                return None
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            os.close(lock)
            return None


def _shortened(end: dict[str, Any]) -> dict[str, Any]:
    """The same end without its lists of files, which may be long; their counts stay, and whoever asks can list them."""
    return {k: dict(v, files=[]) if isinstance(v, dict) and "files" in v else v for k, v in end.items()}
