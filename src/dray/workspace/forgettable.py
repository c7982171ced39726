"""Which runs a cleaning up may forget: what the limits select, and what is spared whatever they say.

Read `choose` first. Plain decisions about records; what it takes to know them comes in as questions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dray.core.durations import show_duration
from dray.store import NoSuchRun

if TYPE_CHECKING:
    from dray.store import RunRecord, Store

KEEP_TAG = "keep"
LIVE = "not over yet"
KEPT = f"tagged `{KEEP_TAG}`"
UNFETCHED = "with outputs that were not fetched"


@dataclass(frozen=True, slots=True)
class Limits:
    """How far to go. Without any of them no run and no environment goes."""

    keep: int | None = None
    """So many of the newest ended runs of each experiment stay."""
    older_than_s: float | None = None
    """Ended runs, and environments not used, for longer than this go."""
    budget: int | None = None
    """Bytes that dray's folder of the compute may take."""
    unfetched: bool = False
    """Runs go even if their outputs were not fetched."""

    @property
    def select_runs(self) -> bool:
        """Whether runs go at all, apart from the budget."""
        return self.older_than_s is not None or (self.keep is not None and self.budget is None)


@dataclass(slots=True)
class Choice:
    """What becomes of the runs of a compute."""

    goes: list[tuple[RunRecord, str]] = field(default_factory=list)
    """With the reason, the oldest first."""
    may_go: list[RunRecord] = field(default_factory=list)
    """For the budget, the oldest first."""
    spared: dict[str, list[str]] = field(default_factory=dict)
    """Reason -> ids of runs that would have gone."""
    newest: list[str] = field(default_factory=list)
    """Runs that stay because of `keep`."""


def choose(store: Store, records: Sequence[RunRecord], limits: Limits) -> Choice:
    """Decide about `records`, all runs of a compute, newest first."""
    choice = Choice()
    if not limits.select_runs and limits.budget is None:
        return choice
    now = time.time()
    rank: Counter[str] = Counter()
    for record in records:
        why = _selected(record, limits, now)
        if record.status.is_ended:
            rank[record.experiment] += 1
            if limits.keep is not None and rank[record.experiment] <= limits.keep:
                choice.newest.append(record.id)
                continue
        if why is None and limits.budget is None:
            continue
        try:
            spared = spared_because(store, record, unfetched=limits.unfetched)
        except NoSuchRun:
            continue  # somebody forgets it in this very moment
        if spared:
            choice.spared.setdefault(spared, []).append(record.id)
        elif why:
            choice.goes.append((record, why))
        else:
            choice.may_go.append(record)
    choice.goes.reverse()
    choice.may_go.reverse()
    return choice


def _selected(record: RunRecord, limits: Limits, now: float) -> str | None:
    """Why the limits select it, apart from the budget."""
    if not limits.select_runs:
        return None
    if limits.older_than_s is None:
        return f"not among the newest {limits.keep}" if limits.keep else "none is to be kept"
    if now - (record.ended or record.created) < limits.older_than_s:
        return None
    return f"older than {round_duration(limits.older_than_s)}"


def round_duration(seconds: float) -> str:
    """30d, and not 30d00h."""
    return show_duration(seconds).removesuffix("00h").removesuffix("00m").removesuffix("00s")


def spared_because(store: Store, record: RunRecord, *, unfetched: bool) -> str | None:
    """Why it stays whatever the limits say; None: it may go."""
    if not record.status.is_ended:
        return LIVE
    kept = store.tags(record.id).get(KEEP_TAG)
    if kept is not None and kept.strip().lower() != "false":
        return KEPT
    if not unfetched and not _is_home(store, record):
        return UNFETCHED
    return None


def _is_home(store: Store, record: RunRecord) -> bool:
    """Whether all outputs of an ended run are on this client, or there are none."""
    if record.imported is not None:
        return True  # there is nothing of it anywhere else
    told: dict[str, Any] = (record.end or {}).get("outputs") or {}
    files = told.get("files") or []
    if not told.get("count") and not files:
        return True
    fetched = store.fetched(record.id)
    same = all(fetched.get(str(path), (None,))[0] == size for path, size in files)
    return same and len(fetched) >= int(told.get("count") or 0)
