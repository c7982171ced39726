"""The layout of history.db, as the steps that make it. A step that was released is never edited; add another one.

run       one row a run: what is asked of it most, beside its spec
ending    end.json of each attempt
stream    what has been read of each stream: the cursor (`offset`), the time of its first line (`opened`)
series    one metric of one stream; `last_*` spare a look into the blocks
block     a piece of a series: `n` points from ordinal `first` on, packed as `points.py` says
event     every line that is no metric; `data` is JSON
broken    lines that are none; the first bytes of each
leftover  removed runs whose log files may still be there
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

APPLICATION_ID = 0x64726179  # "dray", so that another program's database is not taken for ours


def _first_layout(db: sqlite3.Connection) -> None:
    for statement in (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE run (
            nr INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT, experiment TEXT NOT NULL,
            compute TEXT NOT NULL, created REAL NOT NULL, spec TEXT NOT NULL, state TEXT NOT NULL, reason TEXT,
            attempts INTEGER NOT NULL DEFAULT 0, pid INTEGER, exit_code INTEGER, signal INTEGER,
            started REAL, ended REAL, duration_s REAL, host TEXT, environment TEXT, ending TEXT,
            complete INTEGER NOT NULL DEFAULT 0, as_of REAL, unreachable TEXT)""",
        "CREATE INDEX run_by_time ON run (created)",
        "CREATE INDEX run_by_experiment ON run (experiment, created)",
        "CREATE INDEX run_by_state ON run (state, created)",
        "CREATE INDEX run_by_name ON run (name) WHERE name IS NOT NULL",
        """CREATE TABLE ending (
            run INTEGER NOT NULL, attempt INTEGER NOT NULL, data TEXT NOT NULL,
            PRIMARY KEY (run, attempt)) WITHOUT ROWID""",
        """CREATE TABLE stream (
            nr INTEGER PRIMARY KEY, run INTEGER NOT NULL, attempt INTEGER NOT NULL, name TEXT NOT NULL,
            "offset" INTEGER NOT NULL, opened REAL, UNIQUE (run, attempt, name))""",
        """CREATE TABLE series (
            nr INTEGER PRIMARY KEY, run INTEGER NOT NULL, stream INTEGER NOT NULL, name TEXT NOT NULL,
            n INTEGER NOT NULL, low REAL, high REAL, last_step INTEGER, last_time REAL, last_value REAL,
            UNIQUE (stream, name))""",
        "CREATE INDEX series_by_run ON series (run, name)",
        """CREATE TABLE block (
            series INTEGER NOT NULL, "first" INTEGER NOT NULL, n INTEGER NOT NULL, low REAL, high REAL,
            encoding INTEGER NOT NULL, steps BLOB NOT NULL, times BLOB NOT NULL, "values" BLOB NOT NULL,
            PRIMARY KEY (series, "first"))""",
        """CREATE TABLE event (
            stream INTEGER NOT NULL, pos INTEGER NOT NULL, run INTEGER NOT NULL, kind TEXT NOT NULL,
            t REAL NOT NULL, data TEXT NOT NULL, PRIMARY KEY (stream, pos))""",
        "CREATE INDEX event_by_kind ON event (run, kind)",
        """CREATE TABLE broken (
            stream INTEGER NOT NULL, pos INTEGER NOT NULL, run INTEGER NOT NULL, length INTEGER NOT NULL,
            why TEXT NOT NULL, head BLOB NOT NULL, PRIMARY KEY (stream, pos))""",
        "CREATE INDEX broken_by_run ON broken (run)",
        "CREATE TABLE leftover (id TEXT PRIMARY KEY) WITHOUT ROWID",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ):
        db.execute(statement)


STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first_layout,)
LATEST = len(STEPS)


def migrate(db: sqlite3.Connection, writer: str) -> None:
    """Bring the layout up to date, each step in a transaction of its own; `writer` is our version, for later readers."""
    while True:
        db.execute("BEGIN IMMEDIATE")
        try:
            # Asked again under the lock: another process may have been faster.
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version < LATEST:
                STEPS[version](db)
                db.execute("INSERT OR REPLACE INTO meta VALUES ('writer', ?)", (writer,))
                db.execute(f"PRAGMA user_version = {version + 1}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        if version + 1 >= LATEST:
            return
