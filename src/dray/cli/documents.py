"""JSON and CSV for other programs: always valid, one document, whatever the values are."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from dray.core.errors import printable


def write_json(value: Any, *, compact: bool = False) -> None:
    """One JSON document on stdout; `compact` where it is long and for programs only."""
    # ASCII: file names that are not UTF-8 survive as escaped surrogates on any terminal and in any locale.
    sys.stdout.write(json.dumps(_plain(value), indent=None if compact else 2, allow_nan=False) + "\n")
    sys.stdout.flush()


def write_csv(rows: Iterable[Sequence[object]]) -> None:
    """Lines of CSV on stdout: byte for byte into a file or a pipe, without control characters on a terminal."""
    text = csv_text(rows)
    if sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    sys.stdout.write(text)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """The rows as CSV; None is empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([number(value) for value in row] for row in rows)
    return text.getvalue()


def number(value: Any) -> Any:
    """`value` as JSON can say it: NaN and the infinities are strings, as in the streams."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _plain(value: Any) -> Any:
    """`value` with only what JSON has."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (str, bytes)):
        return value if isinstance(value, str) else value.decode(errors="replace")
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return number(value)
