"""Columns of text: aligned, cut and left out to fit the terminal's width on a terminal, whole everywhere else."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
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
    soft: Sequence[str] = (),
    spare: Sequence[str] = (),
    paint: Callable[[str, str], str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Write `rows` below `headers`, one line each. `right` names columns of numbers, `paint(header, cell)` colours.

    Where there is no room, columns in `soft` are cut (all of them, if none is named), and when that is not enough,
    those in `spare` are left out one after the other.
    """
    stream = stream or sys.stdout
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    width = width_of(stream)
    for line in layout(headers, cells, right=right, soft=soft, spare=spare, width=width, paint=paint):
        stream.write(line + "\n")


def layout(
    headers: Sequence[str],
    cells: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    soft: Sequence[str] = (),
    spare: Sequence[str] = (),
    width: int | None = None,
    paint: Callable[[str, str], str] | None = None,
) -> list[str]:
    """The lines of a table; none is longer than `width`, as far as the narrowest columns allow."""
    widths = {header: max(columns(line[i]) for line in (headers, *cells)) for i, header in enumerate(headers)}
    if width is not None:
        widths = squeeze(widths, width, soft or headers, spare)
    lines = []
    for row, line in enumerate((headers, *cells)):
        fields = []
        for header, cell in zip(headers, line, strict=True):
            if header not in widths:
                continue
            size = widths[header]
            text = shorten(cell, size)
            space = " " * (size - columns(text))
            shown = paint(header, text) if paint and row else text
            fields.append(space + shown if header in right else shown + space)
        lines.append(GAP.join(fields).rstrip())
    return lines


def squeeze(
    widths: Mapping[str, int], width: int, soft: Sequence[str], spare: Sequence[str]
) -> dict[str, int]:
    """Take from the widest of the `soft` columns, and leave `spare` ones out, until all fit into `width`."""
    widths, spare = dict(widths), list(spare)

    def excess() -> int:
        return sum(widths.values()) + len(GAP) * (len(widths) - 1) - width

    while spare and excess() > sum(max(widths[name] - NARROWEST, 0) for name in soft if name in widths):
        widths.pop(spare.pop(0), None)
    while excess() > 0:
        widest = max((name for name in soft if name in widths), key=widths.__getitem__, default="")
        if not widest or widths[widest] <= NARROWEST:
            break
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
