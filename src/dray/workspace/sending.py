"""Sends the contents that a machine lacks: small files together, large ones in pieces, packed where that is quicker.

Read `Sending.send` first. Packing is decided anew for each frame by measure: how quickly the channel takes bytes, how quickly a sample is
packed, how much it shrinks. A fast link is never made to wait for the compressor, nor is a file that does not shrink.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dray.core.errors import DrayError, printable
from dray.hosts import Connection
from dray.runner.frames import PIECE

_TOGETHER = 512 * 1024
_MOST_ROWS = 2000
_SAMPLE = 32 * 1024
# Quicker than any compressor of ours on any machine: not even worth a sample.
_NO_COMPRESSOR = 150e6
_FEW = 2 << 20


class Sending:
    """One submit's contents on their way."""

    def __init__(
        self,
        connection: Connection,
        path_of: Callable[[str], str | Path],
        sizes: Mapping[str, int],
        tell: Callable[[int, int], None],
        *,
        may_pack: bool,
    ) -> None:
        """`tell` hears (bytes that are there, all); without `may_pack` nothing is packed, whatever the link."""
        self._connection = connection
        self._path_of = path_of
        self._sizes = sizes
        self._tell = tell
        self._pace = Pace()
        self._may_pack = may_pack
        self._rows: list[tuple[str, int, int]] = []
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._done = 0
        self._total = 0

    def send(self, lacks: Sequence[str], partial: Mapping[str, int]) -> bool:
        """Everything of `lacks`, each from where `partial` says on. False when the machine interrupted: it has something to say."""
        unknown = [digest for digest in lacks if digest not in self._sizes]
        if unknown:
            raise DrayError(
                "the machine asked for what is no part of the run", why=printable(str(unknown[0]))
            )
        self._total = sum(self._sizes[digest] for digest in lacks)
        for digest in lacks:
            start = partial.get(digest, 0)
            if not isinstance(start, int) or not 0 <= start < self._sizes[digest]:
                start = 0
            self._done += start
            if not self._send_one(digest, start):
                return False
        return self._flush()

    def _send_one(self, digest: str, at: int) -> bool:
        size = self._sizes[digest]
        file = os.open(self._path_of(digest), os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            if at:
                os.lseek(file, at, os.SEEK_SET)
            while True:
                piece = os.read(file, min(PIECE, size - at)) if size else b""
                if not piece and size:
                    raise DrayError(f"{self._path_of(digest)} is shorter than it was", hint="dray doctor")
                if not self._add(digest, at, piece):
                    return False
                at += len(piece)
                if at >= size:
                    return True
        finally:
            os.close(file)

    def _add(self, digest: str, at: int, piece: bytes) -> bool:
        """Into the next frame. False when the machine has something to say."""
        self._rows.append((digest, at, len(piece)))
        self._pieces.append(piece)
        self._waiting += len(piece)
        return (self._waiting < _TOGETHER and len(self._rows) < _MOST_ROWS) or self._flush()

    def _flush(self) -> bool:
        if not self._rows:
            return True
        if self._connection.has_news(0):
            return False  # there is nothing to be said before the end, unless something is wrong
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        header: dict[str, Any] = {"blobs": self._rows}
        packed = self._packed(body)
        if packed is not None:
            header["packed"] = True
            body = packed
        began = time.perf_counter()
        self._connection.ask(header, body)
        self._pace.took(len(body), time.perf_counter() - began)
        self._done += self._waiting
        self._rows, self._pieces, self._waiting = [], [], 0
        self._tell(self._done, self._total)
        return True

    def _packed(self, body: bytes) -> bytes | None:
        """`body` made smaller, if it arrives sooner that way."""
        link = self._pace.bytes_per_s()
        if not self._may_pack or link is None or link > _NO_COMPRESSOR or len(body) < 512:
            return None
        middle = max(0, len(body) // 2 - _SAMPLE // 2)
        sample = body[middle : middle + _SAMPLE]
        began = time.perf_counter()
        shrunk = len(zlib.compress(sample, 1))
        spent = max(time.perf_counter() - began, 1e-9)
        if not pays(link, spent / len(sample), shrunk / len(sample)):
            return None
        packed = zlib.compress(body, 1)
        return packed if len(packed) < len(body) else None


def pays(bytes_per_s: float, packing_s: float, shrinks_to: float) -> bool:
    """Whether a byte that takes `packing_s` to pack, and then is `shrinks_to` of one, arrives clearly sooner."""
    return packing_s + shrinks_to / bytes_per_s <= 0.8 / bytes_per_s


class Pace:
    """How quickly the channel takes bytes, by the last few megabytes: what came before went into buffers on the way."""

    def __init__(self) -> None:
        self._last: deque[tuple[int, float]] = deque(maxlen=8)

    def took(self, size: int, seconds: float) -> None:
        """So many bytes were taken in so long."""
        self._last.append((size, seconds))

    def bytes_per_s(self) -> float | None:
        """None while too little was sent to tell."""
        size = sum(size for size, _ in self._last)
        seconds = sum(seconds for _, seconds in self._last)
        # Little and slow tells as much as a lot.
        if size < _FEW and seconds < 0.5:
            return None
        return size / max(seconds, 1e-9)
