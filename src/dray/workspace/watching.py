"""Keeps what the history knows of active runs fresh: states, ends and metrics, each machine asked about once a second.

One thread for each machine, so that one that is away holds up none of the others. Nothing is shown here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dray.core.errors import DrayError
from dray.hosts import Connection
from dray.store import RunRecord, StoreError
from dray.workspace.following import look

if TYPE_CHECKING:
    from dray.workspace.facade import Workspace

EVERY_S = 1.0
_PATIENCE_S = 10.0
_LONGEST_PAUSE_S = 30.0


class Watching:
    """While it is open, tell it by `keep_fresh` which runs matter; read the history for how they are."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._store = workspace.store
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._wanted: dict[str, list[RunRecord]] = {}
        self._troubles: dict[str, str] = {}
        self._threads: dict[str, threading.Thread] = {}

    @property
    def troubles(self) -> dict[str, str]:
        """Why a compute does not answer at the moment, by its name."""
        with self._lock:
            return dict(self._troubles)

    def keep_fresh(self, records: list[RunRecord]) -> None:
        """Ask after these runs from now on, and after no others."""
        wanted: dict[str, list[RunRecord]] = {}
        for record in records:
            wanted.setdefault(record.compute, []).append(record)
        with self._lock:
            self._wanted = wanted
            for compute in wanted.keys() - self._threads.keys():
                self._threads[compute] = threading.Thread(target=self._ask, args=(compute,), daemon=True)
                self._threads[compute].start()

    def close(self) -> None:
        """Ask no more. A machine that does not answer is not waited for."""
        self._over.set()
        with self._lock:
            threads = list(self._threads.values())
        deadline = time.monotonic() + EVERY_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, compute: str) -> None:
        """One machine, over one connection for as long as that holds."""
        connection: Connection | None = None
        pause = EVERY_S
        try:
            while not self._over.is_set():
                records = self._records(compute)
                if not records:
                    return
                try:
                    connection = connection or self._workspace.connect(compute)
                    is_all = look(self._store, connection, records, _PATIENCE_S)
                    trouble, pause = None, EVERY_S
                    if not is_all:  # so much has been logged: the rest is asked for anew
                        connection.close()
                        connection = None
                except (DrayError, OSError) as error:
                    trouble = error.what if isinstance(error, DrayError) else str(error)
                    pause = min(pause * 2, _LONGEST_PAUSE_S)
                    if connection is not None:
                        connection.close()
                        connection = None
                    self._note(records, trouble)
                with self._lock:
                    self._troubles.pop(compute, None)
                    if trouble is not None:
                        self._troubles[compute] = trouble
                self._over.wait(pause)
        finally:
            if connection is not None:
                connection.close()

    def _records(self, compute: str) -> list[RunRecord]:
        """What is to be asked there; when that is nothing, the thread is given up in the same step."""
        with self._lock:
            records = self._wanted.get(compute, [])
            if not records:
                self._threads.pop(compute, None)
                self._troubles.pop(compute, None)
            return records

    def _note(self, records: list[RunRecord], trouble: str) -> None:
        for record in records:
            with contextlib.suppress(StoreError):  # it was removed meanwhile, or the disk is full
                self._store.looked(record.id, record.as_of or time.time(), unreachable=trouble)
