"""When a run may start: `Scheduler` is what the runner asks, `scheduler_for` the one place that chooses.

`Leases` shares the GPUs and cores of this machine among all its users by locks in one folder, without a server. Another scheduler (a cluster's
own) is another class here; who prepares and starts the run does not change.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Set, Tuple

from .. import processes
from ..steps import Steps
from ..streams import StateStream
from . import granted, turn
from .asked import Asked
from .desk import Desk, NoDesk, let_go, name_of
from .granted import Granted
from .machine_units import Looking
from .turn import Scene, Ticket

_BEAT_S = 5.0
_LOOK_S = 2.0  # a look at the driver is believed for so long
_TELL_S = 0.5
_PLACE_S = 60.0
_DAY_S = 86400.0
_SLOWEST_S = 2.0
_MOST_TOLD = 16
_POLITE_S = 2.0
_LONG_S = 60.0


class Stopped(Exception):
    """Somebody asked for the end while the run waited."""


class Failed(Exception):
    """The folder with the tickets cannot be used any more. Its words are for the user."""


class Scheduler:
    """Decides when a run may start. The runner asks in this order, each once, but for `tend`."""

    def enter(self) -> None:
        """Take a place; the run is not ready yet. Raises Refused."""

    def wait(self) -> Granted:
        """Ready: come back when the run may start, with what it may use. Raises Stopped when the end was asked for."""
        return Granted()

    def tend(self) -> None:
        """The run lives. Called again and again while it does."""

    def leave(self) -> None:
        """All processes of the run have ended. Safe to repeat; never raises."""


class Leases(Scheduler):
    """Tickets and locks in a folder that all users of the machine share."""

    def __init__(
        self,
        spec: Dict[str, Any],
        asked: Asked,
        steps: Steps,
        said: StateStream,
        place_s: float = _PLACE_S,
        day_s: float = _DAY_S,
    ) -> None:
        """While the run lives its files are looked for every `place_s`, and touched every `day_s`."""
        self._place_s, self._day_s = place_s, day_s
        self._spec = spec
        self._wants = asked.wants
        self._seen = asked.look
        self._seen_at = asked.at
        self._desk = asked.desk or Desk()
        self._place = asked.place
        self._steps = steps
        self._said = said
        self._ticket = Ticket(0, self._wants, run=str(spec.get("id")), since=time.time())
        self._file: Optional[int] = None
        self._leases: List[Tuple[str, int]] = []
        self._looking: Optional[Looking] = None
        self._beat = self._told = self._placed = self._refreshed = 0.0
        self._last_told: Any = None
        self._noted: Set[str] = set()
        self._polite_until = time.monotonic() + _POLITE_S
        self._entered = time.monotonic()

    # -- what the runner asks

    def enter(self) -> None:
        """Draw a ticket, or take over the one that the client has drawn."""
        try:
            if self._place is not None:
                number, self._file = self._place
                self._desk.write(self._file, self._ticket)
            else:
                number, self._file = self._desk.draw(self._ticket)
        except (NoDesk, OSError) as trouble:
            raise _failed(trouble) from None
        self._ticket = self._ticket._replace(number=number)
        self._refreshed = time.monotonic()

    def wait(self) -> Granted:
        """Until the ticket's turn has come, and the locks are ours."""
        try:
            return self._wait()
        except (NoDesk, OSError) as trouble:
            raise _failed(trouble) from None
        finally:
            if self._looking is not None:
                self._looking.end()

    def _wait(self) -> Granted:
        self._write(ready=True)
        while True:
            if self._steps.asked() or self._steps.folder.is_gone():
                raise Stopped
            if not self._desk.is_in_place(self._my_file(), number=self._ticket.number):
                self._again()
            tickets = self._desk.tickets(self._bury)
            held = self._try(tickets)
            if held is not None:
                return self._granted(tuple(uuid for uuid, _ in held))
            self._tell(tickets)
            if time.monotonic() - self._beat > _BEAT_S:
                self._write(ready=True)
            place, _ = turn.place_of(self._ticket.number, tickets)
            # Who has waited for long can wait a little longer, and many do.
            patience = 0.5 if time.monotonic() - self._entered > _LONG_S else 0.1
            self._steps.pause(min(_SLOWEST_S, patience * place))

    def tend(self) -> None:
        """Keep the files young, and see that nobody has removed them."""
        now = time.monotonic()
        if self._file is None or now - self._placed < self._place_s:
            return
        self._placed = now
        try:
            self._mend()
        except (NoDesk, OSError) as trouble:
            self._note("nobody may see any more what this run holds: %s" % _failed(trouble))
        if now - self._refreshed > self._day_s:
            self._refreshed = now
            for fd in [self._my_file(), *(fd for _, fd in self._leases)]:
                self._desk.refresh(fd)

    def _mend(self) -> None:
        """Whatever of our files was removed is there again. Raises NoDesk, OSError."""
        if not self._desk.is_in_place(self._my_file(), number=self._ticket.number):
            self._again()
        for at, (uuid, fd) in enumerate(self._leases):
            if not self._desk.is_in_place(fd, uuid):
                again = self._desk.take(((uuid, None if not self._wants.share else self._wants.memory),))
                if again:
                    self._leases[at] = (uuid, again[0])
                    let_go([fd])

    def leave(self) -> None:
        """Give it all back."""
        if self._file is not None:
            try:
                let_go([fd for _, fd in self._leases])
                self._desk.tear(self._ticket.number)
                let_go([self._file])
            except OSError:
                pass  # the files go with us, and the locks with them
            self._file, self._leases = None, []

    # -- one round

    def _again(self) -> None:
        """Somebody has removed our ticket, or the whole folder: a new one, since nobody could see the old one."""
        old = self._my_file()
        self._desk = Desk(self._desk.path)
        number, self._file = self._desk.draw(self._ticket)
        self._ticket = self._ticket._replace(number=number)
        if self._ticket.holds is None:
            let_go([old])  # else the guard has it, and keeps it

    def _try(self, tickets: List[Ticket]) -> Optional[turn.Held]:
        """What is ours from now on, or None."""
        if self._grant(tickets, beside_others=True) is None:
            self._polite_until = time.monotonic() + _POLITE_S
            return None
        # Nobody of dray's is in the way any more; whether others are, only the driver can tell.
        if self._wants.gpus and time.monotonic() - self._seen_at > _LOOK_S and not self._look():
            return None
        held = None if self._comes_after_another(tickets) else self._grant(tickets)
        try:
            locks = self._desk.take(held) if held is not None else None
        except NoDesk:
            return None  # told by `_tell`
        if held is None or locks is None:
            return None
        self._leases = [(uuid, fd) for (uuid, _), fd in zip(sorted(held), locks)]
        self._ticket = self._ticket._replace(holds=held, since=time.time())
        self._write(ready=True)
        # From here on the guard has them too: they are free when both are gone, or when one says so.
        self._steps.keep([self._my_file(), *locks])
        return held

    def _comes_after_another(self, tickets: List[Ticket]) -> bool:
        """Whether somebody before us is just about to start: in order, though there is room for both. Not for long."""
        first = min(turn.grants(tickets, self._scene()), default=self._ticket.number)
        return first < self._ticket.number and time.monotonic() < self._polite_until

    def _grant(self, tickets: List[Ticket], beside_others: bool = False) -> Optional[turn.Held]:
        return turn.grants(tickets, self._scene(beside_others)).get(self._ticket.number)

    def _scene(self, beside_others: bool = False) -> Scene:
        """The machine now; `beside_others`: as if nobody used it without dray."""
        units = self._seen.units if self._wants.gpus else ()
        if beside_others:
            units = tuple(unit._replace(users=(), used=0) for unit in units)
        return Scene(tuple(units), self._seen.cores, self._desk.locked([unit.uuid for unit in units]))

    def _look(self) -> bool:
        """Whether the driver has said how things are now. One that is silent is asked on, and not waited for."""
        self._looking = self._looking or Looking()
        seen = self._looking.soon()
        if seen is None or seen.is_silent:
            if seen is not None and seen.why:
                self._note(seen.why)
            return False
        self._seen, self._seen_at = seen, time.monotonic()
        return True

    def _bury(self, dead: Ticket) -> bool:
        """A run of ours whose runner and guard are both dead: what is left of it ends before its place is given away."""
        return not dead.run or not processes.kill_all(lambda: processes.marked(dead.run), 1.0)

    def _my_file(self) -> int:
        assert self._file is not None
        return self._file

    def _write(self, ready: bool) -> None:
        self._ticket = self._ticket._replace(ready=ready)
        self._desk.write(self._my_file(), self._ticket)
        self._beat = time.monotonic()

    # -- words

    def _tell(self, tickets: List[Ticket]) -> None:
        """Say where the run stands in the queue, when that is news."""
        now = time.monotonic()
        if now - self._told < _TELL_S:
            return
        self._told = now
        if self._wants.gpus and now - self._seen_at > 5 * _LOOK_S:
            self._look()  # somebody outside may have come or gone
        for text in set(self._desk.trouble.values()):
            self._note(text)
        place, of = turn.place_of(self._ticket.number, tickets)
        rows = turn.in_the_way(self._ticket.number, tickets, self._scene())
        labels = {unit.uuid: unit.label for unit in self._seen.units}
        holders = [
            {"user": name_of(uid), "gpu": labels.get(uuid), "since": since or None}
            for uid, uuid, since in rows
        ]
        words = {"place": place, "of": of, "wants": self._wants.words(), "holders": holders[:_MOST_TOLD]}
        if words != self._last_told:
            self._last_told = words
            default = (self._spec.get("gpus") or {}).get("default")
            self._said.say("state", state="queued", **dict(words, default=default))

    def _note(self, text: str) -> None:
        """A sentence for the user, once."""
        if text not in self._noted:
            self._noted.add(text)
            self._said.say("note", text=text)

    def _granted(self, uuids: Tuple[str, ...]) -> Granted:
        made = granted.of(uuids, self._seen.units, self._spec, may_be_more=self._seen.is_silent)
        waited = round(time.monotonic() - self._entered, 3) if self._last_told else 0.0
        self._said.say("lease", **dict(made.to_json(), cpus=self._wants.cpus, waited_s=waited))
        return made


def _failed(trouble: Exception) -> Failed:
    if isinstance(trouble, OSError):
        return Failed(
            "the folder with the queue cannot be used: %s (%s)" % (trouble.strerror, trouble.filename)
        )
    return Failed(str(trouble))


class AtOnce(Scheduler):
    """For a run that wants nothing which others could want too."""

    def __init__(self, spec: Dict[str, Any], asked: Asked) -> None:
        self._granted = granted.of((), asked.look.units, spec, may_be_more=asked.look.is_silent)

    def wait(self) -> Granted:
        """Now."""
        return self._granted


def scheduler_for(spec: Dict[str, Any], asked: Asked, steps: Steps, said: StateStream) -> Scheduler:
    """The one that this run needs."""
    if asked.look.is_silent:
        said.say("note", text="the run goes on without a GPU: %s" % asked.look.why)
    if not asked.wants.is_anything:
        return AtOnce(spec, asked)
    return Leases(spec, asked, steps, said)
