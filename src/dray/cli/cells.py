"""Fields of runs as people read them in a table, and as programs read them in CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.cli.documents import number
from dray.cli.facts import show_number
from dray.cli.tables import write_table
from dray.cli.times import ago
from dray.cli.voice import is_terminal, paint_word
from dray.core.durations import show_duration
from dray.core.errors import printable
from dray.core.scalars import text_of
from dray.core.where_tree import DURATION, FAMILIES, NUMBER, PARAM, TIME, Field

NEVER_CUT = ("id", "status")


def header(field: Field) -> str:
    """STATUS, metrics.loss: names keep their case, because it counts."""
    return str(field) if field.family in FAMILIES else field.family.upper()


def is_right(field: Field, values: Sequence[dict[str, Any]]) -> bool:
    """Whether it is a column of numbers."""
    if field.kind != PARAM:
        return field.kind in (NUMBER, DURATION)
    known = [row[str(field)] for row in values if row[str(field)] is not None]
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)


def cell(field: Field, value: Any) -> str:
    """One value; "-" for what a run does not have."""
    if value is None:
        return "-"
    if field.kind == TIME:
        return ago(value)
    if field.kind == DURATION:
        return show_duration(value)
    if field.kind == NUMBER:
        return show_number(value)
    return " ".join(str(text_of(value)).split()) if field.family == "note" else str(text_of(value))


def cells(fields: Sequence[Field], values: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The rows of a table."""
    return [[cell(field, row[str(field)]) for field in fields] for row in values]


def as_data(value: Any) -> Any:
    """One value for CSV: times in seconds, nothing for what is missing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    value = number(value)
    # To a program a name is what it is; to a terminal it might be an order.
    return printable(value) if isinstance(value, str) and is_terminal(1) else value


def write_fields(fields: Sequence[Field], values: Sequence[dict[str, Any]]) -> None:
    """A table of just these fields; all of them, however narrow the terminal."""
    soft = [
        header(field) for field in fields if field.family not in NEVER_CUT and not is_right(field, values)
    ]
    write_table(
        [header(field) for field in fields],
        cells(fields, values),
        right=[header(field) for field in fields if is_right(field, values)],
        soft=soft or [""],
        paint=lambda head, text: paint_word(text) if head == "STATUS" else text,
    )
