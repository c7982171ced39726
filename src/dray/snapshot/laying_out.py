"""Makes a folder of a snapshot again, and looks whether it is the same: what `take` would have seen in it.

Links are made and read, and never followed. Where the folder is, and what is there already, is the caller's concern.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from typing import Any

from dray.snapshot.blobs import BlobStore
from dray.snapshot.manifests import parents


def lay_out(manifest: dict[str, Any], home: str, folder: str, told: Callable[[int], None]) -> None:
    """Fill the empty `folder` with a checked `manifest`, from the blobs of `home`. `told` hears of bytes. Raises OSError."""
    import shutil

    blobs = BlobStore(home)
    for path in sorted(parents(_names(manifest)) | set(manifest["dirs"])):
        os.makedirs(os.path.join(folder, path), exist_ok=True)
    for path, digest, size, executable in manifest["files"]:
        place = os.path.join(folder, path)
        shutil.copyfile(blobs.path(digest), place)
        if executable:
            # As a program is made: whoever may read it may execute it; and its owner, whatever the umask.
            mode = stat.S_IMODE(os.stat(place).st_mode)
            os.chmod(place, mode | 0o100 | (mode & 0o444) >> 2)
        told(size)
    for path, target in manifest["links"]:
        os.symlink(target, os.path.join(folder, path))


def is_same(manifest: dict[str, Any], folder: str) -> bool:
    """Whether `folder` holds what the manifest says, and nothing else. Reads all of it."""
    names = _names(manifest)
    wanted = {
        "files": sorted(tuple(row) for row in manifest["files"]),
        "links": sorted(tuple(row) for row in manifest["links"]),
        "dirs": sorted(set(manifest["dirs"]) - parents(names)),
    }
    return _seen(folder) == wanted


def leads_out(path: str, target: str) -> bool:
    """Whether a link of a snapshot points to something that is no part of it."""
    above = os.path.dirname(path)
    return os.path.isabs(target) or os.path.normpath(os.path.join(above, target)).split("/")[0] == ".."


def _names(manifest: dict[str, Any]) -> list[str]:
    return [*(row[0] for row in manifest["files"]), *(row[0] for row in manifest["links"]), *manifest["dirs"]]


def _seen(folder: str) -> dict[str, list[Any]]:
    """Files, links and empty folders of `folder`, as a manifest has them."""
    seen: dict[str, list[Any]] = {"files": [], "links": [], "dirs": []}
    ahead = [""]
    while ahead:
        inside = ahead.pop()
        with os.scandir(os.path.join(folder, inside)) as found:
            entries = list(found)
        if not entries and inside:
            seen["dirs"].append(inside)
        for entry in entries:
            path = f"{inside}/{entry.name}" if inside else entry.name
            if entry.is_symlink():
                seen["links"].append((path, os.readlink(entry.path)))
            elif entry.is_dir():
                ahead.append(path)
            else:
                seen["files"].append((path, *_content(entry.path)))
    return {kind: sorted(rows) for kind, rows in seen.items()}


def _content(place: str) -> tuple[str, int, int]:
    with open(place, "rb") as file:
        info = os.fstat(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest, info.st_size, 1 if info.st_mode & 0o100 else 0
