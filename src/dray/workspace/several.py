"""`-c gpu1,gpu2`: a place in the queue of each machine, and the run goes where it could start first.

The places are held through the channels, so those that are not needed vanish with them; no machine is left with a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.core.errors import DrayError, NotStarted, UsageError, printable
from dray.core.interfaces import Target
from dray.hosts import Connection
from dray.workspace.events import Event, Progress, Said

if TYPE_CHECKING:
    from dray.workspace.facade import Workspace
    from dray.workspace.submission import Submission

_PATIENCE_S = 0.5  # for the first word of those that were named earlier
_TURN_S = 0.05


def names_of(compute: str | None) -> list[str]:
    """The computes that `-c` names."""
    names = [name.strip() for name in (compute or "").split(",")]
    if len(names) > 1 and "" in names:
        raise UsageError(f"`{printable(compute or '')}` leaves a compute without a name", hint="-c gpu1,gpu2")
    if len(set(names)) < len(names):
        raise UsageError(f"`{printable(compute or '')}` names the same compute twice")
    return names


@dataclass(slots=True)
class _Asked:
    """One machine that was asked."""

    target: Target
    connection: Connection
    place: str | None = None
    """Where we stand there; None while it has said nothing."""
    has_turn: bool = False


def first_free(
    workspace: Workspace, wish: Submission, tell: Callable[[Event], None], hidden: Collection[str]
) -> tuple[Target, Connection]:
    """The first of the machines that can start the run, and the channel that holds its place there."""
    targets = [workspace.target(name) for name in names_of(wish.compute)]
    why_not: list[str] = []
    asked: list[_Asked] = []
    chosen: _Asked | None = None
    try:
        for target in targets:
            spec = {"gpus": wish.gpus.asked(target.default_gpus, target.name), "cpus": wish.gpus.cpus}
            try:
                connection = Connection(target.host, target.root, target.python, without=hidden)
                asked.append(_Asked(target, connection))
                connection.ask({"op": "place", "spec": spec})
            except DrayError as trouble:
                asked = [one for one in asked if one.target is not target]
                why_not.append(f"{target.name}: {trouble.what}")
        chosen = _wait(asked, why_not, tell)
    finally:
        for one in asked:
            if one is not chosen:
                one.connection.close()
    tell(Said(f"{chosen.target.name} can start it" + (f" ({'; '.join(why_not)})" if why_not else "")))
    return chosen.target, chosen.connection


def _wait(asked: Sequence[_Asked], why_not: list[str], tell: Callable[[Event], None]) -> _Asked:
    began = time.monotonic()
    left = list(asked)
    while left:
        for one in list(left):
            try:
                _hear(one)
            except DrayError as trouble:
                left.remove(one)
                why_not.append(f"{one.target.name}: {trouble.what}")
        first = next((one for one in left if one.has_turn), None)
        silent = [one for one in left if one.place is None and not one.has_turn]
        if first is not None:
            earlier = [one for one in silent if left.index(one) < left.index(first)]
            if not earlier or time.monotonic() - began > _PATIENCE_S:
                return first
        elif not silent:
            places = ", ".join(f"{one.target.name} ({one.place})" for one in left)
            tell(Progress(f"waiting for {places}", 0, None))
    raise NotStarted("none of the machines can take the run", why="; ".join(why_not))


def _hear(one: _Asked) -> None:
    """What one machine has to say. Raises DrayError when it refuses, or is gone."""
    while one.connection.has_news(_TURN_S):
        header, _ = one.connection.receive()
        if "refused" in header:
            raise DrayError(str(header.get("text") or "it refused"))
        one.has_turn = bool(header.get("turn"))
        if "place" in header:
            one.place = f"place {header['place']} of {header['of']}"
