"""Turns what scripts log into JSON text: numbers, strings, cells of tables. Knows numpy and torch by their manners only."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as _quote
from operator import index
from typing import Any, Dict, Optional

from .masking import hide
from .speech import say_once

LONGEST_NAME = 500
LONGEST_TEXT = 64 * 1024
LARGEST_FLOAT = 1.7976931348623157e308
LARGEST_EXACT = 2**53
"""Up to here every whole number is a float too, and no reader of JSON changes it."""

_names: Dict[str, str] = {}
_MOST_NAMES = 20_000  # a script that makes up names for ever must not fill the memory with them


def key(name: Any) -> Optional[str]:
    """`"name":` as it stands in an object, or None for a name that is none."""
    if type(name) is not str:
        say_once(
            ("name", str(type(name))), f"the name {short(name)} is not a string; its text is used instead"
        )
        return _key(as_text(name))
    known = _names.get(name)
    if known is not None:
        return known
    made = _key(name)
    if made is not None:
        if len(_names) >= _MOST_NAMES:
            _names.clear()
        _names[name] = made
    return made


def _key(name: str) -> Optional[str]:
    if not name:
        say_once("no-name", "a value with an empty name was left out")
        return None
    return quote_name(name) + ":"


def quote_name(name: Any) -> str:
    """A name as a JSON string. A very long one is cut, with a checksum so that two of them do not become one."""
    whole = as_text(name)
    if len(whole) > LONGEST_NAME:
        from zlib import crc32  # almost nobody needs it

        mark = "~%08x" % crc32(whole.encode("utf-8", "surrogatepass"))
        say_once(
            "long-name", f"the name {short(whole)} has {len(whole)} characters; it is cut to {LONGEST_NAME}"
        )
        # Hidden before the cut, or the half of a secret would stay.
        return _escape(hide(whole)[: LONGEST_NAME - len(mark)] + mark)
    return _escape(hide(whole))


def quote(text: str) -> str:
    """A string as JSON, its secrets hidden, cut where it is longer than anyone reads."""
    text = hide(text)
    if len(text) > LONGEST_TEXT:
        say_once("long-text", f"a text of {len(text)} characters was cut to {LONGEST_TEXT}")
        text = text[: LONGEST_TEXT - 3] + "..."
    return _escape(text)


def _escape(text: str) -> str:
    """ASCII only. Lone surrogates (undecodable file names) would stop a reader; they become visible escapes."""
    escaped: str = _quote(text)
    if "\\ud" in escaped:
        escaped = _quote(text.encode("utf-8", "backslashreplace").decode("utf-8"))
    return escaped


def number(value: Any) -> Optional[str]:
    """`value` as a JSON number, or as one of the strings "NaN", "Infinity", "-Infinity"; None when it is no number."""
    try:
        # Numpy, torch, jax: `item` is the exact value, and float() of an array is deprecated.
        if not isinstance(value, (int, float)) and callable(getattr(value, "item", None)):
            value = value.item()
        if isinstance(value, int) and -LARGEST_EXACT <= value <= LARGEST_EXACT:
            return int.__repr__(int(value))  # int(): True is a number here
        if isinstance(value, (int, float)) or hasattr(type(value), "__float__"):
            return float_text(float(value))
        if hasattr(type(value), "__index__"):
            return float_text(float(index(value)))
    except Exception:  # whatever a stranger's object does when asked, it is no number then
        return None
    return None


def float_text(value: float) -> str:
    """The shortest digits that give the same float again."""
    if -LARGEST_FLOAT <= value <= LARGEST_FLOAT:
        return float.__repr__(value)
    return '"Infinity"' if value > 0 else '"-Infinity"' if value < 0 else '"NaN"'


def step_text(step: Any) -> str:
    """A step as JSON: a whole number, or null for none and for what is none."""
    if step is None:
        return "null"
    try:
        if not isinstance(step, (int, float)) and callable(getattr(step, "item", None)):
            step = step.item()
        whole = int(step) if isinstance(step, float) and step == int(step) else index(step)
        if -(2**63) <= whole < 2**63:
            return int.__repr__(whole)
    except Exception:  # strings, NaN, strangers' objects: said below
        pass
    say_once(
        "step",
        f"step {short(step)} is not a whole number of at most 64 bits; the values are kept without a step",
    )
    return "null"


def cell(value: Any) -> str:
    """A parameter or a table's cell: null, true, a number, or the text of whatever it is."""
    if value is None:
        return "null"
    if hasattr(value, "dtype") and callable(getattr(value, "item", None)):
        try:
            value = value.item()
        except Exception:  # more than one element
            return quote(as_text(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    plain = None
    if isinstance(value, float):
        plain = float_text(value)
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        plain = int.__repr__(int(value))
    if plain is None:
        return quote(as_text(value))
    return plain if hide(plain) == plain else '"***"'  # a PIN is a secret too


def as_text(value: Any) -> str:
    """`str(value)`, whatever happens."""
    try:
        return str.__str__(value) if isinstance(value, str) else str(value)
    except Exception:  # a stranger's __str__
        return f"<{type(value).__name__} that cannot be shown>"


def short(value: Any) -> str:
    """`value` for one line of a message."""
    shown = repr(hide(as_text(value)))
    return shown if len(shown) <= 60 else shown[:57] + "..."
