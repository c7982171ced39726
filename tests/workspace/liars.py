"""A machine that answers as it likes: the client must believe only what it can check."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from typing import Any

from dray.core.interfaces import ByteChannel, Host
from dray.runner import frames

Answer = tuple[dict[str, Any], bytes]


class Liar(Host):
    """A target whose machine gives `answers(request)` to every request."""

    kind = "test"
    is_here = False
    root = None
    python = None
    setup = None
    default_gpus = None
    container = None

    def __init__(
        self, name: str, answers: Callable[[dict[str, Any]], list[Answer]], *, waits: bool = False
    ) -> None:
        """With `waits` it does not hang up when it has nothing more to say."""
        self.name = name
        self.waits = waits
        self.host = self
        self.asked: list[str] = []
        self._answers = answers

    def open(self, word: str, *, without: Collection[str] = ()) -> ByteChannel:
        size = re.search(r"n=(\d+)", word)
        assert size
        return _Lies(int(size[1]), self._answer, waits=self.waits)

    def _answer(self, request: dict[str, Any]) -> list[Answer]:
        self.asked.append(str(request.get("op", "")))
        return self._answers(request)

    def describe(self) -> str:
        return "a liar"

    def near(self) -> dict[str, Any]:
        return {}


class _Lies(ByteChannel):
    """The channel: greets as the real one does, and then makes up what it says."""

    def __init__(
        self, program: int, answer: Callable[[dict[str, Any]], list[Answer]], *, waits: bool
    ) -> None:
        self._program = program
        self._waits = waits
        self._answer = answer
        self._heard = b""
        self._says = b""

    def write(self, data: bytes) -> None:
        self._heard += data
        if self._program and len(self._heard) >= self._program:
            nonce = re.search(rb"NONCE = '(\w+)'", self._heard)
            assert nonce
            self._says += b"\x1edray %s ok\x1e\n" % nonce[1]
            self._heard, self._program = self._heard[self._program :], 0
        while not self._program and len(self._heard) >= 8:
            view = memoryview(self._heard)
            head, body = int.from_bytes(view[:4], "big"), int.from_bytes(view[4:8], "big")
            if len(self._heard) < 8 + head + body:
                return
            frame, self._heard = self._heard[: 8 + head + body], self._heard[8 + head + body :]
            at = 0

            def read(size: int, frame: bytes = frame) -> bytes:
                nonlocal at
                at += size
                return frame[at - size : at]

            decoded = frames.decode(read)
            assert decoded
            self._says += b"".join(frames.encode(*said) for said in self._answer(decoded[0]))

    def read(self, size: int) -> bytes:
        while self._waits and not self._says:
            time.sleep(0.01)
        data, self._says = self._says[:size], self._says[size:]
        return data

    def wait_readable(self, timeout_s: float | None) -> bool:
        return True

    def close(self) -> None:
        self._waits = False

    def last_words(self) -> str:
        return ""
