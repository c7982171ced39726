"""A conversation with a machine's runner: hand-shake and frames over any byte channel.

Works the same for every host, and knows nothing of where the channel leads.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Collection
from types import TracebackType
from typing import Any

from dray.core.errors import LinkLost
from dray.core.interfaces import ByteChannel, Host
from dray.hosts import carried
from dray.hosts.errors import HostPythonTooOld, HostUnreachable, MachineRefused
from dray.runner import frames

_BANNER_LIMIT = 1 << 20
_GREETING_S = 60.0
_WORTH_A_COPY = 1 << 16  # below, one write is worth more than the copy that it takes
_SENDINGS = 3  # of the runner: it may be cleared away before a process holds it

# One word of `sh` that any login shell passes on unharmed: reads a program of known length, then runs it. Bytes that follow
# the program stay in the pipe, so the first request may be sent in the same breath.
_START = (
    'import os;n={size};s=b"";exec("while len(s)<n:s+=os.read(0,n-len(s)) or os._exit(1)");exec(s.decode())'
)


def start_word(program: bytes, python: str | None) -> str:
    """The `sh` word that starts `program`, which is to be sent on stdin, under the machine's Python."""
    # -I -S: the user's own packages and settings are none of the runner's business.
    return f"exec {shlex.quote(python or 'python3')} -I -S -c '{_START.format(size=len(program))}'"


class Connection:
    """A channel to `host` whose runner has been asked to start. Nothing is awaited until the first answer is."""

    def __init__(
        self,
        host: Host,
        root: str | None = None,
        python: str | None = None,
        *,
        without: Collection[str] = (),
    ) -> None:
        self.where = host.describe()
        self._host = host
        self._nonce = os.urandom(8).hex()
        program = carried.bootstrap(self._nonce, root)
        self._word = start_word(program, python)
        self._without = without
        self._channel: ByteChannel = host.open(self._word, without=without)
        self._ahead = b""
        self._greeted = False
        self._answered = False
        self._early: list[bytes] = []
        """What was written before the greeting: all of it is said again over a channel that is opened anew."""
        self._read = frames.exact_reader(self._read_some)
        self._write(program)

    def ask(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send one request; the answers come by `receive`."""
        if len(body) < _WORTH_A_COPY:
            self._write(frames.encode(header, body))
        else:
            self._write(frames.head_of(header, len(body)))
            self._write(body)

    def receive(self) -> frames.Frame:
        """The next answer. Raises LinkLost, or MachineRefused for an answer that is an error."""
        header, body = self._receive()
        for _ in range(_SENDINGS):
            if self._answered or header != {"need": "runner"}:
                break
            self._write(frames.encode({"runner": carried.digest()}, carried.archive()))
            header, body = self._receive()
        self._answered = True
        if "error" in header:
            raise MachineRefused(self.where, str(header["error"]), str(header.get("text")))
        return header, body

    def call(self, header: dict[str, Any]) -> dict[str, Any]:
        """Ask, and give the one answer."""
        self.ask(header)
        return self.receive()[0]

    def has_news(self, timeout_s: float | None) -> bool:
        """True when an answer, or the end, is there to be received."""
        return bool(self._ahead) or self._channel.wait_readable(timeout_s)

    def close(self) -> None:
        """End the conversation; runs go on."""
        self._channel.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        if not self._greeted:
            self._early.append(data)
        try:
            self._channel.write(data)
        except BrokenPipeError:
            if self._answered:
                raise self._lost() from None
            # Not a word yet: what the other side says about it comes by reading.

    def _read_some(self, size: int) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        return self._channel.read(size)

    def _receive(self) -> frames.Frame:
        if not self._greeted:
            try:
                self._greet()
            except BaseException:
                self.close()
                raise
        try:
            frame = frames.decode(self._read)
        except frames.BrokenFrame as broken:
            raise self._lost(str(broken)) from None
        if frame is None:
            raise self._lost()
        return frame

    def _greet(self) -> None:
        """Read up to the marker; what comes before it is the login shell's."""
        marker = f"\x1edray {self._nonce} ".encode()
        deadline = time.monotonic() + _GREETING_S
        self._renew_if_mute()
        seen = b""
        while b"\x1e\n" not in seen[max(seen.find(marker), 0) :] or marker not in seen:
            left = deadline - time.monotonic()
            if left <= 0 or len(seen) > _BANNER_LIMIT or not self._channel.wait_readable(left):
                raise HostUnreachable(self.where, "no greeting within a minute")
            piece = self._channel.read(65536)
            if not piece:
                said = self._channel.last_words() or seen.decode(errors="replace")
                raise self._channel.trouble() or HostUnreachable(self.where, said)
            seen += piece
        words, _, self._ahead = seen.split(marker, 1)[1].partition(b"\x1e\n")
        if words.startswith(b"too-old"):
            _, found, program = (*words.decode(errors="replace").split(" ", 2), "?", "?")[:3]
            raise HostPythonTooOld(self.where, found, program)
        self._greeted = True
        self._early.clear()
        self._channel.greeted()

    def _renew_if_mute(self) -> None:
        """Over a connection that was kept from before, and may be dead, not a word comes: then all is said over a new one."""
        patience = self._host.greeting_patience_s
        if patience is None or self._channel.wait_readable(patience) or not self._host.renew():
            return
        self._channel.close()
        self._channel = self._host.open(self._word, without=self._without)
        early, self._early = self._early, []
        for data in early:
            self._write(data)

    def _lost(self, detail: str | None = None) -> LinkLost:
        said = self._channel.last_words().strip()
        trouble = self._channel.trouble()
        if trouble is not None:
            return LinkLost(f"the connection to {self.where} broke", why=trouble.why or trouble.what)
        return LinkLost(
            f"the connection to {self.where} broke",
            why=said.splitlines()[-1] if said else detail,
        )
