"""The machine's GPUs and its queue, as one document for people: `op: gpus`."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List

from . import turn
from .desk import Desk, NoDesk, name_of
from .machine_units import look
from .turn import Ticket
from .wants import Unit


def picture() -> Dict[str, Any]:
    """GPUs with who holds or uses them, and the tickets that wait. Takes no place, and no lease."""
    seen = look(busy=True)
    tickets: List[Ticket] = []
    trouble = None
    try:
        desk = Desk()
        tickets = desk.tickets()
        locked = desk.locked([unit.uuid for unit in seen.units])
    except (NoDesk, OSError) as problem:
        trouble, locked = str(problem), frozenset()
    scene = turn.Scene(seen.units, seen.cores, locked)
    may_start = turn.grants(tickets, scene)
    held = sum(one.wants.cpus for one in tickets if one.holds is not None)
    return {
        "gpus": [_gpu(unit, tickets, unit.uuid in locked) for unit in seen.units],
        "why": seen.why,
        "cores": {"all": seen.cores, "held": held},
        "queue": [
            dict(
                _who(one), place=place, wants=one.wants.words(), ready=one.ready, next=one.number in may_start
            )
            for place, one in enumerate((one for one in tickets if one.holds is None), 1)
        ],
        "running": [dict(_who(one), cpus=one.wants.cpus) for one in tickets if one.holds is not None],
        "trouble": trouble,
        "time": time.time(),
    }


def _gpu(unit: Unit, tickets: List[Ticket], is_locked: bool) -> Dict[str, Any]:
    holders = []
    for ticket in tickets:
        for uuid, memory in ticket.holds or ():
            if uuid == unit.uuid:
                holders.append(dict(_who(ticket), memory=memory))
    if is_locked and not holders:
        holders.append({"user": "somebody", "run": None, "since": None, "memory": None})
    # Who holds it may compute on it; anybody else is there without dray.
    others = [] if holders else sorted({name_of(uid) for _, uid in unit.users})
    return {
        "index": unit.label,
        "uuid": unit.uuid,
        "name": unit.name,
        "memory": unit.memory,
        "used": unit.used,
        "busy": unit.busy,
        "trouble": unit.trouble,
        "holders": holders,
        "others": others,
    }


def _who(ticket: Ticket) -> Dict[str, Any]:
    """Other people's runs are nobody's business: their ids are told to their owner alone."""
    mine = ticket.uid == os.getuid()
    return {"user": name_of(ticket.uid), "run": ticket.run if mine else None, "since": ticket.since}
