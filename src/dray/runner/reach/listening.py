"""Whose TCP ports are whose on this machine, by the kernel's own table: nobody's port is let in through somebody else.

Linux. Elsewhere nothing is known, and every port of this machine's own addresses is taken for ours.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Iterator, List, NamedTuple, Optional, Tuple

_TABLES = (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6))
_LISTEN, _ESTABLISHED, _CLOSE_WAIT = 0x0A, 0x01, 0x08


class Place(NamedTuple):
    """An address to connect to."""

    family: int
    host: str


class _Row(NamedTuple):
    family: int
    local: Tuple[str, int]
    remote: Tuple[str, int]
    state: int
    uid: int
    inode: int


def places_of(port: int) -> Tuple[List[Place], bool]:
    """Where this user's own processes serve that port here, best first; and whether another user does."""
    rows = [row for row in _rows() if row.state == _LISTEN and row.local[1] == port]
    if not rows and not os.path.exists(_TABLES[0][0]):
        return [Place(socket.AF_INET, "127.0.0.1"), Place(socket.AF_INET6, "::1")], False
    ours = [_reached(row) for row in rows if row.uid == os.getuid()]
    best = {"127.0.0.1": 0, "::1": 1}
    return sorted(set(ours), key=lambda place: best.get(place.host, 2)), len(rows) > len(ours)


def is_ours(connection: socket.socket) -> bool:
    """Whether the other end of a connection within this machine is this user's, or root's, who may do anything anyway."""
    if not os.path.exists(_TABLES[0][0]):
        return True
    try:
        there, here = connection.getpeername()[:2], connection.getsockname()[:2]
    except OSError:
        return False  # gone again
    for row in _rows():
        if row.local == there and row.remote == here:
            # One that was closed at once belongs to nobody any more: then it cannot be known whose it was.
            return (
                bool(row.inode) and row.state in (_ESTABLISHED, _CLOSE_WAIT) and row.uid in (os.getuid(), 0)
            )
    return False


def _reached(row: _Row) -> Place:
    """How to get to what listens there: to all addresses means to the nearest."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(row.local[0], row.local[0])  # noqa: S104
    return Place(row.family, host)


def _rows() -> Iterator[_Row]:
    for path, family in _TABLES:
        try:
            with open(path) as file:
                next(file)
                for line in file:
                    row = _row(line.split(), family)
                    if row is not None:
                        yield row
        except (OSError, StopIteration):
            continue


def _row(words: List[str], family: int) -> Optional[_Row]:
    try:
        local, remote = _address(words[1], family), _address(words[2], family)
        return _Row(family, local, remote, int(words[3], 16), int(words[7]), int(words[9]))
    except (IndexError, ValueError):
        return None


def _address(word: str, family: int) -> Tuple[str, int]:
    """`0100007F:1F90`: words of the machine's own byte order, and the port."""
    host, _, port = word.partition(":")
    raw = b"".join(struct.pack("=I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8))
    return socket.inet_ntop(family, raw), int(port, 16)
