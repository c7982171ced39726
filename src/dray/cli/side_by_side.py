"""A table with a column for each run: cells that can be told apart, numbers aligned, split where a terminal is too narrow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dray.cli.facts import shell_words, show_number
from dray.cli.tables import GAP, columns, shorten, width_of, write_table
from dray.core.durations import show_duration
from dray.core.errors import printable

if TYPE_CHECKING:
    from dray.workspace.comparing import Row

MISSING = "-"
_FIELD = " "  # no run can have it for its name
_READABLE = 12  # columns that a run's values need to be worth a look
_DIGEST = 12
_TIMES = ("duration", "timeout")


def write_side_by_side(headers: Sequence[str], rows: Sequence[Row]) -> None:
    """Write `rows`, each with a value for each of `headers`; several tables below each other where one is too wide."""
    fields = [printable(row.field) for row in rows]
    lines = [cells(row) for row in rows]
    width = width_of(sys.stdout)
    each = len(headers)
    if width is not None:
        fields = [shorten(field, width // 3) for field in fields]
        each = max(1, (width - max(map(columns, fields))) // (_READABLE + len(GAP)))
    for start in range(0, len(headers), each):
        if start:
            sys.stdout.write("\n")
        some = slice(start, start + each)
        body = _aligned([line[some] for line in lines], [row.values[some] for row in rows])
        rows_here = [(field, *line) for field, line in zip(fields, body, strict=True)]
        write_table((_FIELD, *headers[some]), rows_here, soft=headers[some])


def cells(row: Row) -> list[str]:
    """What stands in a row: as short as lets different values look different."""
    if row.field == "command":
        return _commands(row.values)
    shown = [_text(row.field, value) for value in row.values]
    if row.is_equal:
        return shown
    if len(set(shown)) == 1:
        unit = "s" if row.field in _TIMES else ""
        return [MISSING if value is None else f"{value}{unit}" for value in row.values]
    return _without_common_folder(shown) if all(isinstance(v, str) for v in row.values) else shown


def _without_common_folder(texts: list[str]) -> list[str]:
    """Long paths without the folder that all are in: it would be all that is left of them in a narrow column."""
    first, last = min(texts), max(texts)  # what these two share, all share
    count = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    same = first[:count].rpartition("/")[0]
    return texts if len(same) < _READABLE else [f"...{text[len(same) :]}" for text in texts]


def _text(field: str, value: Any) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return show_duration(value) if field in _TIMES else show_number(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    text = str(value)
    if field in ("snapshot", "environment", "digest"):
        return text[:_DIGEST]
    if field == "git":
        return text[:_DIGEST] + text[40:] if len(text.split(maxsplit=1)[0]) == 40 else text
    return text


def _commands(values: Sequence[Sequence[str] | None]) -> list[str]:
    """Command lines without the words with which all of them begin: `... --lr 0.1`."""
    known = [list(value) for value in values if value]
    same = 0
    while all(len(words) > same for words in known) and len({words[same] for words in known}) == 1:
        same += 1
    # The option that the first different word belongs to helps to read it.
    if same and known[0][same - 1].startswith("-"):
        same -= 1
    if len({tuple(words) for words in known}) == 1:
        same = 0
    return [
        MISSING if not value else ("... " if same else "") + shell_words(value[same:]) for value in values
    ]


def _aligned(lines: Sequence[Sequence[str]], values: Sequence[Sequence[Any]]) -> list[list[str]]:
    """The same cells, numbers of a column ending at one place."""
    aligned = [list(line) for line in lines]
    for at in range(len(lines[0])):
        is_number = [_is_number(row[at]) for row in values]
        width = max(
            (len(line[at]) for line, is_one in zip(lines, is_number, strict=True) if is_one), default=0
        )
        for line, is_one in zip(aligned, is_number, strict=True):
            if is_one:
                line[at] = line[at].rjust(width)
    return aligned


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
