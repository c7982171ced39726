"""What happens while a run is submitted and followed, as the caller sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dray.core.states import RunState
from dray.store import RunRecord


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes of a log, in order and each exactly once."""

    stream: str
    attempt: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The run has got further."""

    state: RunState
    more: Mapping[str, Any] = field(default_factory=dict)
    """What the machine said with it: of a queued run its place, of how many, what it wants, and who has that."""


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Something that may take a while: `done` of `total` (bytes or files)."""

    what: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Served:
    """The run serves a port that is brought here, from now on."""

    port: int
    """Of the run."""
    url: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has ended, and all it said is here."""

    record: RunRecord


Event: TypeAlias = Output | StateChanged | Said | Progress | Ended | Served
