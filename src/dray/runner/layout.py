"""Lays out the code folder of a run from blobs, as copies: a script may write there without harming anyone."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
from typing import Any, Callable

from . import processes
from .files import make_folder, write_all
from .machine import Machine

_FICLONE = 0x40049409
_CANNOT_CLONE = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM}

_SMALL = 128 * 1024
_PIECE = 64 << 20
_MOST_HANDS = 4
_WORTH_A_HAND = 1000  # files: a fork costs a millisecond or two


class BadManifest(Exception):
    """A manifest that would write outside its folder, or is no manifest."""


def check(manifest: dict[str, Any]) -> None:
    """Refuse a manifest with a path that leads out, or whose parts are not what they should be."""
    try:
        files = [(str(p), str(d), int(n), x) for p, d, n, x in manifest["files"]]
        links = [(str(p), str(t)) for p, t in manifest["links"]]
        folders = [str(p) for p in manifest["dirs"]]
    except (KeyError, TypeError, ValueError):
        raise BadManifest("not a manifest") from None
    for _, digest, _, _ in files:
        if len(digest) != 64 or digest.strip("0123456789abcdef"):
            raise BadManifest("not a digest: %.80r" % digest)
    names = [p for p, _, _, _ in files] + [p for p, _ in links] + folders
    for path in names:
        if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
            raise BadManifest("not a path inside a folder: %.200r" % path)
    linked = {path for path, _ in links}
    if linked:
        for path in names:
            parts = path.split("/")
            if any("/".join(parts[:i]) in linked for i in range(1, len(parts))):
                raise BadManifest("a path that goes through a link: %.200r" % path)


def find_blob(machine: Machine, near: str | None, digest: str, size: int) -> str | None:
    """Where that content lies on this machine, in dray's folder or near by; None if nowhere.

    A power cut can leave a file of the right name with nothing in it, so its size is looked at too.
    """
    ours = machine.blob(digest)
    if _has_size(ours, size):
        return ours
    if near:
        theirs = os.path.join(near, digest[:2], digest[2:])
        if _has_size(theirs, size) and os.access(theirs, os.R_OK):
            return theirs
    return None


def _has_size(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size == size
    except OSError:
        return False


def lacking(machine: Machine, near: str | None, manifest: dict[str, Any]) -> dict[str, int]:
    """Digests of the manifest that this machine does not have, with their sizes."""
    wanted = {digest: size for _, digest, size, _ in manifest["files"]}
    look, blobs = os.stat, machine.blobs + "/"
    lacked = {}
    for (
        digest,
        size,
    ) in (
        wanted.items()
    ):  # for each file of each submit: the most frequent answer first, and nothing called for it
        try:
            if look(blobs + digest[:2] + "/" + digest[2:]).st_size == size:
                continue
        except OSError:
            pass
        if near is None or find_blob(machine, near, digest, size) is None:
            lacked[digest] = size
    return lacked


def lay_out(
    machine: Machine, near: str | None, manifest: dict[str, Any], to: str, keep_going: Callable[[], bool]
) -> bool:
    """Make the code folder `to`. Asks `keep_going` now and then; False when that said no. Raises OSError."""
    for path in manifest["dirs"]:
        make_folder(os.path.join(to, path))
    files = manifest["files"]
    hands = min(_MOST_HANDS, _cores(), len(files) // _WORTH_A_HAND) or 1
    share = -(-len(files) // hands) or 1
    # By contiguous shares: two hands seldom work in the same folder.
    helpers: list[_Helper] = []
    try:
        for at in range(share, len(files), share):
            rows = files[at : at + share]
            helpers.append(_Helper(lambda rows=rows: _lay(machine, near, rows, to, lambda: True)))  # type: ignore[misc]
        done = _lay(machine, near, files[:share], to, keep_going)
        for helper in helpers:
            done = done and helper.has_done(keep_going)
    finally:
        for helper in helpers:
            helper.end()
    if not done:
        return False
    for path, leads_to in manifest["links"]:
        os.makedirs(os.path.dirname(os.path.join(to, path)), exist_ok=True)
        os.symlink(leads_to, os.path.join(to, path))
    os.makedirs(os.path.join(to, "outputs"), exist_ok=True)
    return True


def _lay(
    machine: Machine, near: str | None, rows: list[list[Any]], to: str, keep_going: Callable[[], bool]
) -> bool:
    """Lay out those files of the manifest."""
    made = {to}
    copier = _Copier()
    stores = [machine.blobs + "/"] + ([near + "/"] if near else [])
    for count, (path, digest, size, executable) in enumerate(rows):
        if count % 64 == 0 and not keep_going():
            return False
        target = to + "/" + path
        parent = target[: target.rindex("/")]
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        mode = 0o777 if executable else 0o666
        below = digest[:2] + "/" + digest[2:]
        for store in stores:
            if copier.copy(store + below, size, target, mode):
                break
        else:
            raise FileNotFoundError(errno.ENOENT, "its content is not on this machine any more", path)
    return True


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Helper:
    """A forked process that does a share of the work. It dies with its parent."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._told, tell = os.pipe()
        prctl = processes.load_prctl()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid:
            os.close(tell)
            return
        try:
            processes.die_with_parent(prctl, parent)
            work()
            os.write(tell, b"{}")
        except OSError as trouble:
            words = {"errno": trouble.errno, "text": trouble.strerror, "about": trouble.filename}
            os.write(tell, json.dumps(words).encode())
        finally:
            os._exit(0)

    def has_done(self, keep_going: Callable[[], bool]) -> bool:
        """Wait for its end; False when `keep_going` says no first. Raises the OSError that it met."""
        while not select.select([self._told], [], [], 0.05)[0]:
            if not keep_going():
                return False
        words = json.loads(os.read(self._told, 65536).decode() or '{"errno":5,"text":"a helper was killed"}')
        if words:
            raise OSError(words["errno"], words["text"], words.get("about"))
        return True

    def end(self) -> None:
        """It is not needed any more."""
        os.close(self._told)
        processes.send([self._pid], signal.SIGKILL)
        os.waitpid(self._pid, 0)


class _Copier:
    """Copies files: small ones by hand, which is quickest, large ones by sharing their blocks where the file system can."""

    def __init__(self) -> None:
        self._can_clone = True

    def copy(self, source: str, size: int, target: str, mode: int) -> bool:
        """A new file `target` with the bytes of `source`; `mode` is cut by the umask. False when that is not there, or not whole.

        A power cut can leave a file of the right name with nothing in it.
        """
        try:
            come = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):
            return False
        try:
            if size <= _SMALL:
                data = os.read(come, size + 1)
                if len(data) != size:
                    return False
            elif os.fstat(come).st_size != size:
                return False
            go = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                if size <= _SMALL:
                    done = os.write(go, data)
                    if done < size:  # the disk is nearly full: the next call says so
                        write_all(go, memoryview(data)[done:])
                elif not self._clone(come, go):
                    _copy_bytes(come, go, size)
            finally:
                os.close(go)
        finally:
            os.close(come)
        return True

    def _clone(self, come: int, go: int) -> bool:
        if not self._can_clone:
            return False
        import fcntl

        try:
            fcntl.ioctl(go, _FICLONE, come)
            return True
        except OSError as trouble:
            if trouble.errno not in _CANNOT_CLONE:
                raise
            self._can_clone = False
            return False


def _copy_bytes(come: int, go: int, size: int) -> None:
    """All `size` bytes, inside the kernel where it can. Both files stand at their beginning."""
    copied = 0
    in_kernel: Callable[..., int] | None = getattr(os, "copy_file_range", None)
    while copied < size and in_kernel:
        try:
            moved = in_kernel(come, go, min(size - copied, _PIECE))
        except OSError as trouble:
            if trouble.errno not in _CANNOT_CLONE:
                raise
            moved = 0  # between two file systems of an older kernel
        if not moved:
            break
        copied += moved
    while copied < size:
        data = os.read(come, 1 << 20)
        if not data:
            raise OSError(errno.EIO, "a content became shorter while it was copied")
        write_all(go, data)
        copied += len(data)
