"""Carries a cleaning up out: looks at each thing again before it goes, because others work meanwhile.

Read `Clearing.do`, and `_clear_some` for what makes it safe (decision 0016). Whatever is cut here is taken up by the next time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dray.runner import gate
from dray.store import NoSuchRun
from dray.workspace.asking import Asking
from dray.workspace.cleaning import Cleaning
from dray.workspace.cleanup import CleanUp
from dray.workspace.events import Event, Progress
from dray.workspace.forgettable import LIVE, Limits, spared_because
from dray.workspace.needs import HistoryReplaced, Needs

if TYPE_CHECKING:
    from dray.snapshot.unused import Blob, Leftover
    from dray.workspace.facade import Workspace

_SLICE_S = 0.02  # how long a submit may have to wait for us
_PATIENCE_S = 5.0
_VAIN_TRIES = 50
_AT_ONCE = 5000
_AGAIN = "others submit faster than it can be told what they need"


def clean_up(
    workspace: Workspace,
    compute: str,
    limits: Limits,
    *,
    dry_run: bool,
    agree: Callable[[CleanUp], bool],
    on: Callable[[Event], None],
) -> CleanUp:
    """Plan, have it agreed to, and do it."""
    with Asking(workspace, compute) as asking:
        cleaning = Cleaning(workspace, asking, limits)
        on(Progress(f"looking at {compute}", 0, None))
        result = cleaning.plan(dry_run=dry_run)
        if not dry_run and agree(result):
            Clearing(workspace, asking, cleaning, limits.unfetched, result, on).do()
    return result


class Clearing:
    """The doing of one plan."""

    def __init__(
        self,
        workspace: Workspace,
        asking: Asking,
        cleaning: Cleaning,
        unfetched: bool,
        result: CleanUp,
        on: Callable[[Event], None],
    ) -> None:
        self._store = workspace.store
        self._home = str(workspace.store.home)
        self._asking = asking
        self._plan = cleaning
        self._unfetched = unfetched
        self._result = result
        self._on = on
        self._freed = 0

    def do(self) -> None:
        """First the runs, so that what only they needed can go with them."""
        try:
            for count, (run_id, size) in enumerate(self._plan.runs.items()):
                self._on(Progress("forgetting runs", count, len(self._plan.runs)))
                trouble = self._forget(run_id)
                if trouble:
                    self._result.keep(trouble, f"run {run_id}")
                else:
                    self._freed += size
            self._take_things()
            for left in self._plan.leftovers:
                self._unlink(left)
            self._clear_blobs()
        finally:
            self._result.freed = self._freed

    def _forget(self, run_id: str) -> str | None:
        """Forget a run. Returns why it stays, if it does."""
        try:
            record = self._store.run(run_id)
            spared = spared_because(self._store, record, unfetched=self._unfetched)
            if spared:
                return spared
            if record.imported is None and "refused" in self._asking.call({"op": "remove", "run": run_id}):
                return LIVE
            self._store.remove(run_id)
        except NoSuchRun:
            pass  # somebody was faster
        return None

    def _take_things(self) -> None:
        keys = list(self._plan.things)
        for start in range(0, len(keys), _AT_ONCE):
            self._on(Progress(f"removing on {self._asking.compute}", start, len(keys)))
            for answer, _ in self._asking.all({"op": "gc", "take": keys[start : start + _AT_ONCE]}):
                for kind, name in answer.get("gone", ()):
                    self._freed += self._plan.things.get((str(kind), str(name)), 0)
                for kind, name, why in answer.get("kept", ()):
                    self._result.keep(str(why), f"{kind} {name}")

    def _unlink(self, left: Leftover) -> None:
        try:
            os.unlink(left.path)
            self._freed += left.bytes
        except FileNotFoundError:
            return
        except OSError as trouble:
            self._result.keep(trouble.strerror or str(trouble), left.path)

    # -- the blobs of this client

    def _clear_blobs(self) -> None:
        """Remove the blobs that no run needs, a few at a time."""
        from dray.snapshot import unused

        needs = self._asking.needs(self._plan.strangers)
        doomed = [blob for blob in unused.blobs(self._home) if not needs.has(blob.digest, blob.written)]
        total, vain = len(doomed), 0
        while doomed:
            self._on(Progress("removing contents that no run needs", total - len(doomed), total))
            why = self._clear_some(doomed, needs)
            if why == _AGAIN and vain < _VAIN_TRIES:
                vain += 1
                needs.learn()
            elif why is not None:
                self._result.keep(why, f"blobs: {len(doomed)}")
                return
            time.sleep(0.005)  # who waits at the gate comes first

    def _clear_some(self, doomed: list[Blob], needs: Needs) -> str | None:
        """Work some of `doomed` off, alone in the gate and with the newest runs known. Returns why it could not be done."""
        try:
            held = gate.enter_alone(self._home, _PATIENCE_S)
        except OSError as trouble:
            return f"the home cannot be locked ({trouble.strerror or trouble})"
        if held is None:
            return "runs are just being submitted"
        try:
            if not needs.learn_at_once():
                return _AGAIN
            until = time.monotonic() + _SLICE_S
            while doomed and time.monotonic() < until:
                self._remove_blob(doomed.pop(), needs)
        except HistoryReplaced:
            return "the history was replaced meanwhile"
        finally:
            gate.leave(held)
        return None

    def _remove_blob(self, blob: Blob, needs: Needs) -> None:
        from dray.snapshot import unused

        if needs.has(blob.digest, blob.written):
            return
        try:
            unused.remove(self._home, blob.digest)
            self._freed += blob.bytes
        except FileNotFoundError:
            return
        except OSError as trouble:
            self._result.keep(trouble.strerror or str(trouble), f"blob {blob.digest[:12]}")
