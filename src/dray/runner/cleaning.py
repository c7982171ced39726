"""Clears away what nobody needs on this machine: it lists, the client decides, and it looks again before it removes.

Begin with `Cleaning.listing` and `Cleaning.take`. Safe while others work: a thing is removed only inside the gate, which no
submit that has not named its needs yet is in; or under the thing's own lock. Only names that dray gives are touched, no link is
followed, and a kill at any moment leaves at most a `.trash-*` folder for the next time.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from typing import Any, Dict, Iterator, List, Tuple

from . import bytecode, gate, visit
from .containers import clearing
from .environments.place import lock_of, try_lock
from .files import read_json, read_regular, remove_tree, tree_bytes
from .folder import RUN_ID, RunFolder
from .machine import Machine

GRACE_S = 3600.0
TOMBSTONES_S = 30 * 86400.0
_SLICE_S = 0.02  # how long a submit may have to wait for us
_PATIENCE_S = 5.0
_BATCH = 2000

_DIGEST = re.compile(rb'"([0-9a-f]{64})"')
_BLOB = re.compile(r"[0-9a-f]{64}\Z")
_REST_OF_BLOB = re.compile(r"[0-9a-f]{62}\Z")
_TWO = re.compile(r"[0-9a-f]{2}\Z")
_ENVIRONMENT = re.compile(r"[0-9a-f]{24}-\w[\w.-]*-py[\w.]+\Z")
_VERSION = re.compile(r"[0-9a-f]{24}\Z")
_TRASH = re.compile(r"\.trash-[\w.-]+-[0-9a-f]{8}\Z")
_YOUNG = {  # folder -> what a killed process leaves half-made there
    "runs": re.compile(r"\.new-[a-z0-9]{6,32}-[0-9a-f]{8}\Z"),
    "blobs": re.compile(r"[0-9a-f]{62}\.[0-9a-f]{8}\.new\Z"),
    "runner": re.compile(r"[0-9a-f]{24}\.[0-9a-f]{8}\.new\Z"),
    "environments": re.compile(r"(?!)"),
}

Thing = Tuple[str, str]
"""Kind and name."""
Answer = Dict[str, Any]


class Kept(Exception):
    """It is not to be removed; the text says why."""


class Cleaning:
    """One look at this machine, and what follows from it; `here` is the runner version that is at work."""

    def __init__(self, machine: Machine, here: str) -> None:
        self.machine = machine
        self.here = here
        self.versions = os.path.join(machine.root, "runner")
        self.blobs: set[str] = set()
        """All that the run folders name."""
        self.live: dict[str, str] = {}
        """Runs that have not ended -> the first half of their environment's name."""
        self._seen: set[str] = set()
        self._graves: set[str] = set()

    # -- what the runs need

    def learn(self, in_haste: bool = False) -> None:
        """Take in the run folders that have come since the last time. Those that have ended since count as alive.

        `in_haste`: whether a new one is alive is not asked, because giving a dead one its end may take a while.
        """
        for name in _names(self.machine.runs):
            if name in self._seen or name in self._graves or not RUN_ID.match(name):
                continue
            folder = RunFolder(self.machine, name)
            facts = folder.run_json()
            if facts is None:
                if folder.tombstone() is not None:
                    self._graves.add(name)  # and no run for ever
                continue
            self._seen.add(name)
            self.blobs.update(code_of(folder))
            if in_haste or visit.settle(folder):
                wanted = (facts.get("spec") or {}).get("environment") or {}
                self.live[name] = str(wanted.get("digest") or "")[:24]

    # -- listing

    def listing(self, sizes: Any) -> Iterator[Answer]:
        """`{"things":[...]}`: all that could go, and what is in use; `{"runs":[...]}`; sizes of those that `sizes` names.

        `sizes` is a list of runs, or true for all.
        """
        self.learn()
        batch: List[Answer] = []
        for thing in self._things():
            batch.append(thing)
            if len(batch) == _BATCH:
                yield {"things": batch}
                batch = []
        yield {"things": batch}
        runs = sorted(self._seen)
        yield {"runs": runs}
        wanted = runs if sizes is True else set(sizes or ())
        for name in runs:
            if name in wanted:
                yield {"run": name, "bytes": tree_bytes(os.path.join(self.machine.runs, name))}

    def codes(self, runs: List[str]) -> Iterator[Tuple[Answer, bytes]]:
        """What the code of each of `runs` is made of: digests of 32 bytes each. A run that is not here is left out."""
        for name in runs:
            folder = RunFolder(self.machine, name)
            if folder.run_json() is not None:
                yield {"code": name}, bytes.fromhex("".join(sorted(code_of(folder))))

    def _things(self) -> Iterator[Answer]:
        yield from self._environments()
        yield from self._images()
        yield from self._versions()
        yield from self._leftovers()
        yield from self._tombstones()
        yield from self._blobs()

    def _environments(self) -> Iterator[Answer]:
        for entry in _folders(self.machine.environments, _ENVIRONMENT):
            marker = read_json(os.path.join(entry.path, "complete"))
            thing = {"kind": "environment", "name": entry.name, "bytes": tree_bytes(entry.path)}
            thing["busy"] = self._needed(entry.name) or _is_locked(entry.path)
            thing["used"] = _mtime(os.path.join(entry.path, "complete") if marker else entry.path)
            thing["complete"] = bool(marker)
            yield thing

    def _needed(self, environment: str) -> bool:
        return any(digest and environment.startswith(digest) for digest in self.live.values())

    def _images(self) -> Iterator[Answer]:
        clearing.abandoned(self.machine)
        for image in clearing.listing(self.machine):
            busy = image["name"] in self._images_in_use()
            yield {"kind": "image", "complete": True, "busy": busy, **image}

    def _images_in_use(self) -> set[str]:
        """Made images that live runs need."""
        folders = [RunFolder(self.machine, run) for run in self.live]
        return {clearing.needed_by(folder.attempt(n)) for folder in folders for n in folder.attempts()}

    def _versions(self) -> Iterator[Answer]:
        for entry in _folders(self.versions, _VERSION):
            try:
                lock = self._lock_version(entry.name)
            except Kept:
                busy = True
            else:
                os.close(lock)
                busy = False
            size = tree_bytes(entry.path)
            yield {
                "kind": "runner",
                "name": entry.name,
                "bytes": size,
                "busy": busy,
                "used": _mtime(entry.path),
            }

    def _leftovers(self) -> Iterator[Answer]:
        for where, folder in self._places():
            for entry in _scan(folder):
                if _is_leftover(where, entry.path):
                    name = os.path.relpath(entry.path, self.machine.root)
                    yield {"kind": "leftover", "name": name, "bytes": tree_bytes(entry.path)}

    def _places(self) -> Iterator[Tuple[str, str]]:
        """Folders in which killed processes leave something, and what kind of a folder each is."""
        yield "runs", self.machine.runs
        yield "environments", self.machine.environments
        yield "runner", self.versions
        for entry in _folders(self.machine.blobs, _TWO):
            yield "blobs", entry.path

    def _tombstones(self) -> Iterator[Answer]:
        limit = time.time() - TOMBSTONES_S
        for name in sorted(self._graves):
            path = os.path.join(self.machine.runs, name)
            if 0.0 < _mtime(os.path.join(path, "never.json")) < limit:
                yield {"kind": "tombstone", "name": name, "bytes": tree_bytes(path)}

    def _blobs(self) -> Iterator[Answer]:
        needed = 0
        for two in _folders(self.machine.blobs, _TWO):
            for entry in _scan(two.path):
                if _REST_OF_BLOB.match(entry.name) and entry.is_file(follow_symlinks=False):
                    digest, info = two.name + entry.name, entry.stat(follow_symlinks=False)
                    size = info.st_blocks * 512
                    if digest in self.blobs:
                        needed += size
                    else:
                        yield {"kind": "blob", "name": digest, "bytes": size, "used": info.st_mtime}
        yield {"kind": "blobs-in-use", "name": "", "bytes": needed}

    # -- taking

    def take(self, wanted: List[Thing]) -> Iterator[Answer]:
        """Remove those of `wanted` that nobody needs, each looked at again: `{"gone":[[kind,name]],"kept":[[kind,name,why]]}`."""
        self.learn()
        queue = wanted[::-1]
        while queue:
            gone: List[List[str]] = []
            kept: List[List[str]] = []
            doomed = self._slice(queue, gone, kept)
            for thing, place in doomed:  # outside of the gate: this may take long
                try:
                    if thing[0] == "image":
                        self._remove_image(thing, gone, kept)
                        continue
                    remove_tree(place)
                    gone.append([*thing])
                except OSError as trouble:
                    kept.append([*thing, _in_words(trouble)])
            yield {"gone": gone, "kept": kept}
            time.sleep(0.005)  # who waits at the gate comes first

    def _remove_image(self, thing: Thing, gone: List[List[str]], kept: List[List[str]]) -> None:
        def is_in_use() -> bool:
            self.learn(in_haste=True)
            return thing[1] in self._images_in_use()

        why = clearing.remove(self.machine, thing[1], is_in_use)
        if why:
            kept.append([*thing, why])
        else:
            gone.append([*thing])

    def _slice(
        self, queue: List[Thing], gone: List[List[str]], kept: List[List[str]]
    ) -> List[Tuple[Thing, str]]:
        """Work some of `queue` off inside the gate. Returns folders that are out of the way, to be removed."""
        doomed: List[Tuple[Thing, str]] = []
        try:
            held = gate.enter_alone(self.machine.folder, _PATIENCE_S)
            why = "runs are just being submitted"
        except OSError as trouble:
            held, why = None, "the machine's folder cannot be locked: %s" % _in_words(trouble)
        if held is None:
            kept.extend([*thing, why] for thing in queue)
            queue.clear()
            return doomed
        try:
            self.learn(in_haste=True)
            until = time.monotonic() + _SLICE_S
            while queue and time.monotonic() < until:
                thing = queue.pop()
                try:
                    place = self._detach(*thing)
                except Kept as reason:
                    kept.append([*thing, str(reason)])
                except FileNotFoundError:
                    gone.append([*thing])  # somebody was faster
                except OSError as trouble:
                    kept.append([*thing, _in_words(trouble)])
                else:
                    if place:
                        doomed.append((thing, place))
                    else:
                        gone.append([*thing])
        finally:
            gate.leave(held)
        return doomed

    def _detach(self, kind: str, name: str) -> str | None:
        """Make it unfindable, in one step. Returns the folder that is still to be removed, if it is one."""
        if kind == "blob" and _BLOB.match(name):
            self._detach_blob(name)
            return None
        if kind == "environment" and _ENVIRONMENT.match(name):
            return self._detach_environment(name)
        if kind == "image" and clearing.MADE.match(name):
            return name  # by the engine, outside of the gate, and under a lock of its own
        if kind == "runner" and _VERSION.match(name):
            lock = self._lock_version(name)
            try:
                return _to_trash(self.versions, name)
            finally:
                os.close(lock)
        if kind == "leftover":
            return self._detach_leftover(name)
        if kind == "tombstone" and RUN_ID.match(name):
            if name not in self._graves:
                raise Kept("it is no tombstone")
            return _to_trash(self.machine.runs, name)
        raise Kept("dray does not know such a thing")

    def _detach_blob(self, digest: str) -> None:
        path = self.machine.blob(digest)
        if digest in self.blobs:
            raise Kept("a run needs it")
        if not _is_folder(os.path.dirname(path)) or not stat.S_ISREG(os.lstat(path).st_mode):
            raise Kept("dray has not put it there")
        os.unlink(path)

    def _detach_environment(self, name: str) -> str:
        path = os.path.join(self.machine.environments, name)
        if self._needed(name):
            raise Kept("a run uses it")
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise Kept("dray has not put it there")
        lock = try_lock(lock_of(path))
        if lock is None:
            raise Kept("it is being built")
        try:
            # The lock first: who is killed between the two leaves an environment to clear away, and not a lock for nothing.
            os.unlink(lock_of(path) + ".lock")
            place = _to_trash(self.machine.environments, name)
            bytecode.forget(self.machine, path)
            return place
        finally:
            os.close(lock)

    def _lock_version(self, name: str) -> int:
        """The version's folder, locked: no process lives in it. Close it to let go. Raises Kept."""
        import fcntl

        path = os.path.join(self.versions, name)
        if os.path.realpath(path) == os.path.realpath(self.here):
            raise Kept("it is in use")
        if self.live and not os.path.exists(os.path.join(path, "dray_runner", "cleaning.py")):
            raise Kept("it is so old that its processes hold no lock, and runs are alive")
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
        except OSError as trouble:
            raise Kept(_in_words(trouble)) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise Kept("it is in use") from None
        return file

    def _detach_leftover(self, name: str) -> str | None:
        path = os.path.join(self.machine.root, name)
        folder, last = os.path.split(path)
        places = {place: where for where, place in self._places()}
        if folder not in places or not _is_leftover(places[folder], path):
            raise Kept("it is no leftover")
        if _is_folder(path):
            return _to_trash(folder, last)
        os.unlink(path)
        return None


def code_of(folder: RunFolder) -> set[str]:
    """Digests that the run's code needs. Whatever looks like one counts: a file too many is kept, and none too few."""
    try:
        found = _DIGEST.findall(read_regular(os.path.join(folder.path, "manifest.json")))
    except OSError:
        return set()
    return {digest.decode() for digest in found}


def _is_leftover(where: str, path: str) -> bool:
    """Whether a killed process has left it: trash at any age, what was being made only when it is old."""
    name = os.path.basename(path)
    try:
        info = os.lstat(path)
    except OSError:
        return False
    is_of_its_kind = stat.S_ISREG(info.st_mode) if where == "blobs" else stat.S_ISDIR(info.st_mode)
    if where != "blobs" and _TRASH.match(name):
        return is_of_its_kind
    return is_of_its_kind and bool(_YOUNG[where].match(name)) and info.st_mtime < time.time() - GRACE_S


def _to_trash(folder: str, name: str) -> str:
    """Rename it, so that it cannot be found any more; whoever was removing it leaves that to us."""
    plain = name[len(".trash-") : -9] if _TRASH.match(name) else name.lstrip(".")
    place = os.path.join(folder, ".trash-%s-%s" % (plain, os.urandom(4).hex()))
    os.rename(os.path.join(folder, name), place)
    return place


def _is_locked(environment: str) -> bool:
    environment = lock_of(environment)
    if not os.path.exists(environment + ".lock"):
        return False
    try:
        lock = try_lock(environment)
    except OSError:
        return False  # what cannot be written to cannot be built in either
    if lock is not None:
        os.close(lock)
    return lock is None


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _scan(folder: str) -> List[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _folders(folder: str, pattern: re.Pattern[str]) -> List[os.DirEntry[str]]:
    """Real folders in `folder` whose names dray could have given."""
    return [e for e in _scan(folder) if pattern.match(e.name) and e.is_dir(follow_symlinks=False)]


def _is_folder(path: str) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _mtime(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _in_words(trouble: OSError) -> str:
    if trouble.errno in (errno.EACCES, errno.EPERM):
        return "permission denied"
    return trouble.strerror or str(trouble)
