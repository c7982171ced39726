"""The folder for sockets and the helper: on this machine's own disk, this user's alone, with a short path."""

from __future__ import annotations

import os
import stat
import tempfile

from dray.core.errors import DrayError, printable

# A socket's path has at most 107 bytes; ssh adds 17 for a temporary name, and our own names have up to 41.
_LONGEST = 107 - 17 - 41


def runtime_folder() -> str:
    """$XDG_RUNTIME_DIR/dray, else /tmp/dray-UID. Raises DrayError when another user has put something there."""
    bases = [
        (os.environ.get("XDG_RUNTIME_DIR"), "dray"),
        (tempfile.gettempdir(), f"dray-{os.getuid()}"),
        ("/tmp", f"dray-{os.getuid()}"),  # noqa: S108 # whose it is, is looked at
    ]
    wanted = [os.path.join(base, name) for base, name in bases if base]
    problems = []
    for path in wanted:
        if len(os.fsencode(path)) > _LONGEST:
            continue
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            seen = os.lstat(path)
        except OSError as trouble:
            problems.append(f"{printable(path)}: {trouble.strerror}")
            continue
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
            problems.append(f"{printable(path)} is not a folder of yours alone")
            continue
        return path
    raise DrayError(
        "no folder for the sockets of ssh",
        why="; ".join(problems) or "their paths are too long",
        hint="set XDG_RUNTIME_DIR to a folder of yours, with permissions 700 and a short path",
    )
