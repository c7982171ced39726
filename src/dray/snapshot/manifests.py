"""Reads a manifest that comes from elsewhere: it is what its digest says, and nothing in it can write outside a folder.

Read `checked` first. A manifest of our own is right by construction; one that a machine sent is looked at before use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from dray.core.spec import canonical_json
from dray.snapshot.errors import BadManifest

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONGEST = 4096  # bytes of a path, as the system has it
_BIGGEST = 1 << 62


def is_digest(text: object) -> bool:
    """Whether it is a SHA-256, and may become the name of a file."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def checked(manifest: Any, digest: str) -> dict[str, Any]:
    """`manifest`, if it is one, has that digest, and stays inside its folder. Raises BadManifest."""
    if not isinstance(manifest, dict) or manifest.get("v") != 1:
        raise BadManifest("it is none that this version knows")
    try:
        files = [(path, of, size, bit) for path, of, size, bit in manifest["files"]]
        links = [(path, target) for path, target in manifest["links"]]
        dirs = manifest["dirs"]
        if not isinstance(dirs, list):
            raise TypeError
    except (KeyError, TypeError, ValueError):
        raise BadManifest("it has not the parts of one") from None
    for _, of, size, bit in files:
        is_size = type(size) is int and 0 <= size < _BIGGEST
        if not is_digest(of) or not is_size or type(bit) is not int or bit not in (0, 1):
            raise BadManifest("a line of it is no file")
    for _, target in links:
        if not _is_name(target):
            raise BadManifest("a line of it is no link")
    _check_paths([row[0] for row in files], [row[0] for row in links], dirs)
    if sha256(canonical_json(manifest)).hexdigest() != digest:
        raise BadManifest("its digest is another")
    return dict(manifest)


def parents(paths: Iterable[str]) -> set[str]:
    """All folders above `paths`."""
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found


def _check_paths(files: list[Any], links: list[Any], dirs: list[Any]) -> None:
    every = [*files, *links, *dirs]
    for path in every:
        if not _is_name(path) or any(part in ("", ".", "..") for part in path.split("/")):
            raise BadManifest(f"`{str(path)[:200]}` is no path inside a folder")
    if len(set(every)) != len(every):
        raise BadManifest("it names a path twice")
    through = parents(every) & {*files, *links}
    if through:
        raise BadManifest(f"it goes through `{min(through)[:200]}`, which is no folder")


def _is_name(text: Any) -> bool:
    """Whether the system could have given it."""
    if not isinstance(text, str) or not text or "\0" in text:
        return False
    try:
        return len(os.fsencode(text)) <= _LONGEST
    except UnicodeEncodeError:
        return False
