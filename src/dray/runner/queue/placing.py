"""A place in the queue that a client holds through its channel, before it is settled where its run goes.

With `-c gpu1,gpu2` there is one on each machine. Where the turn comes first the run is submitted over the same channel, and its runner takes
the ticket over; the others end with their channels. Nothing is taken here: while the code comes, others may pass.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Optional

from . import turn
from .asked import Asked
from .machine_units import Looking
from .turn import Scene, Ticket

_LOOK_S = 2.0
_BEAT_S = 5.0


class Placing:
    """One place; closed with its channel."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self._ticket = Ticket(0, asked.wants, ready=True, since=time.time())
        self._file: Optional[int] = None
        self._looking: Optional[Looking] = None
        self._told: Optional[Dict[str, Any]] = None
        self._beat = time.monotonic()
        if asked.desk is not None:
            number, self._file = asked.desk.draw(self._ticket)
            self._ticket = self._ticket._replace(number=number)

    def news(self) -> Optional[Dict[str, Any]]:
        """`{"turn":true}` once the run could start here, until then the place whenever it changes; else None. Raises NoDesk, OSError."""
        told = self._now()
        if told == self._told or (self._told or {}).get("turn"):
            return None  # after the turn a submit follows, and its answers are not to be mixed with others
        self._told = told
        return told

    def hand_over(self) -> None:
        """The next submit's runner has it from now on; `close` when it is forked."""
        if self._file is not None and self.asked.desk is not None:
            self.asked.desk.write(self._file, self._ticket._replace(ready=False))
            self.asked.place = (self._ticket.number, self._file)

    def close(self) -> None:
        """Our own hold on it ends; the ticket is the runner's, or nobody's."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._looking is not None:
            self._looking.end()

    def give_up(self) -> None:
        """Nobody wants it any more."""
        if self._file is not None and self.asked.desk is not None:
            self.asked.desk.tear(self._ticket.number)
        self.close()

    def _now(self) -> Dict[str, Any]:
        desk = self.asked.desk
        if desk is None or self._file is None:
            return {"turn": True}
        if time.monotonic() - self._beat > _BEAT_S:
            desk.write(self._file, self._ticket)
            self._beat = time.monotonic()
        is_known = self._is_known()
        units = self.asked.look.units if self.asked.wants.gpus else ()
        tickets = desk.tickets()
        scene = Scene(units, self.asked.look.cores, desk.locked([unit.uuid for unit in units]))
        if is_known and self._ticket.number in turn.grants(tickets, scene):
            return {"turn": True}
        place, of = turn.place_of(self._ticket.number, tickets)
        return {"place": place, "of": of}

    def _is_known(self) -> bool:
        """Whether it is known how the GPUs stand now, as far as that matters."""
        if not self.asked.wants.gpus or time.monotonic() - self.asked.at <= _LOOK_S:
            return True
        self._looking = self._looking or Looking()
        seen = self._looking.soon()
        if seen is None or seen.is_silent:
            return False
        self.asked.look, self.asked.at = seen, time.monotonic()
        return True
