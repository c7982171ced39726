"""Many connections over one channel, in bounded memory: each has a window, so one that stands still holds up no other.

The same on both sides of the channel. Frames of one connection carry its number in `pipe`: with a body, bytes; with `took`, how many
bytes the other side may send again; `eof`, nothing more comes from there; `close`, it is over in both directions.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from typing import Any, Callable, Deque, Dict

WINDOW = 1 << 20
_PIECE = 1 << 17
_ANSWER_AT = WINDOW // 4


class OutOfTurn(Exception):
    """The other side does not keep to the rules."""


class Pipes:
    """All connections of this side."""

    def __init__(self, send: Callable[[Dict[str, Any], bytes], None]) -> None:
        self._send = send
        self._pipes: Dict[int, _Pipe] = {}
        self._by_fd: Dict[int, _Pipe] = {}

    def __len__(self) -> int:
        return len(self._pipes)

    def add(self, number: int, connection: socket.socket, *, connecting: bool = False) -> None:
        """One more connection, ours to close from now on. `connecting`: it is not known yet whether it comes about."""
        if number in self._pipes:
            connection.close()
            raise OutOfTurn("two connections of one number")
        connection.setblocking(False)
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipe = _Pipe(number, connection, connecting)
        self._pipes[number] = self._by_fd[pipe.fd] = pipe

    def wanted(self, *, may_send: bool) -> Dict[int, int]:
        """What to wait for: file descriptor -> events. Without `may_send` nothing is read that would have to be sent."""
        found = {}
        for pipe in self._pipes.values():
            events = (
                select.POLLIN
                if may_send and pipe.credit > 0 and not pipe.has_read_all and not pipe.connecting
                else 0
            )
            if pipe.out or pipe.connecting:
                events |= select.POLLOUT
            if events:
                found[pipe.fd] = events
        return found

    def act(self, found: Dict[int, int]) -> None:
        """Do what can be done now, as `poll` found it."""
        for fd, events in found.items():
            pipe = self._by_fd.get(fd)
            if pipe is None:
                continue
            try:
                if pipe.connecting and not self._connected(pipe):
                    continue
                if events & (select.POLLOUT | select.POLLERR | select.POLLHUP):
                    self._write(pipe)
                if events & (select.POLLIN | select.POLLERR | select.POLLHUP) and pipe.credit > 0:
                    self._read(pipe)
            except OSError:
                self.close(pipe.number)
            self._forget_if_over(pipe)

    def hear(self, header: Dict[str, Any], body: bytes) -> None:
        """One frame of the other side. Raises OutOfTurn."""
        number = header.get("pipe")
        pipe = self._pipes.get(number) if isinstance(number, int) else None
        if pipe is None:
            return  # of one that we have closed meanwhile
        if "close" in header:
            self._drop(pipe)
            return
        try:
            if "took" in header:
                pipe.credit += _count(header["took"])
                if pipe.credit > WINDOW:
                    raise OutOfTurn("more was taken than was sent")
            elif "eof" in header:
                pipe.is_told_all = True
                self._write(pipe)
            elif body:
                pipe.held += len(body)
                if pipe.held > WINDOW or pipe.is_told_all:
                    raise OutOfTurn("more came than was asked for")
                pipe.out.append(memoryview(body))
                self._write(pipe)
        except OSError:
            self.close(pipe.number)
        self._forget_if_over(pipe)

    def close(self, number: int, **why: Any) -> None:
        """End that connection on both sides."""
        pipe = self._pipes.get(number)
        if pipe is not None:
            self._drop(pipe)
            self._send(dict({"pipe": number, "close": True}, **why), b"")

    def drop_all(self) -> None:
        """The channel is gone, and all connections with it."""
        for pipe in list(self._pipes.values()):
            self._drop(pipe)

    def _connected(self, pipe: _Pipe) -> bool:
        trouble = pipe.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if trouble:
            self.close(pipe.number, why=os.strerror(trouble))
            return False
        pipe.connecting = False
        return True

    def _read(self, pipe: _Pipe) -> None:
        if pipe.has_read_all:
            return
        try:
            data = pipe.connection.recv(min(_PIECE, pipe.credit))
        except BlockingIOError:
            return
        if data:
            pipe.credit -= len(data)
            self._send({"pipe": pipe.number}, data)
        else:
            pipe.has_read_all = True
            self._send({"pipe": pipe.number, "eof": True}, b"")

    def _write(self, pipe: _Pipe) -> None:
        while pipe.out and not pipe.connecting:
            piece = pipe.out[0]
            try:
                written = pipe.connection.send(piece)
            except BlockingIOError:
                break
            pipe.held -= written
            pipe.owed += written
            if written == len(piece):
                pipe.out.popleft()
            else:
                pipe.out[0] = piece[written:]
        if pipe.owed >= _ANSWER_AT:
            self._send({"pipe": pipe.number, "took": pipe.owed}, b"")
            pipe.owed = 0
        if pipe.is_told_all and not pipe.out and not pipe.has_written_all and not pipe.connecting:
            pipe.has_written_all = True
            pipe.connection.shutdown(socket.SHUT_WR)

    def _forget_if_over(self, pipe: _Pipe) -> None:
        if pipe.has_read_all and pipe.has_written_all:
            self._drop(pipe)

    def _drop(self, pipe: _Pipe) -> None:
        if self._pipes.pop(pipe.number, None) is not None:
            del self._by_fd[pipe.fd]
            pipe.connection.close()


class _Pipe:
    """One connection."""

    def __init__(self, number: int, connection: socket.socket, connecting: bool) -> None:
        self.number = number
        self.connection = connection
        self.connecting = connecting
        self.fd = connection.fileno()
        self.out: Deque[memoryview] = deque()
        self.held = 0
        """Bytes that wait to be written."""
        self.owed = 0
        """Bytes that were written since the other side was told."""
        self.credit = WINDOW
        """Bytes that we may send to the other side."""
        self.has_read_all = False
        self.is_told_all = False
        self.has_written_all = False


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise OutOfTurn("not a number of bytes")
    return value
