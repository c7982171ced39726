"""A few words out of a history, to complete what somebody types: quick, only reading, and silent about every trouble.

Unlike `Store` it makes nothing, mends nothing and waits for nobody: a history that is missing, damaged, of another version
or locked has no words.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dray.store import migrations, newest, runs

if TYPE_CHECKING:
    from dray.core.where_tree import Field

_T = TypeVar("_T")

MOST = 200
NEWEST = 50
"""So many are offered to somebody who has not typed a letter yet."""
_WAIT_S = 0.05
_STEPS_AT_ONCE, _MOST_STEPS = 100_000, 40  # of SQLite's machine: some tenths of a second at the most


class Peek:
    """Asks the history in `home`; every answer may be empty."""

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, "history.db")
        self._computes = os.path.join(home, "computes")
        self._db: sqlite3.Connection | None = None

    def runs(self, prefix: str) -> list[tuple[str, str | None]]:
        """Ids and names of runs of which either begins so, the newest first."""
        return self._asked(lambda db: runs.begun_with(db, prefix, MOST if prefix else NEWEST))

    def names(self, family: str, prefix: str) -> list[str]:
        """Names of metrics, params or tags."""
        return self._asked(lambda db: newest.names(db, family.removesuffix("s"), prefix, MOST))

    def values(self, field: Field, prefix: str) -> list[tuple[str, int]]:
        """Values of a field, with how many runs have each; the most common first."""
        from dray.store import values

        return self._asked(lambda db: values.common(db, field, prefix, MOST))

    def metrics_of(self, word: str) -> list[str]:
        """Names of the metrics of the run that `word` means."""

        def asked(db: sqlite3.Connection) -> list[str]:
            run_id = runs.find(db, word).id
            (run,) = db.execute("SELECT nr FROM run WHERE id = ?", (run_id,)).fetchone()
            return list(newest.latest(db, [run])[run])

        return self._asked(asked)

    def computes(self) -> list[str]:
        """Names and second names of what was attached."""
        try:
            names = sorted(os.listdir(self._computes))
        except OSError:
            return []
        return [
            name.removesuffix(".compute") for name in names if name.endswith(".compute") and name[0] != "."
        ]

    def close(self) -> None:
        """Let go of the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _asked(self, question: Callable[[sqlite3.Connection], list[_T]]) -> list[_T]:
        try:
            if self._db is None:
                self._db = _opened(self._path)
            return question(self._db)
        except Exception:  # whatever it is: nobody who presses a key wants to read of it
            return []


def _opened(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(Path(path).absolute().as_uri() + "?mode=ro", timeout=_WAIT_S, uri=True)
    steps = iter(range(_MOST_STEPS))
    # Returning true ends the question: late words help nobody.
    db.set_progress_handler(lambda: next(steps, None) is None, _STEPS_AT_ONCE)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if (application, version) != (migrations.APPLICATION_ID, migrations.LATEST):
        db.close()
        raise ValueError(path)
    return db
