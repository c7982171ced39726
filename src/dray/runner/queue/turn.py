"""Decides who may start now: a pure function of the tickets, the devices, and what others use.

First come, first served. Who cannot start yet closes every device that could serve it to all who came later, so nobody ever passes by
taking what an earlier one waits for; what it could not use anyway is free to others (back-fill). Who is not ready yet,
because its environment is being made, closes nothing, and keeps its place.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from .wants import Unit, Wants, fits

Held = Tuple[Tuple[str, Optional[int]], ...]
"""(UUID, declared bytes; None: all of it) of each device."""


class Ticket(NamedTuple):
    """One run's place."""

    number: int
    wants: Wants
    ready: bool = False
    holds: Optional[Held] = None
    """None: it waits."""
    uid: int = 0
    pid: int = 0
    run: str = ""
    since: float = 0.0
    """When it came, and once it holds something, since when."""


class Scene(NamedTuple):
    """The machine at one moment."""

    units: Tuple[Unit, ...]
    cores: int
    locked: FrozenSet[str] = frozenset()
    """Devices whose lease somebody holds; most are in tickets too."""


class _Room:
    """What is left while one ticket after the other is served."""

    def __init__(self, scene: Scene) -> None:
        self.units = {unit.uuid: unit for unit in scene.units}
        self.cores = scene.cores
        self.closed = set(scene.locked)
        self.declared: Dict[str, int] = {}

    def hold(self, held: Held, cpus: int) -> None:
        """Those are not there any more."""
        self.cores -= cpus
        for uuid, memory in held:
            if memory is None:
                self.closed.add(uuid)
            else:
                self.declared[uuid] = self.declared.get(uuid, 0) + memory

    def free(self, wants: Wants) -> List[Unit]:
        """The devices that could be given now, the best first."""
        found = [unit for unit in self.units.values() if fits(unit, wants) and self._has_room(unit, wants)]
        return sorted(found, key=lambda unit: self._rank(unit, wants))

    def _has_room(self, unit: Unit, wants: Wants) -> bool:
        if unit.uuid in self.closed:
            return False
        declared = self.declared.get(unit.uuid, 0)
        if not wants.share:
            return not declared and not unit.users
        taken = max(declared, unit.used)  # who uses more than it declared, or never declared, counts in full
        return unit.memory is not None and unit.memory - taken >= (wants.memory or 0)

    @staticmethod
    def _rank(unit: Unit, wants: Wants) -> Tuple[int, int, int]:
        # No more memory than is asked for: the rest is for who needs it. Never by who is where: an order that later ones can
        # change would let them delay earlier ones.
        return (unit.memory or 0) if wants.memory else 0, unit.slot, unit.part or 0

    def serve(self, wants: Wants) -> Optional[Held]:
        """Give, or close what it waits for and return None."""
        free = self.free(wants)
        given = tuple((unit.uuid, wants.memory if wants.share else None) for unit in free[: wants.gpus])
        has_cores = not wants.cpus or wants.cpus <= self.cores
        if len(given) == wants.gpus:
            self.hold(given, wants.cpus)
            return given if has_cores else None
        self.cores -= wants.cpus
        if wants.gpus:
            self.closed.update(unit.uuid for unit in self.units.values() if fits(unit, wants))
        return None


def grants(tickets: Sequence[Ticket], scene: Scene) -> Dict[int, Held]:
    """Number -> what it may take now, of each ticket that may start."""
    room = _Room(scene)
    waiting = []
    for ticket in sorted(tickets):
        if ticket.holds is None:
            waiting.append(ticket)
        else:
            room.hold(ticket.holds, ticket.wants.cpus)
    found = {}
    for ticket in waiting:
        given = room.serve(ticket.wants) if ticket.ready else None
        if given is not None:
            found[ticket.number] = given
    return found


def place_of(number: int, tickets: Sequence[Ticket]) -> Tuple[int, int]:
    """(place, of): first is 1."""
    waiting = sorted(ticket.number for ticket in tickets if ticket.holds is None)
    return sum(1 for one in waiting if one < number) + 1, len(waiting)


def in_the_way(
    number: int, tickets: Sequence[Ticket], scene: Scene
) -> List[Tuple[Optional[int], str, float]]:
    """(uid, UUID, since) of who has the devices that this ticket waits for; since is 0 where dray did not start it."""
    wants = next((ticket.wants for ticket in tickets if ticket.number == number), Wants())
    found: List[Tuple[Optional[int], str, float]] = []
    for unit in scene.units:
        if not wants.gpus or not fits(unit, wants):
            continue
        holders = [one for one in tickets for uuid, _ in one.holds or () if uuid == unit.uuid]
        found += [(one.uid, unit.uuid, one.since) for one in holders]
        if not holders:
            found += [(uid, unit.uuid, 0.0) for uid in sorted({uid for _, uid in unit.users}, key=str)]
    if wants.cpus:
        found += [(one.uid, "", one.since) for one in tickets if one.holds is not None and one.wants.cpus]
    return found
