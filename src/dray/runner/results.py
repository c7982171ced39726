"""What a run left behind: its outputs, files it wrote elsewhere, and where each of them really lies."""

from __future__ import annotations

import os
import stat
import traceback
from typing import TYPE_CHECKING, Any, Iterator

from . import frames
from .files import read_json
from .folder import RunFolder

if TYPE_CHECKING:
    import pathlib  # costs milliseconds, and few runs name patterns

OUTPUTS = "outputs"
_MOST = 10000
_NAMED = 20
_NOBODY_MEANS = {"__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


def survey(folder: RunFolder) -> dict[str, Any]:
    """`outputs` and `elsewhere` for the end. Never raises: how the script ended is worth more than what it left."""
    try:
        spec = (folder.run_json() or {}).get("spec") or {}
        files = listing(folder, spec.get("outputs") or [])
        named = {path for path, _ in files}
        strays = [path for path in _new_files(folder) if path not in named]
    except Exception:
        traceback.print_exc()
        files, strays = [], []
    return {
        "outputs": {"files": files[:1000], "count": len(files), "bytes": sum(size for _, size in files)},
        "elsewhere": {"files": sorted(strays)[:_NAMED], "count": len(strays)},
    }


def listing(folder: RunFolder, globs: list[str]) -> list[list[Any]]:
    """[path, bytes] of all results: below outputs/, and what the globs name. Paths are relative to code/."""
    found: dict[str, None] = {}
    for path in _walk(folder.code, OUTPUTS):
        found[path] = None
    if globs:
        import pathlib

        for pattern in globs:
            for hit in _hits(pathlib.Path(folder.code), pattern):
                relative = os.path.relpath(str(hit), folder.code)
                for path in _walk(folder.code, relative) if hit.is_dir() else [relative]:
                    found[path] = None
    listed = []
    for path in sorted(found)[:_MOST]:
        real = confined(folder, path)
        if real is not None:
            try:
                listed.append([path, os.stat(real).st_size])
            except OSError:
                continue  # its script has just removed it
    return listed


def listing_to_mirror(folder: RunFolder, globs: list[str], unless: Any) -> dict[str, Any]:
    """[path, bytes, time of the last change in ns, inode] of all results, unless they have the digest `unless`; and whether that was all."""
    import hashlib

    from . import visit

    ended = not visit.settle(folder)  # asked first: what is listed after the end is complete
    files = []
    for path, _ in listing(folder, globs):
        real = confined(folder, path)
        try:
            seen = os.stat(real) if real else None
        except OSError:
            continue  # its script has just removed it
        if seen is not None:
            files.append([path, seen.st_size, seen.st_mtime_ns, seen.st_ino])
    digest = hashlib.sha256(repr(files).encode("utf-8", "surrogateescape")).hexdigest()
    if digest == unless:
        return {"same": True, "ended": ended}
    return {"files": files, "digest": digest, "ended": ended}


def _hits(code: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    """What a pattern names. One that this Python does not understand (`**.pt` before 3.13) names nothing."""
    try:
        return list(code.glob(pattern))
    except (OSError, ValueError, NotImplementedError, IndexError, RecursionError):
        return []


def confined(folder: RunFolder, path: str) -> str | None:
    """Where the result `path` really lies; None when it is no regular file inside the run's code folder."""
    if not path or path.startswith("/") or "\0" in path or ".." in path.split("/"):
        return None
    code = os.path.realpath(folder.code)
    real = os.path.realpath(os.path.join(code, path))
    if not real.startswith(code + os.sep):
        return None
    try:
        return real if stat.S_ISREG(os.stat(real).st_mode) else None
    except OSError:
        return None


def _walk(top: str, below: str) -> Iterator[str]:
    """Files (and links) below `top`/`below`, as paths relative to `top`; folders that are links are not entered."""
    ahead = [below]  # and no recursion: a script may nest folders deeper than Python calls functions
    while ahead:
        inside = ahead.pop()
        try:
            entries = list(os.scandir(os.path.join(top, inside)))
        except OSError:
            continue
        for entry in entries:
            path = os.path.join(inside, entry.name) if inside else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield path
            elif entry.name not in _NOBODY_MEANS:
                ahead.append(path)


def _new_files(folder: RunFolder) -> list[str]:
    """Files in code/ that did not come with the snapshot and are no outputs."""
    # It came in the header of a frame.
    manifest = read_json(os.path.join(folder.path, "manifest.json"), frames.MAX_HEADER) or {}
    came = {row[0] for row in manifest.get("files", [])} | {row[0] for row in manifest.get("links", [])}
    inside = OUTPUTS + "/"
    return [p for p in _walk(folder.code, "") if p not in came and not p.startswith(inside)]
