"""Of each run the last value of every parameter and tag, and the summary of every metric: what lists and questions read.

Kept up to date by whatever brings new lines, in the same transaction; it could be made again from `event` and `series`.
What counts as last: the highest attempt, in it the stream that was opened last, in that the last line.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from dray.core.scalars import number_of, text_of
from dray.store.events import Event, plain
from dray.store.points import Point, Series, Span

METRIC, PARAM, TAG = "metric", "param", "tag"
_AT_ONCE = 500


def word(db: sqlite3.Connection, kind: str, text: str) -> int | None:
    """The number that stands for a name in the tables; None when no run has it."""
    row = db.execute("SELECT nr FROM word WHERE kind = ? AND text = ?", (kind, text)).fetchone()
    return None if row is None else int(row[0])


def made_word(db: sqlite3.Connection, kind: str, text: str) -> int:
    """The same, made where it is missing."""
    found = word(db, kind, text)
    if found is None:
        found = db.execute("INSERT INTO word (kind, text) VALUES (?, ?)", (kind, text)).lastrowid or 0
    return found


def measured(
    db: sqlite3.Connection,
    run: int,
    stream: int,
    name: str,
    span: Span,
    fresh: Series,
) -> None:
    """Take more points of a metric into its summary; `span` is theirs."""
    last = (fresh.steps[-1], fresh.times[-1], fresh.values[-1])
    summarised(db, run, stream, name, span, len(fresh.values), last)


def summarised(
    db: sqlite3.Connection, run: int, stream: int, name: str, span: Span, count: int, last: Point
) -> None:
    """The same, where the points themselves are packed away: so many, the last of them."""
    low, high = span
    summed = (count, low, low, high, high)
    # Nearly always the points come from the stream that also brought the last ones.
    known = db.execute(
        "UPDATE metric SET n = n + ?, low = coalesce(min(low, ?), low, ?), high = coalesce(max(high, ?), high, ?),"
        " last_step = ?, last_time = ?, last_value = ?"
        " WHERE name = (SELECT nr FROM word WHERE kind = 'metric' AND text = ?) AND run = ? AND stream = ?",
        (*summed, *last, name, run, stream),
    ).rowcount
    if known:
        return
    metric = made_word(db, METRIC, name)
    row = db.execute("SELECT stream FROM metric WHERE name = ? AND run = ?", (metric, run)).fetchone()
    if row is None:
        values = (metric, run, stream, count, low, high, *last)
        db.execute("INSERT INTO metric VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        return
    db.execute(
        "UPDATE metric SET n = n + ?, low = coalesce(min(low, ?), low, ?), high = coalesce(max(high, ?), high, ?)"
        " WHERE name = ? AND run = ?",
        (*summed, metric, run),
    )
    if _comes_after(db, stream, row[0]):
        db.execute(
            "UPDATE metric SET stream = ?, last_step = ?, last_time = ?, last_value = ? WHERE name = ? AND run = ?",
            (stream, *last, metric, run),
        )


def said(db: sqlite3.Connection, run: int, stream: int, events: Iterable[Event]) -> None:
    """Take over the parameters and tags in the next lines of a stream."""
    fresh: dict[tuple[str, str], Any] = {}
    for event in events:
        kind = {"params": PARAM, "tags": TAG}.get(event.kind)
        if kind:
            fresh.update(((kind, plain(name)), value) for name, value in event.data["values"].items())
    for (kind, name), value in fresh.items():
        key = (made_word(db, kind, name), run)
        if kind == PARAM:
            _set_param(db, key, stream, value)
        else:
            _set_tag(db, key, stream, plain(value))


def tagged(db: sqlite3.Connection, run: int, tags: Mapping[str, str]) -> None:
    """Take over the tags that were given at submit: the script's own win over them."""
    rows = [(made_word(db, TAG, plain(name)), run, plain(str(value))) for name, value in tags.items()]
    db.executemany("INSERT OR REPLACE INTO tag (name, run, value) VALUES (?, ?, ?)", rows)


def edited_tag(db: sqlite3.Connection, run: int, name: str, value: str | None) -> None:
    """Let an edit win from now on; None takes the tag away."""
    row = (made_word(db, TAG, name), run, value)
    db.execute("INSERT OR REPLACE INTO tag (name, run, value, edited) VALUES (?, ?, ?, 1)", row)


def forget(db: sqlite3.Connection, run: int) -> None:
    """Delete what is kept of a run, and names that no other run has."""
    for table in (METRIC, PARAM, TAG):
        rows = db.execute(f"SELECT name FROM {table} WHERE run = ?", (run,)).fetchall()  # noqa: S608 - ours
        db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608 - ours
        unused = f"DELETE FROM word WHERE nr = ? AND NOT EXISTS (SELECT 1 FROM {table} WHERE name = word.nr)"  # noqa: S608 - ours
        db.executemany(unused, rows)


def latest(db: sqlite3.Connection, runs: list[int]) -> dict[int, dict[str, tuple[float, int | None]]]:
    """Of each run the value and step of the last point of each metric, by name."""
    found: dict[int, dict[str, tuple[float, int | None]]] = {run: {} for run in runs}
    for start in range(0, len(runs), _AT_ONCE):
        some = runs[start : start + _AT_ONCE]
        query = f"""SELECT run, text, last_value, last_step FROM metric JOIN word ON word.nr = metric.name
            WHERE run IN ({",".join("?" * len(some))}) ORDER BY text"""  # noqa: S608 - question marks
        for run, name, value, step in db.execute(query, some):
            # SQLite stores NaN as NULL.
            found[run][name] = (float("nan") if value is None else value, step)
    return found


def names(db: sqlite3.Connection, kind: str, prefix: str = "", limit: int | None = None) -> list[str]:
    """Names of metrics, parameters or tags that any run has."""
    rows = db.execute(
        "SELECT text FROM word WHERE kind = ? AND text >= ? AND text < ? ORDER BY text LIMIT ?",
        (kind, prefix, prefix + "\U0010ffff", -1 if limit is None else limit),
    )
    return [text for (text,) in rows]


def param_row(value: Any) -> tuple[str, str | None, float | None]:
    """How a parameter is stored: what it was, as a text, as a number."""
    kind = (
        "-" if value is None else "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"
    )
    text = text_of(value)
    return kind, None if text is None else plain(text), number_of(value)


def param_value(kind: str, text: str | None) -> Any:
    """What was logged."""
    return text if kind == "s" or text is None else json.loads(text)


def _set_param(db: sqlite3.Connection, key: tuple[int, int], stream: int, value: Any) -> None:
    row = db.execute("SELECT stream FROM param WHERE name = ? AND run = ?", key).fetchone()
    if row is None or _comes_after(db, stream, row[0]):
        db.execute(
            "INSERT OR REPLACE INTO param VALUES (?, ?, ?, ?, ?, ?)", (*key, stream, *param_row(value))
        )


def _set_tag(db: sqlite3.Connection, key: tuple[int, int], stream: int, value: str) -> None:
    row = db.execute("SELECT stream, edited FROM tag WHERE name = ? AND run = ?", key).fetchone()
    if row is None or (not row[1] and _comes_after(db, stream, row[0])):
        db.execute(
            "INSERT OR REPLACE INTO tag (name, run, stream, value) VALUES (?, ?, ?, ?)", (*key, stream, value)
        )


def _comes_after(db: sqlite3.Connection, stream: int, other: int | None) -> bool:
    """What `stream` says now counts more than what `other` has said."""
    if other is None or other == stream:
        return True
    query = "SELECT nr FROM stream WHERE nr IN (?, ?) ORDER BY attempt DESC, opened DESC, name DESC LIMIT 1"
    return bool(db.execute(query, (stream, other)).fetchone()[0] == stream)
