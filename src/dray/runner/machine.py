"""Which machine this is, since which boot, and where dray's folder lies on it.

A machine is known by a random id in dray's folder together with /etc/machine-id: the first is shared by machines with one network
home, the second by cloned images; seldom both (docs/decisions/0001). Where there is no machine-id, as in containers, its host name
stands in for it.
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

    def __init__(self, root: str, machine_id: str = "/etc/machine-id", node: str | None = None) -> None:
        """`machine_id` is the file with the system's own id, `node` the host's name (None: as it calls itself)."""
        self.root = root
        make_folder(root)
        marker = os.path.join(root, "id")
        if not read_text(marker):
            write_once(marker, os.urandom(16).hex().encode() + b"\n")
        self.id = _mixed(
            read_text(marker).strip(), _number(read_text(machine_id), node or os.uname().nodename)
        )
        self.boot = boot_id()
        self.folder = os.path.join(root, self.id)
        self.runs = os.path.join(self.folder, "runs")
        self.blobs = os.path.join(self.folder, "blobs")
        self.incoming = os.path.join(self.folder, "incoming")
        self.environments = os.path.join(self.folder, "environments")
        for folder in (self.folder, self.runs):
            make_folder(folder)

    def facts(self) -> dict[str, Any]:
        """What a person wants to know of the machine that ran something."""
        uname = os.uname()
        return {
            "host": uname.nodename,
            "user": user_of(os.getuid())[0] or str(os.getuid()),
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


def _mixed(ours: str, theirs: int) -> str:
    """One id of two, as long as a person can compare by eye."""
    # Two numbers mixed: keeps both differences without loading OpenSSL for a hash (8 ms of every call).
    try:
        return "%016x" % ((int(ours, 16) ^ theirs) % (1 << 64))
    except ValueError:
        return "%016x" % (_spread(ours) ^ theirs % (1 << 64))


def _number(machine_id: str, node: str) -> int:
    """What tells this system from others: its machine-id, or its name when that is missing, or no id ("uninitialized")."""
    words = machine_id.split()
    try:
        found = int(words[0], 16) if words else 0
    except ValueError:
        found = 0
    return found or _spread(node)


def _spread(text: str) -> int:
    """64 bits that depend on every byte of `text` (FNV-1a)."""
    value = 0xCBF29CE484222325
    for byte in os.fsencode(text):
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def user_of(uid: int) -> tuple[str, str, str]:
    """(name, home, login shell) of that user; empty where the system does not know."""
    try:
        import pwd

        row = pwd.getpwuid(uid)
        return row.pw_name, row.pw_dir, row.pw_shell
    except (ImportError, KeyError):
        return "", "", ""


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
