"""Decides what a cleaning up takes, on this client and on the machine of one compute; `clearing` then does it.

Read `Cleaning.plan`. Without limits only what nothing refers to goes. Why no run and no submit can lose what it uses: decision 0016.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dray.core.durations import show_bytes
from dray.runner.files import tree_bytes
from dray.store import HomeReadOnly
from dray.workspace.asking import Asking, things
from dray.workspace.cleanup import CleanUp
from dray.workspace.forgettable import Choice, Limits, choose, round_duration

if TYPE_CHECKING:
    from dray.snapshot.unused import Leftover
    from dray.store import RunRecord
    from dray.workspace.facade import Workspace

_CACHED_S = 86400.0
_SUBMITTING_S = 3600.0
_REFRESH_S = 10.0
_ORDER = ("run", "environment", "image", "runner", "tombstones", "leftovers", "blobs")
_MADE = ("environment", "image")  # what is made again when a run needs it
_NEEDLESS = "no run needs them"
_KILLED = "half-written by a killed submit"

Thing = Mapping[str, Any]
"""As the machine tells it: kind, name, bytes, used, busy."""


class Cleaning:
    """The plan of one cleaning up."""

    def __init__(self, workspace: Workspace, asking: Asking, limits: Limits) -> None:
        self._workspace = workspace
        self._asking = asking
        self._target = workspace.target(asking.compute)
        self._store = workspace.store
        self._home = str(self._store.home)
        self._limits = limits
        self._sizes: dict[str, int] = {}
        self.strangers: list[str] = []
        """Run folders of this very machine that the history does not know."""
        self.runs: dict[str, int] = {}
        """Runs that are to be forgotten, and their bytes."""
        self.things: dict[tuple[str, str], int] = {}
        """Kind and name of what is to go on the machine, and its bytes."""
        self.leftovers: list[Leftover] = []
        """Files that are to go here."""

    def plan(self, *, dry_run: bool) -> CleanUp:
        """Decide what goes; removes nothing. Raises HomeReadOnly when it could not be carried out anyway."""
        if self._store.is_writable:
            self._workspace.refresh(_REFRESH_S)
        elif not dry_run:
            raise HomeReadOnly(self._store.home)
        result = CleanUp(self._target.name, dry_run, budget=self._limits.budget)
        records = self._records()
        choice = choose(self._store, records, self._limits)
        is_measured = self._limits.budget is not None
        there = self._look(True if is_measured else [record.id for record, _ in choice.goes])
        for record, why in choice.goes:
            self._forget(record, why, result)
        self._without_limit(there, {r.id for r in records if r.status.is_ended}, result)
        if is_measured:
            result.used = self._used(there)
            self._keep_to_budget(choice, there, result)
        self._blobs(result)
        if self._limits.select_runs or result.over:
            result.spared = choice.spared
        if result.over:
            self._excuse(choice, there, result)
        result.goes.sort(key=lambda thing: _ORDER.index(thing.kind))
        return result

    def _records(self) -> list[RunRecord]:
        """The runs of this compute, newest first; those that came in from elsewhere belong to this client."""
        name, is_here = self._target.name, self._target.is_here
        return [
            record
            for record in self._store.runs()
            if (is_here if record.imported is not None else record.compute == name)
        ]

    def _look(self, sizes: Any) -> list[Thing]:
        """What there is on the machine."""
        answers = [answer for answer, _ in self._asking.all({"op": "gc", "sizes": sizes})]
        self._sizes = {str(a["run"]): int(a["bytes"]) for a in answers if "run" in a}
        if self._target.is_here:
            known = {code.id for code in self._store.code_since()}
            there = [str(run) for answer in answers for run in answer.get("runs", ())]
            self.strangers = [run for run in there if run not in known]
        return list(things(answers))

    # -- without any limit

    def _without_limit(self, there: Sequence[Thing], ended: Collection[str], result: CleanUp) -> None:
        now = time.time()
        for thing in there:
            why = None if thing.get("busy") else self._why(thing, now)
            if why:
                self._take(thing, why, result)
        old = [t for t in there if t["kind"] == "blob" and t["used"] < now - _CACHED_S]
        self._take_all("blobs", old, f"{_NEEDLESS} on {self._target.name}", result)
        left = [t for t in there if t["kind"] == "leftover"]
        self._take_all("leftovers", left, "left by killed processes", result)
        graves = [t for t in there if t["kind"] == "tombstone" and t["name"] in ended]
        self._take_all("tombstones", graves, "of runs not started, over 30 days ago", result)
        from dray.snapshot import unused

        self.leftovers = [*unused.leftovers(self._home), *self._dead_submits()]
        for why in dict.fromkeys(left.why for left in self.leftovers):
            some = [left.bytes for left in self.leftovers if left.why == why]
            self._go_here("leftovers", some, why, result)

    def _why(self, thing: Thing, now: float) -> str | None:
        """Why an environment, an image or a runner version goes without a budget."""
        if thing["kind"] == "runner":
            return "of another version of dray"
        if thing["kind"] not in _MADE:
            return None
        if not thing.get("complete"):
            return "never finished"
        age_s = self._limits.older_than_s
        return (
            f"not used for {round_duration(age_s)}"
            if age_s is not None and thing["used"] < now - age_s
            else None
        )

    def _dead_submits(self) -> Iterator[Leftover]:
        """Marks of submits whose client was killed."""
        from dray.core.ids import PATTERN
        from dray.snapshot.unused import Leftover

        folder = os.path.join(self._home, "submitting")
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            if PATTERN.fullmatch(name) and os.path.isfile(path) and not os.path.islink(path):
                is_old = os.stat(path).st_mtime < time.time() - _SUBMITTING_S
                if is_old and not self._store.is_submitting(name):
                    yield Leftover(path, 0, _KILLED)

    def _blobs(self, result: CleanUp) -> None:
        """What the runs that stay do not need."""
        from dray.snapshot import unused

        needs = self._asking.needs(self.strangers, leave_out=self.runs)
        doomed = [blob for blob in unused.blobs(self._home) if not needs.has(blob.digest, blob.written)]
        if doomed:
            self._go_here("blobs", [blob.bytes for blob in doomed], _NEEDLESS, result)
        if needs.unknown:
            count = len(needs.unknown)
            whose = f"run {needs.unknown[0]} needs" if count == 1 else f"{count} runs need"
            result.notes.append(f"nobody can tell now what {whose}: blobs that are older stay")

    def _go_here(self, kind: str, sizes: Sequence[int], why: str, result: CleanUp) -> None:
        result.add(kind, "", sum(sizes), why, len(sizes))
        result.uncounted += 0 if self._target.is_here else sum(sizes)

    # -- the budget

    def _keep_to_budget(self, choice: Choice, there: Sequence[Thing], result: CleanUp) -> None:
        """Take more until it is enough: what comes back by itself, environments, runs; of each the oldest first."""
        why = f"to fit into {show_bytes(result.budget or 0)}"
        by_age = sorted((t for t in there if not t.get("busy")), key=lambda thing: thing.get("used", 0.0))
        trial = dataclasses.replace(result, goes=[*result.goes], notes=[])
        self._blobs(trial)  # these go in any case; they are counted again when it is known which runs stay
        missing = trial.over
        if missing > 0:
            missing -= self._take_all("blobs", [t for t in by_age if t["kind"] == "blob"], why, result)
        for thing in by_age:
            if missing > 0 and thing["kind"] in _MADE:
                missing -= self._take(thing, why, result)
        for record in choice.may_go:
            if missing > 0:
                missing -= self._forget(record, why, result)

    def _excuse(self, choice: Choice, there: Sequence[Thing], result: CleanUp) -> None:
        """Say what the budget cannot reach, beside the runs that are spared."""
        used = sum(1 for t in there if t["kind"] == "environment" and t.get("busy"))
        for why, count in (
            ("runs stay because of --keep", len(choice.newest)),
            ("environments are in use", used),
            ("run folders are not in the history: dray rebuild", len(self.strangers)),
        ):
            if count:
                result.notes.append(f"{why} ({count})")

    def _used(self, there: Sequence[Thing]) -> int:
        """Bytes of dray's folder there; on this machine with all of the home."""
        if not self._target.is_here:
            return sum(int(thing["bytes"]) for thing in there) + sum(self._sizes.values())
        home = os.path.realpath(self._home)
        used = tree_bytes(home)
        if self._target.root is not None:
            root = os.path.realpath(self._target.root)
            if not root.startswith(home + os.sep):
                used += tree_bytes(root)
        return used

    # -- into the plan

    def _forget(self, record: RunRecord, why: str, result: CleanUp) -> int:
        size = self._sizes.get(record.id) or tree_bytes(os.path.join(self._home, "logs", record.id))
        self.runs[record.id] = size
        result.add("run", f"{record.id} {record.name}" if record.name else record.id, size, why)
        return size

    def _take(self, thing: Thing, why: str, result: CleanUp) -> int:
        key, size = (str(thing["kind"]), str(thing["name"])), int(thing["bytes"])
        if key in self.things:
            return 0
        self.things[key] = size
        result.add(*key, size, why)
        return size

    def _take_all(self, kind: str, some: Sequence[Thing], why: str, result: CleanUp) -> int:
        fresh = {(str(t["kind"]), str(t["name"])): int(t["bytes"]) for t in some}
        fresh = {key: size for key, size in fresh.items() if key not in self.things}
        if fresh:
            self.things.update(fresh)
            result.add(kind, "", sum(fresh.values()), why, len(fresh))
        return sum(fresh.values())
