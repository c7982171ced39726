"""Answers `forward`: connections to ports of a live run, carried by the channel, which serves nothing else from then on."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Any, Dict, List, Optional, Tuple

from .. import visit
from ..folder import RunFolder
from ..trouble import Trouble
from . import door as doors
from .door import Door
from .line import Line
from .listening import Place, places_of
from .pipes import OutOfTurn, Pipes

_LOOK_S = 0.25
_SEEN_LOOK_S = 1.0
_MOST = 512


def forward(folder: RunFolder, header: Dict[str, Any], line: Line) -> None:
    """Until the run has ended or the channel does."""
    ports = [int(port) for port in header["ports"]]
    if not ports or not all(0 < port < 65536 for port in ports):
        raise Trouble("no-port", "ports are numbers from 1 to 65535")
    _Forward(folder, line, ports).all()


class _Forward:
    """Some ports of one run."""

    def __init__(self, folder: RunFolder, line: Line, ports: List[int]) -> None:
        self._folder = folder
        self._line = line
        self._told: Dict[int, Any] = dict.fromkeys(ports)
        self._pipes = Pipes(line.send)
        self._door: Optional[Door] = None
        self._looked = 0.0

    def all(self) -> None:
        """Carry bytes, and tell which port is served."""
        self._line.send({"forwarding": True})
        try:
            while True:
                if time.monotonic() - self._looked > (_SEEN_LOOK_S if all(self._told.values()) else _LOOK_S):
                    if self._is_over():
                        self._line.send({"ended": True})
                        return
                    self._look()
                    self._looked = time.monotonic()
                found = self._line.poll(self._pipes.wanted(may_send=not self._line.is_full), _LOOK_S)
                if self._line.has_frame(found) and not self._hear():
                    return
                self._pipes.act(found)
        except OutOfTurn as broken:
            raise Trouble("out-of-turn", str(broken)) from None
        finally:
            self._pipes.drop_all()

    def _is_over(self) -> bool:
        """Whether the run will never serve anything any more."""
        if self._door is not None:
            return not self._door.is_open
        self._door = doors.find(self._folder)
        if self._door is not None:
            return False
        return not visit.settle(self._folder)

    def _look(self) -> None:
        """Tell when a port is served, or not any more."""
        for port, before in self._told.items():
            places, is_anothers = self._places(port) if self._door else ([], False)
            now = "yes" if places else "other" if is_anothers else "no"
            if before != now:
                self._told[port] = now
                self._line.send(
                    {
                        "port": port,
                        "served": bool(places),
                        "other": is_anothers,
                        "begun": self._door is not None,
                    }
                )

    def _places(self, port: int) -> Tuple[List[Place], bool]:
        if self._door is None or not self._door.hosts:
            return places_of(port)
        found = []
        for host in self._door.hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(0.2)
                if probe.connect_ex((host, port)) == 0:
                    found.append(Place(family, host))
        return found, False

    def _hear(self) -> bool:
        frame = self._line.receive()
        if frame is None:
            return False
        header, body = frame
        if "open" in header:
            self._open(int(header["open"]), int(header["port"]))
        else:
            self._pipes.hear(header, body)
        return True

    def _open(self, number: int, port: int) -> None:
        why = "the port is not served"
        if len(self._pipes) >= _MOST:
            why = "too many connections at once"
        elif port in self._told and self._door is not None:
            # Looked up anew each time: by now it may be another user's.
            for place in self._known(port):
                connection = socket.socket(place.family, socket.SOCK_STREAM)
                connection.setblocking(False)
                number_of = connection.connect_ex((place.host, port))
                if number_of in (0, errno.EINPROGRESS):
                    self._pipes.add(number, connection, connecting=True)
                    return
                connection.close()
                why = os.strerror(number_of)
        self._line.send({"pipe": number, "close": True, "why": why})

    def _known(self, port: int) -> List[Place]:
        assert self._door
        if self._door.hosts:
            return [
                Place(socket.AF_INET6 if ":" in host else socket.AF_INET, host) for host in self._door.hosts
            ]
        return places_of(port)[0]
