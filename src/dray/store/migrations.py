"""The layout of history.db, as the steps that make it. A step that was released is never edited; add another one.

run       one row a run: what is asked of it most, beside its spec
ending    end.json of each attempt
stream    what has been read of each stream: the cursor (`offset`), the time of its first line (`opened`)
series    one metric of one stream; `last_*` spare a look into the blocks
block     a piece of a series: `n` points from ordinal `first` on, packed as `points.py` says; `total` is their sum, if known
event     every line that is no metric; `data` is JSON
broken    lines that are none; the first bytes of each
leftover  removed runs whose log files may still be there

word      names of metrics, parameters and tags, each once
metric    summary of one metric of a run, all its streams together; `stream` is the one that `last_*` came from
param     the last value of a parameter: `kind` says what it was ("s"tring, "n"umber, "b"oolean, "-" null)
tag       the value of a tag that counts: an edit's, else the script's (`stream`), else the one given at submit
edit      what people said afterwards; applied to run.name, run.note and tag

run.imported   when the run came in from an export: then no machine is ever asked about it
fetched   the outputs that were brought home, each with the size and digest it had
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

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


def _newest_values(db: sqlite3.Connection) -> None:
    """Layout 2: tables of what holds now, filled from what was said, and what people say afterwards."""
    for statement in (
        "ALTER TABLE run ADD COLUMN note TEXT",
        "ALTER TABLE run ADD COLUMN reason_kind TEXT",
        "ALTER TABLE block ADD COLUMN total REAL",
        "CREATE TABLE word (nr INTEGER PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL, UNIQUE (kind, text))",
        """CREATE TABLE metric (
            name INTEGER NOT NULL, run INTEGER NOT NULL, stream INTEGER NOT NULL, n INTEGER NOT NULL, low REAL, high REAL,
            last_step INTEGER, last_time REAL, last_value REAL, PRIMARY KEY (name, run)) WITHOUT ROWID""",
        "CREATE INDEX metric_by_run ON metric (run)",
        """CREATE TABLE param (
            name INTEGER NOT NULL, run INTEGER NOT NULL, stream INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT, number,
            PRIMARY KEY (name, run)) WITHOUT ROWID""",
        "CREATE INDEX param_by_run ON param (run)",
        """CREATE TABLE tag (
            name INTEGER NOT NULL, run INTEGER NOT NULL, stream INTEGER, value TEXT, edited INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (name, run)) WITHOUT ROWID""",
        "CREATE INDEX tag_by_run ON tag (run)",
        """CREATE TABLE edit (
            run INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT, t REAL NOT NULL,
            PRIMARY KEY (run, kind, key)) WITHOUT ROWID""",
    ):
        db.execute(statement)
    _fill_words_of_runs(db)
    _fill_metrics(db)
    _fill_said(db)


def _fill_words_of_runs(db: sqlite3.Connection) -> None:
    """Reasons and the tags given at submit, out of JSON."""
    from dray.store import newest, progress

    for run, reason, spec in db.execute("SELECT nr, reason, spec FROM run").fetchall():
        if reason is not None:
            kind = progress.reason_kind(json.loads(reason))
            db.execute("UPDATE run SET reason_kind = ? WHERE nr = ?", (kind, run))
        tags = json.loads(spec).get("tags")
        if tags:
            newest.tagged(db, run, tags)


def _fill_metrics(db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO word (kind, text) SELECT DISTINCT 'metric', name FROM series")
    rows = db.execute(
        """SELECT word.nr, series.run, series.stream, n, low, high, last_step, last_time, last_value FROM series
        JOIN stream ON stream.nr = series.stream JOIN word ON word.kind = 'metric' AND word.text = series.name
        ORDER BY word.nr, series.run, stream.attempt, stream.opened, stream.name"""
    )

    def summed() -> Iterator[tuple[Any, ...]]:
        for (name, run), group in groupby(rows, itemgetter(0, 1)):
            parts = list(group)
            lows = [part[4] for part in parts if part[4] is not None]
            highs = [part[5] for part in parts if part[5] is not None]
            span = (min(lows), max(highs)) if lows else (None, None)
            yield (name, run, parts[-1][2], sum(part[3] for part in parts), *span, *parts[-1][6:])

    db.executemany("INSERT INTO metric VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", summed())


def _fill_said(db: sqlite3.Connection) -> None:
    """Parameters and the script's own tags; the later line of the later stream replaces what came before."""
    from dray.store import newest
    from dray.store.events import Event

    rows = db.execute(
        """SELECT event.run, event.stream, pos, kind, t, data FROM event JOIN stream ON stream.nr = event.stream
        WHERE kind IN ('params', 'tags')
        ORDER BY event.run, stream.attempt, stream.opened, stream.name, pos"""
    )
    for (run, stream), group in groupby(rows, itemgetter(0, 1)):
        newest.said(
            db, run, stream, [Event(pos, kind, t, json.loads(data)) for _, _, pos, kind, t, data in group]
        )


def _kept_at_home(db: sqlite3.Connection) -> None:
    """Layout 3: what of a run is safe here, whatever becomes of its machine."""
    db.execute("ALTER TABLE run ADD COLUMN imported REAL")
    db.execute(
        """CREATE TABLE fetched (
            run INTEGER NOT NULL, path TEXT NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, t REAL NOT NULL,
            PRIMARY KEY (run, path)) WITHOUT ROWID"""
    )


STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first_layout, _newest_values, _kept_at_home)
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
