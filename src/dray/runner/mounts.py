"""Says whether a folder lies on a network file system, where SQLite's shared memory cannot work."""

from __future__ import annotations

import os

MOUNTINFO = "/proc/self/mountinfo"

_NETWORK = frozenset(
    {
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "cvmfs", "gfs", "gfs2", "glusterfs", "gpfs"),
        *(
            "lustre",
            "ncpfs",
            "nfs",
            "nfs4",
            "ocfs2",
            "orangefs",
            "panfs",
            "pvfs2",
            "smb2",
            "smb3",
            "smbfs",
            "wekafs",
        ),
    }
)
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.ntfs", "fuse.ntfs-3g", "fuse.exfat", "fuse.ext2"})


def is_network(folder: str, mountinfo: str = MOUNTINFO) -> bool:
    """True for NFS, Lustre and their like. False where nobody can tell (no `mountinfo`: not Linux)."""
    try:
        with open(mountinfo, "rb") as file:
            text = os.fsdecode(file.read())
    except OSError:
        return False
    kind = file_system(os.path.realpath(folder), text)
    return kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def file_system(path: str, mountinfo: str) -> str:
    """The type of the file system that holds the absolute `path`, from the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        before, found, after = line.partition(" - ")
        fields = before.split(" ")
        if not found or len(fields) < 5:
            continue
        point = _plain(fields[4])
        # `>=`: a later mount at the same place hides the earlier one.
        if len(point) >= len(best) and (path == point or path.startswith(point.rstrip("/") + "/")):
            best, kind = point, after.split(" ")[0]
    return kind


def _plain(point: str) -> str:
    # The kernel writes these four as octal, so that a line can be split at blanks.
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(octal, char)
    return point
