"""Asks every machine with active runs how they stand, all at once: one that is away holds up nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dray.core.errors import DrayError
from dray.store import RunRecord
from dray.workspace.following import look

if TYPE_CHECKING:
    from dray.workspace.facade import Workspace

_SPARE_S = 0.3  # for what is done after the last answer


def refresh(workspace: Workspace, within_s: float) -> list[str]:
    """Take in the states of active runs; returns sentences about machines that did not answer in time."""
    by_compute: dict[str, list[RunRecord]] = {}
    for record in workspace.store.runs(active=True):
        by_compute.setdefault(record.compute, []).append(record)
    asked = [_Asked(workspace, compute, records, within_s) for compute, records in by_compute.items()]
    if len(asked) == 1 and workspace.readable_root(asked[0].compute):
        asked[0].ask()  # this machine alone, as with most people: not worth a thread
    else:
        deadline = time.monotonic() + within_s + _SPARE_S
        for one in asked:
            # A thread that waits for a dead link must not keep the process alive.
            one.thread = threading.Thread(target=one.ask, daemon=True)
            one.thread.start()
        for one in asked:
            assert one.thread is not None
            one.thread.join(max(0.0, deadline - time.monotonic()))
    return [said for one in asked if (said := one.verdict())]


class _Asked:
    """One machine and its active runs."""

    def __init__(
        self, workspace: Workspace, compute: str, records: Sequence[RunRecord], within_s: float
    ) -> None:
        self.compute = compute
        self.thread: threading.Thread | None = None
        self._workspace = workspace
        self._store = workspace.store
        self._records = list(records)
        self._within_s = within_s
        self._done = False
        self._remark: str | None = None
        self._trouble: str | None = None
        self._given_up = False

    def ask(self) -> None:
        """Ask, and take the answers in."""
        try:
            with self._workspace.connect(self.compute) as connection:
                is_all = look(self._store, connection, self._records, self._within_s)
            self._done = True
            if not is_all:
                self._remark = f"there was more to read than {self._within_s:g} s allow"
        except DrayError as trouble:
            self._trouble = trouble.what + (f" ({trouble.why})" if trouble.why else "")
        except Exception:
            if not self._given_up:  # else the history was closed meanwhile, and nobody waits for us
                raise

    def verdict(self) -> str | None:
        """What to say about it; None when it has told all."""
        if self._done:
            return f"{self.compute}: {self._remark}" if self._remark else None
        self._given_up = True
        trouble = self._trouble or f"no answer within {self._within_s:g} s"
        for record in self._records:
            self._store.looked(record.id, record.as_of or time.time(), unreachable=trouble)
        return f"{self.compute}: {trouble}"
