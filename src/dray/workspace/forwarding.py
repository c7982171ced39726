"""Ports of a live run on this computer: a listener on 127.0.0.1 for each, and all connections over one channel (decision 0039).

Read `Forward`. Two threads of its own: one reads the channel, one does everything else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import select
import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from dray.core.errors import DrayError, LinkLost, UsageError, printable
from dray.hosts import Connection
from dray.hosts.errors import HostUnreachable
from dray.runner import frames
from dray.runner.reach.listening import is_ours
from dray.runner.reach.pipes import OutOfTurn, Pipes
from dray.workspace.errors import BadAnswer, NotRunning, PortTaken
from dray.workspace.events import Event, Said, Served
from dray.workspace.linking import Patience

if TYPE_CHECKING:
    from dray.workspace.run import Run

HERE = "127.0.0.1"
_NEAR = 20
_MOST = 256
_AHEAD = 64


class Wish(NamedTuple):
    """One port that is wanted."""

    remote: int
    local: int | None


class Forward:
    """Some ports of a run, brought here until it is closed or the run ends. A context manager."""

    def __init__(
        self, run: Run, ports: Sequence[int | str], on: Callable[[Event], None] | None = None
    ) -> None:
        wishes = [wish_of(port) for port in ports]
        if not wishes:
            raise UsageError("no port is named", hint=f"dray forward {run.id} 6006")
        self.run_id = run.id
        self.error: DrayError | None = None
        """Why it ended, when that was not in the order of things."""
        self.run_ended = False
        self._run = run
        self._on = on or (lambda event: None)
        target = run._workspace.target(run.record.compute)
        self._patience_s = target.host.patience_s
        self._where = target.host.describe()
        self._is_here = target.is_here
        self._served: dict[int, bool] = {}
        self._news = threading.Condition()
        self._is_over = False
        """Nothing more is to be done; `_is_done`: nothing more is."""
        self._is_done = False
        self._number = 0
        self._listeners: dict[int, tuple[socket.socket, int]] = {}
        self.places: dict[int, int] = {}
        """Port of the run -> port here, as soon as it is served."""
        self._wishes = {wish.remote: wish for wish in wishes}
        if len(self._wishes) < len(wishes):
            raise UsageError("a port is named twice")
        for wish in wishes:
            if self._is_here and wish.local == wish.remote:
                raise PortTaken(
                    wish.remote, wish.remote, "the run is on this computer, and the number is its own"
                )
            if wish.local is not None:
                _taken(wish.local, wish.remote).close()  # what cannot be is better known at once
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_w, False)
        os.set_blocking(self._wake_r, False)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def urls(self) -> list[str]:
        """Where a browser finds them, in the order in which they were named; those that were served once."""
        return [f"http://{HERE}:{self.places[port]}" for port in self._wishes if port in self.places]

    def is_served(self, port: int) -> bool:
        """Whether the run serves that port of its own at the moment."""
        with self._news:
            return self._served.get(port, False)

    def wait_served(self, timeout: float | None = None) -> bool:
        """Until all ports are served (True), or it is over, or that many seconds have passed."""
        with self._news:
            self._news.wait_for(lambda: self._is_over or self._all_served(), timeout)
            return self._all_served() and not self._is_over

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is over: True. Raises what broke it."""
        with self._news:
            self._news.wait_for(lambda: self._is_done, timeout)
            if self.error is not None:
                raise self.error
            return self._is_done

    def close(self) -> None:
        """Let go of the ports; connections over them end. Safe to repeat."""
        with self._news:
            self._is_over = True
            self._news.notify_all()
        self._wake()
        self._thread.join(5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- here

    def _listen(self, wish: Wish) -> None:
        """Take a port of this computer: the one that was wished for, or the next one that is free.

        Only now that it is served there: the run may be on this very computer, and want the number for itself.
        """
        if wish.local is not None:
            made = _taken(wish.local, wish.remote)
        else:
            made = _free(wish.remote + self._is_here)
        made.setblocking(False)
        self.places[wish.remote] = int(made.getsockname()[1])
        self._listeners[made.fileno()] = (made, wish.remote)
        if wish.local is None and self.places[wish.remote] != wish.remote:
            instead = f"{self.places[wish.remote]} stands in for it"
            self._on(Said(f"port {wish.remote} of this computer is in use; {instead}"))

    def _close_listeners(self) -> None:
        for made, _ in self._listeners.values():
            made.close()
        self._listeners = {}

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_w, b"!")

    # -- the thread that works

    def _work(self) -> None:
        patience = Patience(self._patience_s)
        try:
            while not self._is_over:
                try:
                    self._serve(patience)
                except (LinkLost, HostUnreachable) as lost:
                    self._all_unserved()
                    if not self._is_over and patience.lost(lost):
                        self._on(
                            Said(
                                f"{lost.what}; open connections are cut, new ones go through as soon as the link is back"
                            )
                        )
        except DrayError as error:
            self.error = error
        except OutOfTurn as broken:
            self.error = BadAnswer(self._where, "a port", str(broken))
        finally:
            with self._news:
                self._is_over = self._is_done = True
                self._close_listeners()
                self._news.notify_all()

    def _serve(self, patience: Patience) -> None:
        """Over one connection to the machine, as long as it holds."""
        line = _Line(self._run._workspace.connect(self._run.record.compute), self._wake)
        pipes = Pipes(line.send)
        try:
            line.send({"op": "forward", "run": self.run_id, "ports": list(self._wishes)}, b"")
            line.start()
            while not self._is_over:
                wanted = pipes.wanted(may_send=True) | {self._wake_r: select.POLLIN}
                if len(pipes) < _MOST:
                    wanted |= dict.fromkeys(self._listeners, select.POLLIN)
                poll = select.poll()
                for fd, events in wanted.items():
                    poll.register(fd, events)
                found = dict(poll.poll())
                if self._wake_r in found:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_r, 65536)
                    for header, body in line.heard():
                        self._hear(pipes, patience, header, body)
                pipes.act(found)
                for fd in found:
                    if fd in self._listeners and not self._is_over:
                        self._accept(pipes, line, *self._listeners[fd])
        finally:
            pipes.drop_all()
            line.close()

    def _hear(self, pipes: Pipes, patience: Patience, header: dict[str, Any], body: bytes) -> None:
        back = patience.back()
        if back:
            self._on(Said(back))
        if "pipe" in header:
            pipes.hear(header, body)
        elif "port" in header:
            self._port_said(header)
        elif "ended" in header:
            if not self._served:
                raise NotRunning(self.run_id, "it has ended")
            self.run_ended = True
            with self._news:
                self._is_over = True
                self._news.notify_all()
        elif "absent" in header or "never" in header:
            raise NotRunning(self.run_id, "it never started")

    def _port_said(self, header: dict[str, Any]) -> None:
        port, is_served = header["port"], bool(header.get("served"))
        if not isinstance(port, int) or port not in self._wishes:
            raise BadAnswer(self._where, "a port", "its answer makes no sense")
        if is_served and port not in self.places:
            self._listen(self._wishes[port])
        with self._news:
            before = self._served.get(port)
            self._served[port] = is_served
            self._news.notify_all()
        if is_served:
            self._on(Served(port, f"http://{HERE}:{self.places[port]}"))
        elif header.get("other"):
            self._on(
                Said(
                    f"port {port} there belongs to another user, and is not brought here; waiting for the run's own"
                )
            )
        elif not header.get("begun"):
            self._on(Said(f"waiting for {self.run_id} to start"))
        elif before:
            self._on(Said(f"port {port} is not served any more; waiting for it"))
        else:
            self._on(Said(f"nothing serves port {port} there yet; waiting for it"))

    def _accept(self, pipes: Pipes, line: _Line, listener: socket.socket, remote: int) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # it has gone again
        if not is_ours(connection):
            connection.close()  # another user of this computer: the port is this user's alone
            return
        self._number += 1
        line.send({"open": self._number, "port": remote}, b"")
        pipes.add(self._number, connection)

    def _all_served(self) -> bool:
        return all(self._served.get(port) for port in self._wishes)

    def _all_unserved(self) -> None:
        with self._news:
            self._served = dict.fromkeys(self._served, False)


class _Line:
    """The channel: read by a thread of its own, which stops reading when nobody takes what it read."""

    def __init__(self, connection: Connection, wake: Callable[[], None]) -> None:
        self._connection = connection
        self._wake = wake
        self._heard: queue.Queue[frames.Frame | DrayError] = queue.Queue(_AHEAD)
        self._is_closed = False

    def start(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, header: dict[str, Any], body: bytes) -> None:
        if not self._is_closed:
            self._connection.ask(header, body)

    def heard(self) -> list[frames.Frame]:
        """What has come. Raises what ended it, once all before it was taken."""
        found: list[frames.Frame] = []
        while len(found) < _AHEAD:
            try:
                one = self._heard.get_nowait()
            except queue.Empty:
                return found
            if isinstance(one, DrayError):
                if not found:
                    raise one
                self._heard.put(one)  # behind nothing: it is the last one
                break
            found.append(one)
        self._wake()  # there may be more
        return found

    def close(self) -> None:
        self._is_closed = True
        self._connection.close()
        with contextlib.suppress(queue.Empty):
            self._heard.get_nowait()  # the reader may wait for room

    def _read(self) -> None:
        while not self._is_closed:
            try:
                self._heard.put(self._connection.receive())
            except (DrayError, OSError, ValueError) as trouble:
                lost = trouble if isinstance(trouble, DrayError) else LinkLost("the connection was closed")
                self._heard.put(lost)
                self._wake()
                return
            self._wake()


def wish_of(port: int | str) -> Wish:
    """6006, "6006" or "6006:8080". Raises UsageError."""
    remote, colon, local = str(port).partition(":")
    numbers = [int(word) if word.isascii() and word.isdigit() else 0 for word in (remote, local or "1")]
    if not all(0 < number < 65536 for number in numbers) or (colon and not local):
        raise UsageError(
            f"`{printable(str(port))}` is no port",
            why="it looks like 6006, or 6006:8080 for 8080 on this computer",
        )
    return Wish(numbers[0], numbers[1] if colon else None)


def _taken(port: int, remote: int) -> socket.socket:
    """That port of this computer. Raises PortTaken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HERE, port))
        made.listen(128)
    except OSError as trouble:
        made.close()
        raise PortTaken(port, remote, _why(trouble)) from None
    return made


def _free(first: int) -> socket.socket:
    """The first of some ports that is free."""
    for port in [*range(first, min(first + _NEAR, 65536)), 0]:
        with contextlib.suppress(PortTaken):
            return _taken(port, first)
    raise PortTaken(first, first, "no port of this computer is free")


def _why(trouble: OSError) -> str:
    if trouble.errno == errno.EADDRINUSE:
        return "something else listens there"
    if trouble.errno == errno.EACCES:
        return "ports below 1024 are the administrator's"
    return trouble.strerror or str(trouble)
