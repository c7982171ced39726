"""A command inside a live run, seen from here: what goes in, what comes out, how it ended.

Read `Execution`. One thread of its own sends, so that a signal handler may have something sent at any moment; the caller's thread
receives. The machine says how much input it has taken, and no more than a window is ever on its way.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from dray.core.errors import DrayError, LinkLost
from dray.hosts import Connection
from dray.hosts.errors import MachineRefused
from dray.workspace.errors import BadAnswer, CannotExecute, NotRunning

if TYPE_CHECKING:
    from dray.workspace.run import Run

_WINDOW = 1 << 20
_PIECE = 1 << 16


class Executed(NamedTuple):
    """What became of a command."""

    code: int
    """Its exit code; 128 + n when signal n ended it."""
    stdout: bytes
    stderr: bytes
    run_ended: bool = False
    """The run ended first, and the command with it."""


class Terminal(NamedTuple):
    """A terminal that the command is to have."""

    term: str
    rows: int
    columns: int


class Execution:
    """One command on its way. Use it as a context manager; leaving it early ends the command."""

    def __init__(
        self, run: Run, argv: Sequence[str], *, terminal: Terminal | None = None, stdin: bool = False, secrets: bool = False
    ) -> None:  # fmt: skip
        self.run_id = run.id
        self.code: int | None = None
        """As in Executed, once it has ended."""
        self.run_ended = False
        self.hidden: list[str] = []
        """Secrets of the run that the command does not have; known once it has started."""
        self._program = argv[0] if argv else ""
        self._connection: Connection = run._workspace.connect(run.record.compute)
        self._compute = run.record.compute
        self._outgoing: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
        self._credit = _WINDOW
        self._may_give = threading.Condition()
        self._is_over = False
        request = {"op": "exec", "run": run.id, "argv": list(argv), "stdin": stdin, "secrets": secrets}
        if terminal is not None:
            request["tty"] = {"term": terminal.term, "size": [terminal.rows, terminal.columns]}
        try:
            self._connection.ask(request)
        except BaseException:
            self._connection.close()
            raise
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def output(
        self, on_wait: Callable[[], None] = lambda: None, on_start: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, bytes]]:
        """(1 for stdout or 2 for stderr, bytes) as it comes, up to the end.

        `on_wait` hears that the run itself has not started yet, `on_start` that the command has.
        """
        while True:
            header, body = self._next()
            if "out" in header:
                yield (2 if header["out"] == 2 else 1), body
            elif "took" in header:
                self._took(header["took"])
            elif "waiting" in header:
                on_wait()
            elif "started" in header:
                self.hidden = [str(name) for name in header.get("hidden") or []]
                on_start()
            elif "code" in header:
                self._ended(header)
                return
            elif "absent" in header or "never" in header:
                raise NotRunning(self.run_id, "it never started")
            else:
                raise BadAnswer(self._connection.where, self._program, "its answer makes no sense")

    def give(self, data: bytes) -> bool:
        """Put bytes into its stdin, waiting until it takes them. False: it is over, and takes nothing any more."""
        for at in range(0, len(data), _PIECE):
            piece = data[at : at + _PIECE]
            with self._may_give:
                while self._credit < len(piece) and not self._is_over:
                    self._may_give.wait()
                if self._is_over:
                    return False
                self._credit -= len(piece)
            self._outgoing.put(({"in": True}, piece))
        return not self._is_over

    def give_end(self) -> None:
        """Its stdin ends here."""
        self._outgoing.put(({"in_end": True}, b""))

    def signal(self, name: str) -> None:
        """Send it a signal: INT, TERM, KILL ... Safe in a signal handler."""
        self._outgoing.put(({"signal": name}, b""))

    def resize(self, rows: int, columns: int) -> None:
        """Its terminal has another size now. Safe in a signal handler."""
        self._outgoing.put(({"size": [rows, columns]}, b""))

    def close(self) -> None:
        """End the conversation; a command that is still there ends with it."""
        self._over()
        self._outgoing.put(None)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next(self) -> tuple[dict[str, Any], bytes]:
        try:
            return self._connection.receive()
        except MachineRefused as refused:
            self._over()
            raise self._in_words(refused) from None
        except LinkLost:
            self._over()
            raise

    def _in_words(self, refused: MachineRefused) -> DrayError:
        kind, _, number = refused.refusal.rpartition("-")
        if refused.refusal == "not-running":
            return NotRunning(self.run_id, refused.said)
        if kind == "cannot-start":
            return CannotExecute(self.run_id, refused.said, number)
        return refused

    def _ended(self, header: dict[str, Any]) -> None:
        self._over()
        code, signal = header["code"], header.get("signal")
        self.code = (
            int(code) & 0xFF
            if isinstance(code, int)
            else 128 + (int(signal) if isinstance(signal, int) else 9)
        )
        self.run_ended = bool(header.get("over"))

    def _took(self, size: Any) -> None:
        with self._may_give:
            self._credit = min(_WINDOW, self._credit + (size if isinstance(size, int) else 0))
            self._may_give.notify_all()

    def _over(self) -> None:
        with self._may_give:
            self._is_over = True
            self._may_give.notify_all()

    def _send(self) -> None:
        while (frame := self._outgoing.get()) is not None:
            try:
                self._connection.ask(*frame)
            except (LinkLost, OSError, ValueError):
                return  # whoever receives says why


def execute(
    run: Run,
    argv: Sequence[str],
    *,
    input: bytes | None = None,
    secrets: bool = False,
    on_output: Callable[[int, bytes], object] | None = None,
) -> Executed:
    """Run a command to its end: for programs. `on_output` takes what comes, else it is collected."""
    collected = {1: bytearray(), 2: bytearray()}
    with Execution(run, argv, stdin=input is not None, secrets=secrets) as execution:
        if input is not None:
            threading.Thread(target=_feed, args=(execution, input), daemon=True).start()
        for number, data in execution.output():
            if on_output is not None:
                on_output(number, data)
            else:
                collected[number] += data
        assert execution.code is not None
        return Executed(execution.code, bytes(collected[1]), bytes(collected[2]), execution.run_ended)


def _feed(execution: Execution, data: bytes) -> None:
    if execution.give(data):
        execution.give_end()


def pump(execution: Execution, fd: int, changed: Callable[[bytes], bytes | None] = lambda data: data) -> None:
    """Put all that can be read from `fd` into its stdin, up to the end. `changed` may say None: leave now."""
    while True:
        try:
            data = os.read(fd, _PIECE)
        except OSError:
            data = b""
        if not data:
            execution.give_end()
            return
        passed = changed(data)
        if passed is None or not execution.give(passed):
            return
