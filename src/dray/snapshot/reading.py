"""Reads many files at once: a few threads share the work, because hashing and reading let go of the interpreter's lock."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from dray.snapshot.blobs import MayNotRead, NoFileAnyMore
from dray.snapshot.plans import FileRow

_T = TypeVar("_T")

_BIG = 1 << 20
_THREADS = 4
_EVERY_S = 0.1


def read_all(
    rows: Sequence[FileRow],
    act: Callable[[FileRow, Callable[[int], None]], _T],
    told: Callable[[int], None] | None,
) -> tuple[list[_T], list[str], list[str]]:
    """Call `act` for each of `rows`: (results in no order, paths that are no files any more, paths we may not read).

    `told` hears now and then how many bytes are done, in the caller's thread. The first other error ends it and is raised.
    """
    # Making many small files at once only makes them wait for each other in the file system; measured 3 x slower.
    # The biggest first, so that no thread is left with one at the end.
    big = sorted((row for row in rows if row[1] >= _BIG), key=lambda row: -row[1])
    small = [row for row in rows if row[1] < _BIG]
    work = _Work(act, told)
    work.run_in_threads(big)
    work.run(iter(small))
    if work.error is not None:
        raise work.error
    return work.results, work.vanished, work.forbidden


class _Work(Generic[_T]):
    def __init__(
        self, act: Callable[[FileRow, Callable[[int], None]], _T], told: Callable[[int], None] | None
    ) -> None:
        self.act = act
        self.told = told
        self.results: list[_T] = []
        self.vanished: list[str] = []
        self.forbidden: list[str] = []
        self.error: BaseException | None = None
        self.done = 0
        self._counting = threading.Lock()
        self._told_at = 0.0
        self._caller = threading.current_thread()

    def run(self, rows: Iterator[FileRow]) -> None:
        """Take rows until there are none left, or until somebody met an error. The iterator of a list may be shared."""
        for row in rows:
            if self.error is not None:
                return
            try:
                self.results.append(self.act(row, self._count))
            except NoFileAnyMore:
                self.vanished.append(row[0])
            except MayNotRead:
                self.forbidden.append(row[0])
            except BaseException as error:
                self.error = self.error or error
                return

    def run_in_threads(self, rows: list[FileRow]) -> None:
        """The same in a few threads; an interrupt of the caller stops them all."""
        left = iter(rows)
        threads = [
            threading.Thread(target=self.run, args=(left,), name="dray-snapshot", daemon=True)
            for _ in range(min(_THREADS, os.cpu_count() or 1, len(rows)))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(_EVERY_S)
                    self._tell()
        except BaseException as error:
            self.error = error
            for thread in threads:
                thread.join()
            raise

    def _tell(self) -> None:
        now = time.monotonic()
        if self.told is not None and now - self._told_at >= _EVERY_S:
            self._told_at = now
            self.told(self.done)

    def _count(self, read: int) -> None:
        """`read` more bytes are done. Raises in the middle of a big file when others have given up."""
        if self.error is not None:
            raise InterruptedError("another file could not be stored")
        with self._counting:
            self.done += read
        if threading.current_thread() is self._caller:
            self._tell()
