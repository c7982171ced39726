"""An expression over runs as SQL. Every value is a bound parameter; the SQL's own words are all written here.

Read `where` first. What an expression means is said in `dray.core.where_tree.holds`; tests compare the two. Each condition
is 0 or 1, never NULL, so that `not` turns it around.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from dray.core.scalars import number_of
from dray.core.where_tree import (
    EQUALS,
    ORDERS,
    PARAM,
    PATTERNS,
    TEXT,
    And,
    Compare,
    Field,
    Has,
    Not,
    OneOf,
    Or,
    Sort,
    Tree,
    Value,
    instants,
)
from dray.store import newest

_AT_ONCE = 500
_CHAIN = 150
OF_RUN = {
    **{name: f"run.{name}" for name in ("id", "name", "experiment", "compute", "exit_code")},
    **{name: f"run.{name}" for name in ("created", "started", "ended", "note")},
    "status": "run.state",
    "reason": "run.reason_kind",
    "duration": "run.duration_s",
}
_NEVER_NULL = {"id", "experiment", "compute", "status", "created"}
OF_METRIC = {"last": "last_value", "min": "low", "max": "high"}
TABLES = {"metrics": newest.METRIC, "params": newest.PARAM, "tags": newest.TAG}

AFTER_ANY = "\U0010ffff"
"""Behind a beginning: greater than whatever begins so."""

Sql = tuple[str, list[Any]]
"""A piece of SQL and the values of its question marks."""


def where(db: sqlite3.Connection, tree: Tree, now: float) -> Sql:
    """The condition on `run` that `tree` stands for; "2d ago" is counted from `now`."""
    match tree:
        case And(parts):
            return _joined("AND", [where(db, part, now) for part in parts])
        case Or(parts):
            some = [(where(db, part, now), isinstance(part, And)) for part in parts]
            # AND binds tighter: its brackets would only count.
            return _joined("OR", [(sql[1:-1] if bare else sql, values) for (sql, values), bare in some])
        case Not(of):
            sql, values = where(db, of, now)
            return f"NOT {sql}", values  # binds looser than all but AND and OR, which stand in brackets
        case OneOf(field, wanted):
            return _of_run(db, field, _joined("OR", [_compared(field, "=", value, now) for value in wanted]))
        case Has(field):
            return _of_run(db, field, _there(field))
        case Compare(field, op, value):
            return _of_run(db, field, _compared(field, op, value, now))


def select(
    db: sqlite3.Connection,
    conditions: Sequence[Sql],
    sort: Sequence[Sort],
    limit: int | None,
    offset: int,
) -> list[int]:
    """The numbers of the runs that all `conditions` hold for, in order; the newest first where `sort` says nothing."""
    joins: list[Sql] = []
    orders = [order for place, by in enumerate(sort) for order in _order(db, by, f"s{place}", joins)]
    condition, values = _joined("AND", conditions) if conditions else ("1", [])
    joined = " ".join(sql for sql, _ in joins)
    order = ", ".join([*orders, "run.created DESC", "run.nr DESC"])
    query = f"SELECT run.nr FROM run {joined} WHERE {condition} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608 - ours
    # A negative limit is none.
    bounds = [-1 if limit is None else max(limit, 0), max(offset, 0)]
    found = db.execute(query, [v for _, some in joins for v in some] + values + bounds)
    return [nr for (nr,) in found.fetchall()]


def count(db: sqlite3.Connection, conditions: Sequence[Sql]) -> int:
    """How many runs all `conditions` hold for."""
    condition, values = _joined("AND", conditions) if conditions else ("1", [])
    (number,) = db.execute(f"SELECT count(*) FROM run WHERE {condition}", values).fetchone()  # noqa: S608 - ours
    return int(number)


def columns(
    db: sqlite3.Connection, runs: Sequence[int], fields: Iterable[Field]
) -> dict[int, dict[Field, Any]]:
    """Of each run the values of `fields` that it has; a question for each family and field, not for each run."""
    wanted = list(dict.fromkeys(fields))
    found: dict[int, dict[Field, Any]] = {run: {} for run in runs}
    for start in range(0, len(runs), _AT_ONCE):
        some = list(runs[start : start + _AT_ONCE])
        marks = ",".join("?" * len(some))
        own = [field for field in wanted if field.family in OF_RUN]
        if own:
            names = ", ".join(OF_RUN[field.family] for field in own)
            for run, *values in db.execute(f"SELECT nr, {names} FROM run WHERE nr IN ({marks})", some):  # noqa: S608 - ours
                found[run].update((f, v) for f, v in zip(own, values, strict=True) if v is not None)
        for field in wanted:
            if field.family not in OF_RUN:
                for run, value in _column(db, field, some, marks):
                    found[run][field] = value
    return found


def _column(db: sqlite3.Connection, field: Field, runs: list[int], marks: str) -> Iterable[tuple[int, Any]]:
    table = TABLES[field.family]
    name = newest.word(db, table, field.name)
    what = {"metrics": OF_METRIC.get(field.part, "last_value"), "tags": "value", "params": "kind"}[
        field.family
    ]
    more = ", text" if field.family == "params" else ""
    query = f"SELECT run, {what}{more} FROM {table} WHERE name = ? AND run IN ({marks})"  # noqa: S608 - ours
    rows = db.execute(query, [name, *runs])
    for run, value, *rest in rows:
        if field.family == "params":
            yield run, newest.param_value(value, *rest)
        elif value is not None:
            yield run, value
        elif what == "last_value":
            yield run, float("nan")  # SQLite stores it as NULL


def _joined(word: str, parts: Sequence[Sql]) -> Sql:
    """All parts with AND or OR between them.

    SQLite's parser has a stack of 100 words and an expression a depth of 1000. So what is nested most comes first, where a
    level costs one word of the stack, and long chains become chains of chains.
    """
    if len(parts) == 1:
        return parts[0]
    if len(parts) > _CHAIN:
        return _joined(word, [_joined(word, parts[n : n + _CHAIN]) for n in range(0, len(parts), _CHAIN)])
    ordered = sorted(parts, key=lambda part: -_nesting(part[0]))
    return f"({f' {word} '.join(sql for sql, _ in ordered)})", [v for _, values in ordered for v in values]


def _nesting(sql: str) -> int:
    """How deep its brackets are; no value is part of it, so all brackets count."""
    return max(accumulate({"(": 1, ")": -1}.get(char, 0) for char in sql))


def _of_run(db: sqlite3.Connection, field: Field, condition: Sql) -> Sql:
    """`condition` on the field's own table, asked of a run."""
    if field.family in OF_RUN:
        return condition
    table = TABLES[field.family]
    name = newest.word(db, table, field.name)
    if name is None:
        return "0", []
    sql, values = condition
    return f"run.nr IN (SELECT run FROM {table} AS f WHERE f.name = ? AND {sql})", [name, *values]  # noqa: S608 - ours


def _place(field: Field) -> str:
    if field.family in OF_RUN:
        return OF_RUN[field.family]
    return {"metrics": f"f.{OF_METRIC.get(field.part, 'last_value')}", "tags": "f.value"}[field.family]


def _there(field: Field) -> Sql:
    if field.kind == PARAM:
        return "(f.text IS NOT NULL AND f.text <> 'false')", []
    if field.family == "metrics" and field.part == "last":
        return "1", []  # NULL is not-a-number here
    return f"{_place(field)} IS NOT NULL", []


def _compared(field: Field, op: str, value: Value, now: float) -> Sql:
    if field.kind == PARAM:
        return _param_compared(op, value)
    place = _place(field)
    if field.kind == TEXT:
        sql, values = _text_compared(place, op, str(value))
    else:
        begin, end = instants(field.kind, value, now)
        if field.family == "metrics" and field.part == "last" and op in EQUALS:
            return _metric_equals(place, op, begin)
        if begin != begin:
            return ("0", []) if op != "!=" else (f"{place} IS NOT NULL", [])
        sql, values = _in_order(place, op, begin, end)
    return (sql, values) if field.family in _NEVER_NULL else (f"({place} IS NOT NULL AND {sql})", values)


def _metric_equals(place: str, op: str, value: float) -> Sql:
    if value != value:
        return f"{place} IS {'' if op == '=' else 'NOT '}NULL", []
    return f"{place} IS {'' if op == '=' else 'NOT '}?", [value]


def _text_compared(place: str, op: str, value: str) -> Sql:
    if op in PATTERNS:
        # An opening bracket means nothing to us, but something to GLOB.
        return f"{place} {'GLOB' if op == '~' else 'NOT GLOB'} ?", [value.replace("[", "[[]")]
    return f"{place} {_OPERATORS[op]} ?", [value]


def _in_order(place: str, op: str, begin: float, end: float) -> Sql:
    """Compare with what lasts from `begin` up to, and without, `end`; see `where_tree.in_order`."""
    if begin == end or op in ("<", ">="):
        return f"{place} {_OPERATORS[op]} ?", [begin]
    if op in ORDERS:
        return f"{place} {'<' if op == '<=' else '>='} ?", [end]
    return f"{'NOT ' if op == '!=' else ''}({place} >= ? AND {place} < ?)", [begin, end]


def _param_compared(op: str, value: Value) -> Sql:
    if isinstance(value, bool):
        return f"(f.text IS NOT NULL AND f.text {_OPERATORS[op]} ?)", ["true" if value else "false"]
    if isinstance(value, (int, float)):
        if op == "!=":
            return "(f.text IS NOT NULL AND f.number IS NOT ?)", [value]
        return f"(f.number IS NOT NULL AND f.number {_OPERATORS[op]} ?)", [value]
    text = str(value)
    if op in EQUALS:
        number = number_of(text)
        same: Sql = ("f.text = ?", [text])
        if number is not None:
            same = ("(f.text = ? OR (f.kind = 'n' AND f.number IS ?))", [text, number])
        return f"(f.text IS NOT NULL AND {'NOT ' if op == '!=' else ''}{same[0]})", same[1]
    sql, values = _text_compared("f.text", op, text)
    kinds = "f.kind = 's'" if op in ORDERS else "f.text IS NOT NULL"
    return f"({kinds} AND {sql})", values


_OPERATORS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def _order(db: sqlite3.Connection, by: Sort, alias: str, joins: list[Sql]) -> list[str]:
    """ORDER BY of one field; what it needs beside `run` is put into `joins`."""
    field, down = by.field, " DESC" if by.descending else ""
    if field.family in OF_RUN:
        place = OF_RUN[field.family]
        return [f"{place}{down}"] if field.family in _NEVER_NULL else [f"{place} IS NULL", f"{place}{down}"]
    table = TABLES[field.family]
    name = newest.word(db, table, field.name)
    joins.append((f"LEFT JOIN {table} AS {alias} ON {alias}.name = ? AND {alias}.run = run.nr", [name]))
    if field.family == "params":
        # Numbers in front of texts, in either direction.
        text, number = f"{alias}.text", f"{alias}.number"
        return [f"{text} IS NULL", f"{number} IS NULL", f"{number}{down}", f"{text}{down}"]
    place = f"{alias}.{'value' if field.family == 'tags' else OF_METRIC.get(field.part, 'last_value')}"
    return [f"{place} IS NULL", f"{place}{down}"]
