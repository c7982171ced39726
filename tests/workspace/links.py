"""Links as they are: slow ones, and ones that break in the middle. Run as a program, it submits over a slow one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from dray import Workspace
from dray.core.errors import DrayError
from dray.core.interfaces import ByteChannel, Host
from dray.hosts import LocalHost
from dray.workspace import Progress


class Link(Host):
    """The way to a host that takes and gives so many bytes a second, and breaks after so many in one direction or the other."""

    def __init__(self, host: Host, *, bytes_per_s: float = 1e12) -> None:
        self.host = host
        self.bytes_per_s = bytes_per_s
        self.name = host.name
        self.sent = 0
        self.received = 0
        self.opened = 0
        self.cuts_sending: list[int] = []
        """The n-th channel breaks when it has taken so many bytes."""
        self.cuts_receiving: list[int] = []

    def open(self, word: str, *, without: Collection[str] = ()) -> ByteChannel:
        self.opened += 1
        return _Slow(
            self,
            self.host.open(word, without=without),
            self.cuts_sending.pop(0) if self.cuts_sending else 1 << 60,
            self.cuts_receiving.pop(0) if self.cuts_receiving else 1 << 60,
        )

    def describe(self) -> str:
        return f"{self.host.describe()}, far away"


class _Slow(ByteChannel):
    def __init__(self, link: Link, channel: ByteChannel, may_send: int, may_receive: int) -> None:
        self._link = link
        self._channel = channel
        self._may_send = may_send
        self._may_receive = may_receive

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), 65536):
            piece = data[at : at + 65536][: max(0, self._may_send)]
            if not piece:
                self._channel.close()
                raise BrokenPipeError
            time.sleep(len(piece) / self._link.bytes_per_s)
            self._channel.write(piece)
            self._link.sent += len(piece)
            self._may_send -= len(piece)

    def read(self, size: int) -> bytes:
        data = self._channel.read(min(size, self._may_receive)) if self._may_receive > 0 else b""
        time.sleep(len(data) / self._link.bytes_per_s)
        self._link.received += len(data)
        self._may_receive -= len(data)
        return data

    def wait_readable(self, timeout_s: float | None) -> bool:
        return self._channel.wait_readable(timeout_s)

    def close(self) -> None:
        self._channel.close()

    def last_words(self) -> str:
        return ""


class FarTarget:
    """A machine with nothing of the client's on it, at the end of a link."""

    name = "far"
    kind = "test"
    is_here = False
    setup: str | None = None
    default_gpus: int | None = None
    container: None = None

    def __init__(self, root: Path, *, bytes_per_s: float = 1e12, host: Host | None = None) -> None:
        self.link = Link(host or LocalHost(), bytes_per_s=bytes_per_s)
        self.host: Host = self.link
        self.root: str | None = str(root)
        self.python: str | None = sys.executable

    def near(self) -> dict[str, Any]:
        return {}


def main(folder: Path, bytes_per_s: float, words: list[str]) -> None:
    """Submit or fetch, saying on stdout how many bytes have passed."""
    target = FarTarget(folder / "far", bytes_per_s=bytes_per_s)
    with Workspace(folder / "home", targets=[target]) as ws:

        def hear(event: Any) -> None:
            if isinstance(event, Progress) and event.what.startswith(("sending", "fetching")):
                print(event.done, flush=True)

        try:
            if words[0] == "submit":
                ws.submit(command=["true"], folder=os.fspath(folder / "project"), compute="far", on=hear)
            else:
                ws.run(words[1]).outputs.fetch_all(None, words[2], hear)
        except DrayError as trouble:
            print(trouble, file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
