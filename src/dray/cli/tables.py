"""Columns of text: aligned, cut to the terminal's width on a terminal, whole everywhere else."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import TextIO

from dray.core.errors import printable

GAP = "  "
NARROWEST = 6  # a column is not cut below this


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal behind `stream`; None when it is none, and nothing may be cut."""
    if not stream.isatty():
        return None
    if os.environ.get("COLUMNS", "").isdigit():
        return int(os.environ["COLUMNS"]) or None
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None


def write_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[str] = (),
    paint: Callable[[str, str], str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Write `rows` below `headers`, one line each. `right` names columns of numbers, `paint(header, cell)` colours."""
    stream = stream or sys.stdout
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    for line in layout(headers, cells, right=right, width=width_of(stream), paint=paint):
        stream.write(line + "\n")


def layout(
    headers: Sequence[str],
    cells: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    width: int | None = None,
    paint: Callable[[str, str], str] | None = None,
) -> list[str]:
    """The lines of a table; none is longer than `width`, as far as the narrowest columns allow."""
    widths = [max(columns(line[i]) for line in (headers, *cells)) for i in range(len(headers))]
    if width is not None:
        widths = squeeze(widths, width - len(GAP) * (len(widths) - 1))
    lines = []
    for row, line in enumerate((headers, *cells)):
        fields = []
        for header, cell, size in zip(headers, line, widths, strict=True):
            text = shorten(cell, size)
            space = " " * (size - columns(text))
            shown = paint(header, text) if paint and row else text
            fields.append(space + shown if header in right else shown + space)
        lines.append(GAP.join(fields).rstrip())
    return lines


def squeeze(widths: Sequence[int], room: int) -> list[int]:
    """Take from the widest columns until all fit into `room`."""
    widths = list(widths)
    while sum(widths) > room and max(widths) > NARROWEST:
        widest = widths.index(max(widths))
        widths[widest] -= 1
    return widths


def columns(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def shorten(text: str, size: int) -> str:
    """`text` in at most `size` columns, with "~" where it was cut."""
    if columns(text) <= size:
        return text
    while text and columns(text) > size - 1:
        text = text[:-1]
    return text + "~"
