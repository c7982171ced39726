"""The wire: frames of a JSON header and raw bytes, the same on both sides of a channel.

A frame is `!II` (length of header, length of body), the header, the body. Sizes are bounded, because the other side is not
trusted more than it has to be.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Callable, Dict, Optional, Tuple

_LENGTHS = struct.Struct("!II")
MAX_HEADER = 256 * 1024 * 1024  # a manifest of a million files
MAX_BODY = 64 * 1024 * 1024
PIECE = 1024 * 1024  # how much of a stream or a blob goes into one frame

Frame = Tuple[Dict[str, Any], bytes]


class BrokenFrame(Exception):
    """What arrived is no frame."""


def encode(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame, ready to send."""
    return head_of(header, len(body)) + body


def head_of(header: dict[str, Any], size: int) -> bytes:
    """What stands before a body of `size` bytes."""
    head = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(head), size) + head


def decode(read_exactly: Callable[[int], bytes]) -> Frame | None:
    """The next frame, or None at a clean end. `read_exactly(n)` returns n bytes, or fewer at the end."""
    lengths = read_exactly(_LENGTHS.size)
    if not lengths:
        return None
    if len(lengths) < _LENGTHS.size:
        raise BrokenFrame("the channel ended inside a frame")
    head_size, body_size = _LENGTHS.unpack(lengths)
    if head_size > MAX_HEADER or body_size > MAX_BODY:
        raise BrokenFrame("a frame of %d + %d bytes is too long" % (head_size, body_size))
    raw = read_exactly(head_size)
    body = read_exactly(body_size) if body_size else b""
    if len(raw) < head_size or len(body) < body_size:
        raise BrokenFrame("the channel ended inside a frame")
    try:
        header = json.loads(raw.decode())
    except (ValueError, RecursionError) as trouble:
        raise BrokenFrame("a frame's header is not JSON: %s" % trouble) from None
    if not isinstance(header, dict):
        raise BrokenFrame("a frame's header is not an object")
    return header, body


def exact_reader(read_some: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Turn a read that may return less into one that returns less only at the end."""

    def read_exactly(size: int) -> bytes:
        first = read_some(size)
        if len(first) == size or not first:
            return first
        pieces = [first]
        missing = size - len(first)
        while missing:
            piece: Optional[bytes] = read_some(min(missing, PIECE))
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    return read_exactly
