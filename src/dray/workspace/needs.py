"""What the runs of the history need of the snapshots' store, so that everything else may go.

A run's code is listed in its manifest: among the blobs, else in its folder on its machine. While neither can be read, every blob
that is older than the run stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray.store import Store
    from dray.store.runs import Code

Tell = Callable[[str, Collection[str]], Mapping[str, Collection[str]] | None]
"""(compute, runs) -> digests of the code of each of those runs that the machine has; None: it cannot be asked."""

_MARGIN_S = 3600.0


class Needs:
    """Grows with `learn`, and never shrinks."""

    def __init__(self, store: Store, tell: Tell, leave_out: Collection[str] = ()) -> None:
        """`leave_out`: runs whose needs do not count, because they are to be forgotten."""
        self._store = store
        self._home = str(store.home)
        self._tell = tell
        self._leave_out = frozenset(leave_out)
        self._digests: set[str] = set()
        self._snapshots: set[str] = set()
        self._seen = 0
        self._before = 0.0
        self.unknown: list[str] = []
        """Runs of which nobody could tell what they need."""

    def learn(self, more: Iterable[str] = ()) -> None:
        """Take in all runs, asking machines where it must be; and `more` digests."""
        self._digests.update(more)
        asked: dict[str, list[Code]] = {}
        for code in self._new():
            if code.is_imported or not code.snapshot:
                continue  # its manifest has come along, or there is none
            asked.setdefault(code.compute, []).append(code)
        for compute, codes in asked.items():
            told = self._tell(compute, [code.id for code in codes])
            for code in codes:
                if told is not None and code.id in told:
                    self._digests.update(told[code.id])
                elif told is None or not code.is_ended:
                    self._keep_older_than(code)
                # else: it has ended, and its list of files is nowhere: no blob can serve it any more

    def learn_at_once(self) -> bool:
        """Take in the runs that have come since, if that needs no machine; else False, and `learn` is to be called again."""
        if not self._store.is_in_place():
            raise HistoryReplaced
        seen = self._seen
        if any(self._new()):
            self._seen = seen
            return False
        return True

    def has(self, digest: str, written: float) -> bool:
        """Whether a run needs, or may need, the blob that was written then."""
        return digest in self._digests or written <= self._before

    def _new(self) -> list[Code]:
        """The runs that have come since, without those whose manifest is here, which is taken in."""
        from dray.snapshot import unused

        unclear = []
        for code in self._store.code_since(self._seen):
            self._seen = code.number
            if code.id in self._leave_out or code.snapshot in self._snapshots:
                continue
            found = unused.needs(self._home, code.snapshot) if code.snapshot else None
            if found is None:
                unclear.append(code)
            else:
                self._snapshots.add(code.snapshot)
                self._digests.update(found)
        return unclear

    def _keep_older_than(self, code: Code) -> None:
        self._before = max(self._before, code.created + _MARGIN_S)
        self.unknown.append(code.id)


class HistoryReplaced(Exception):
    """There is another history in the place of the one that we read."""
