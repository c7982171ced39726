"""How the value of a parameter or a tag is compared: as a text, as a number, with a pattern.

The store keeps what these functions say, and expressions (`dray.core.where_tree`) mean the same.
"""

from __future__ import annotations

import math
import re

# Compiled when first needed: every command imports this module, few compare.
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_INT64 = 1 << 63

Number = int | float
Fact = str | int | float | bool | None
"""None only as a parameter's value; it counts as if it were not there."""


def matches(pattern: str, text: str) -> bool:
    """`*` stands for any text, `?` for any one character. In steps of at most the product of both lengths."""
    text = text.partition("\0")[0]  # as SQLite sees it
    at = place = 0
    star, taken = -1, 0
    while place < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star, taken = at, place
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[place]):
            at += 1
            place += 1
        elif star >= 0:
            taken += 1
            at, place = star + 1, taken
        else:
            return False
    return not pattern[at:].strip("*")


def text_of(fact: Fact) -> str | None:
    """A parameter's value as it is compared with texts."""
    if fact is None or isinstance(fact, str):
        return fact
    if isinstance(fact, bool):
        return "true" if fact else "false"
    if math.isfinite(fact) if isinstance(fact, float) else True:
        return repr(fact)
    return "NaN" if fact != fact else "Infinity" if fact > 0 else "-Infinity"


def number_of(fact: Fact) -> Number | None:
    """A parameter's value as it is compared with numbers; a text of a number is one."""
    if isinstance(fact, str):
        return as_number(fact)
    if fact is None or isinstance(fact, bool) or fact != fact:
        return None
    return fact if isinstance(fact, float) else _held(fact)


def as_number(text: str) -> Number | None:
    """The number that is written there: 5, -0.1, 1e-3."""
    if not re.fullmatch(_NUMBER, text):
        return None
    return _held(int(text)) if text.lstrip("+-").isdigit() and len(text) < 400 else float(text)


def _held(number: int) -> Number | None:
    """As SQLite holds it: whole numbers of more than 64 bits are rounded."""
    if -_INT64 <= number < _INT64:
        return number
    try:
        return float(number)
    except OverflowError:
        return None
