"""What dray carries to a machine: the runner and the tracking module, as one zip named by its digest."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


@functools.cache
def _files() -> dict[str, bytes]:
    """Path in the zip -> contents."""
    found = {}
    for folder, inside in (("runner", "dray_runner"), ("tracking", "travel/dray/tracking")):
        root = str(_PACKAGE / folder)
        for place, _, names in os.walk(root):  # half the time of rglob, and every submit takes it
            for name in names:
                if name.endswith(".py"):
                    path = f"{place}/{name}"
                    with open(path, "rb", buffering=0) as file:
                        found[inside + path[len(root) :]] = file.read()
    del found["dray_runner/bootstrap.py"]
    found["travel/dray/__init__.py"] = found.pop("travel/dray/tracking/travel.py")
    return found


@functools.cache
def digest() -> str:
    """Changes whenever anything that travels changes."""
    seen = hashlib.sha256()
    for name, data in sorted(_files().items()):
        seen.update(f"{name} {len(data)}\n".encode() + data)
    return seen.hexdigest()


def archive() -> bytes:
    """The zip; the machine checks its contents against the digest."""
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in sorted(_files().items()):
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def bootstrap(nonce: str, root: str | None) -> bytes:
    """The program that the start word runs first."""
    text = (_PACKAGE / "runner" / "bootstrap.py").read_text()
    return f"NONCE = {nonce!r}\nDIGEST = {digest()!r}\nROOT = {root!r}\n{text}".encode()
