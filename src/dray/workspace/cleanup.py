"""What a cleaning up takes, and what it leaves: plain data, for the command line and for Python."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Goes:
    """One thing, or many of a kind, that goes."""

    kind: str
    """run, environment, runner, blobs, leftovers, tombstones."""
    what: str
    bytes: int
    """On the disk."""
    why: str
    count: int = 1


@dataclass(slots=True)
class CleanUp:
    """What goes, or has gone, and what stayed though it was meant to go."""

    compute: str
    dry_run: bool
    goes: list[Goes] = field(default_factory=list)
    spared: dict[str, list[str]] = field(default_factory=dict)
    """Why -> runs that the limits select, and that stay all the same."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what could not be told."""
    kept: dict[str, list[str]] = field(default_factory=dict)
    """Why -> what was to go and stayed: somebody uses it now, or it cannot be removed."""
    used: int | None = None
    """Bytes that dray takes, before; known when there is a budget."""
    budget: int | None = None
    uncounted: int = 0
    """Bytes that go on this client, while the budget is for another machine."""
    freed: int | None = None
    """Bytes that are gone; None: nothing was tried, because of `dry_run` or because the answer was no."""

    def add(self, kind: str, what: str, bytes: int, why: str, count: int = 1) -> None:
        """Put something into the plan."""
        self.goes.append(Goes(kind, what, bytes, why, count))

    def keep(self, why: str, what: str) -> None:
        """It stays, though it was to go."""
        self.kept.setdefault(why, []).append(what)

    @property
    def bytes(self) -> int:
        """All that goes."""
        return sum(thing.bytes for thing in self.goes)

    @property
    def over(self) -> int:
        """Bytes above the budget that will stay."""
        if self.used is None or self.budget is None:
            return 0
        return max(0, self.used - (self.bytes - self.uncounted) - self.budget)

    def to_json(self) -> dict[str, Any]:
        """The document of `dray gc --json`."""
        things = [dataclasses.asdict(thing) for thing in self.goes]
        return {
            "compute": self.compute,
            "dry_run": self.dry_run,
            "goes": things,
            "bytes": self.bytes,
            "spared": [{"why": why, "runs": runs} for why, runs in self.spared.items()],
            "kept": [{"why": why, "what": names} for why, names in self.kept.items()],
            "notes": self.notes,
            "used": self.used,
            "budget": self.budget,
            "over": self.over,
            "freed": self.freed,
        }
