"""Manifests in the blob store: a snapshot's digest is the name of its manifest there, as a file's digest is of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dray.snapshot.blobs import BlobStore

MOST_BYTES = 256 << 20


class KeptCode:
    """The code that the blob store under `home` has."""

    def __init__(self, home: Path) -> None:
        self._blobs = BlobStore(str(home))

    def manifest(self, digest: str) -> bytes | None:
        """The manifest's canonical JSON; None where it is not kept, or is not what its name says."""
        try:
            with open(self._blobs.path(digest), "rb") as file:
                text = file.read(MOST_BYTES)
        except OSError:
            return None
        return text if hashlib.sha256(text).hexdigest() == digest else None

    def has(self, size: int, digest: str) -> bool:
        """Whether that content is kept."""
        return self._blobs.has(digest, size)

    def content(self, digest: str, size: int) -> Iterator[bytes] | None:
        """A file's content; None where it is not kept."""
        return _pieces(self._blobs.path(digest)) if self._blobs.has(digest, size) else None

    def take(self, files: Iterable[tuple[Path, int, str]], manifest: Path) -> None:
        """Make the files, each with its size and digest that were checked, blobs, and then the manifest, which stays."""
        self._blobs.prepare()
        for file, size, digest in files:
            file.chmod(0o400)
            self._blobs.adopt(str(file), digest, size)
        self._blobs.put(str(manifest), manifest.name, lambda read: None)


def entries(text: bytes) -> dict[str, Any]:
    """The manifest as data. Raises ValueError for what is none."""
    manifest = json.loads(text)
    if not isinstance(manifest, dict) or manifest.get("v") != 1:
        raise ValueError("it is no manifest that this dray knows")
    for name, fits in (("files", _is_file), ("links", _is_link), ("dirs", _is_text)):
        rows = manifest.get(name)
        if not isinstance(rows, list) or not all(map(fits, rows)):
            raise ValueError(f"its {name} are not what they have to be")
    return manifest


def _pieces(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def _is_text(row: object) -> bool:
    return isinstance(row, str)


def _is_link(row: object) -> bool:
    return isinstance(row, list) and len(row) == 2 and all(map(_is_text, row))


def _is_file(row: object) -> bool:
    match row:
        case [str(), str(), int(size), 0 | 1]:
            return type(size) is int and size >= 0
    return False
