"""Lays out the code folder of a run from blobs, as copies: a script may write there without harming anyone."""

from __future__ import annotations

import errno
import os
from typing import Any, Callable

from .files import make_folder
from .machine import Machine

_FICLONE = 0x40049409
_CANNOT_CLONE = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM}


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


def lacking(machine: Machine, near: str | None, manifest: dict[str, Any]) -> list[str]:
    """Digests of the manifest that this machine does not have."""
    wanted = {digest: size for _, digest, size, _ in manifest["files"]}
    return [digest for digest, size in wanted.items() if find_blob(machine, near, digest, size) is None]


def lay_out(
    machine: Machine, near: str | None, manifest: dict[str, Any], to: str, keep_going: Callable[[], bool]
) -> bool:
    """Make the code folder `to`. Asks `keep_going` now and then; False when that said no. Raises OSError."""
    made = {to}
    clone = _Cloner()
    for path in manifest["dirs"]:
        make_folder(os.path.join(to, path))
    for count, (path, digest, size, executable) in enumerate(manifest["files"]):
        if count % 64 == 0 and not keep_going():
            return False
        target = os.path.join(to, path)
        parent = os.path.dirname(target)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        source = find_blob(machine, near, digest, size)
        if source is None:
            raise FileNotFoundError(errno.ENOENT, "its content is not on this machine any more", path)
        clone.copy(source, target, 0o777 if executable else 0o666)
    for path, leads_to in manifest["links"]:
        os.makedirs(os.path.dirname(os.path.join(to, path)), exist_ok=True)
        os.symlink(leads_to, os.path.join(to, path))
    os.makedirs(os.path.join(to, "outputs"), exist_ok=True)
    return True


class _Cloner:
    """Copies files, sharing their blocks where the file system can."""

    def __init__(self) -> None:
        self.can_clone = True

    def copy(self, source: str, target: str, mode: int) -> None:
        """A new file `target` with the bytes of `source`; `mode` is cut by the umask."""
        come = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            go = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                if not (self.can_clone and self._clone(come, go)):
                    self._copy_bytes(come, go)
            finally:
                os.close(go)
        finally:
            os.close(come)

    def _clone(self, come: int, go: int) -> bool:
        try:
            import fcntl

            fcntl.ioctl(go, _FICLONE, come)
            return True
        except OSError as trouble:
            if trouble.errno not in _CANNOT_CLONE:
                raise
            self.can_clone = False
            return False

    def _copy_bytes(self, come: int, go: int) -> None:
        while True:
            data = os.read(come, 1 << 20)
            if not data:
                return
            view = memoryview(data)
            while view:
                view = view[os.write(go, view) :]
