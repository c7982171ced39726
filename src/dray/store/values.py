"""Which values a field has, over all runs: what is said when a question fits none of them, and what completes a word."""

from __future__ import annotations

import sqlite3
from typing import Any

from dray.core.where_tree import Field
from dray.store import newest, query


def common(db: sqlite3.Connection, field: Field, prefix: str, limit: int) -> list[tuple[Any, int]]:
    """The values that begin with `prefix` and that most runs have, with how many runs have each."""
    place, source, values = _source(db, field)
    if place is None:
        return []
    begins, bounds = (
        ("", []) if not prefix else (f"AND {place} >= ? AND {place} < ?", [prefix, prefix + query.AFTER_ANY])
    )
    rows = db.execute(
        f"SELECT {place} AS v, count(*) AS n {source} AND {place} IS NOT NULL {begins}"
        " GROUP BY v ORDER BY n DESC, v LIMIT ?",
        [*values, *bounds, limit],
    )
    return rows.fetchall()


def span(db: sqlite3.Connection, field: Field) -> tuple[Any, Any] | None:
    """The least and the greatest number (time, duration) of any run; None when no run has one."""
    place, source, values = _source(db, field, as_number=True)
    if place is None:
        return None
    low, high = db.execute(f"SELECT min({place}), max({place}) {source}", values).fetchone()
    return None if low is None else (low, high)


def _source(
    db: sqlite3.Connection, field: Field, *, as_number: bool = False
) -> tuple[str | None, str, list[Any]]:
    """Where the values stand, and the part of the question behind it."""
    if field.family in query.OF_RUN:
        return query.OF_RUN[field.family], "FROM run WHERE 1", []
    table = query.TABLES[field.family]
    name = newest.word(db, table, field.name)
    place = {
        "metrics": query.OF_METRIC.get(field.part, "last_value"),
        "tags": "value",
        "params": "number" if as_number else "text",
    }[field.family]
    return (None if name is None else place), f"FROM {table} WHERE name = ?", [name]
