"""Which machine this is, since which boot, and where dray's folder lies on it.

A machine is known by a random id in dray's folder together with /etc/machine-id: the first is shared by machines with one network
home, the second by cloned images; seldom both (docs/decisions/0001).
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from .files import make_folder, read_text, write_once


def boot_id() -> str:
    """Changes with every boot. Empty where the system does not tell; then a reboot is seen as vanished processes."""
    return read_text("/proc/sys/kernel/random/boot_id").strip()


class Machine:
    """This machine, seen from `root`."""

    def __init__(self, root: str) -> None:
        self.root = root
        make_folder(root)
        marker = os.path.join(root, "id")
        if not read_text(marker):
            write_once(marker, os.urandom(16).hex().encode() + b"\n")
        self.id = _mixed(read_text(marker).strip(), read_text("/etc/machine-id").strip())
        self.boot = boot_id()
        self.folder = os.path.join(root, self.id)
        self.runs = os.path.join(self.folder, "runs")
        self.blobs = os.path.join(self.folder, "blobs")
        self.environments = os.path.join(self.folder, "environments")
        for folder in (self.folder, self.runs):
            make_folder(folder)

    def facts(self) -> dict[str, Any]:
        """What a person wants to know of the machine that ran something."""
        uname = os.uname()
        return {
            "host": uname.nodename,
            "user": _user_name(),
            "os": _os_name() or uname.sysname + " " + uname.release,
            "platform": uname.machine,
            "python": ".".join(map(str, sys.version_info[:3])),
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory": _memory(),
            "machine": self.id,
            "boot": self.boot,
            "time": time.time(),
        }

    def blob(self, digest: str) -> str:
        """Where the contents of that digest lie, or would."""
        return os.path.join(self.blobs, digest[:2], digest[2:])


def _mixed(ours: str, theirs: str) -> str:
    """One id of two, as long as a person can compare by eye."""
    if not theirs:
        return ours[:16]
    # Two hex strings added: keeps both differences without loading OpenSSL for a hash (8 ms of every call).
    try:
        return "%016x" % ((int(ours, 16) ^ int(theirs, 16)) % (1 << 64))
    except ValueError:
        return ours[:16]


def _user_name() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())


def _os_name() -> str:
    for line in read_text("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.split("=", 1)[1].strip().strip('"')
    return ""


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
