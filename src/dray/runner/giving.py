"""Gives one result of a run to the client: from the byte where it stands, with the digest of the whole."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Callable

from . import results
from .folder import RunFolder
from .trouble import Trouble

_STEP = 1 << 20
_PIECE = 1 << 18  # what is cut in a frame is sent again


def give(folder: RunFolder, header: dict[str, Any], send: Callable[..., None]) -> None:
    """Answer one `fetch`. `offset` and `prefix` say what the client has: so many bytes, of that digest.

    If those are the beginning of the file, only the rest is sent, else all of it: the first answer says which. Never more is sent
    than that answer says, however the file grows.
    """
    path = str(header["path"])
    real = results.confined(folder, path)
    if real is None:
        raise Trouble("no-file", "the run left no file `%s`" % path[:200])
    fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        span = int(header.get("span") or 0)
        if span:
            _go_on(fd, header, span, size, send)
            return
        at, seen = _common(fd, int(header.get("offset") or 0), str(header.get("prefix")), size)
        _send_from(fd, path, at, size, seen, send)
    finally:
        os.close(fd)


def _go_on(fd: int, header: dict[str, Any], span: int, size: int, send: Callable[..., None]) -> None:
    """For a client that mirrors: what comes after its `offset`, if the `span` bytes before that are the same; else `differs`.

    The digest at the end is that of the span and of all that was sent.
    """
    path, offset = str(header["path"]), int(header.get("offset") or 0)
    seen = hashlib.sha256()
    at = offset - span
    while 0 <= at < offset <= size:
        data = os.pread(fd, min(_STEP, offset - at), at)
        if not data:
            break
        seen.update(data)
        at += len(data)
    if at != offset or seen.hexdigest() != header.get("prefix"):
        send({"differs": path})
    else:
        _send_from(fd, path, offset, size, seen, send)


def _send_from(fd: int, path: str, at: int, size: int, seen: Any, send: Callable[..., None]) -> None:
    send({"fetching": path, "offset": at, "bytes": size})
    while at < size:
        data = os.pread(fd, min(_PIECE, size - at), at)
        if not data:
            break  # cut by its script; what came is what it was
        seen.update(data)
        send({"piece": path, "offset": at}, data)
        at += len(data)
    send({"fetched": path, "sha256": seen.hexdigest(), "bytes": at})


def _common(fd: int, offset: int, prefix: str, size: int) -> tuple[int, Any]:
    """How many bytes the client need not be sent, and a hash that has seen them."""
    seen = hashlib.sha256()
    if not 0 < offset <= size:
        return 0, seen
    at = 0
    while at < offset:
        data = os.pread(fd, min(_STEP, offset - at), at)
        if not data:
            break
        seen.update(data)
        at += len(data)
    return (offset, seen) if seen.hexdigest() == prefix else (0, hashlib.sha256())
