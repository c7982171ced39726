"""What `--where` asks, as a tree of plain data: printed, judged by facts, but not read here (that is `dray.core.where`).

Read `holds` first: it says what an expression means. The store says the same in SQL, and tests compare the two.

A run has facts, one for each Field it has: text, number (times are seconds since 1970, durations seconds), and for a
parameter whatever was logged. What it lacks is not among them, and no comparison with it is true.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dray.core.durations import parse_duration
from dray.core.errors import UsageError
from dray.core.scalars import Fact, matches, number_of, text_of

TEXT, NUMBER, TIME, DURATION, PARAM = "text", "number", "time", "duration", "parameter"

KINDS: Mapping[str, str] = {
    **dict.fromkeys(("id", "name", "experiment", "compute", "status", "reason"), TEXT),
    "exit_code": NUMBER,
    **dict.fromkeys(("created", "started", "ended"), TIME),
    "duration": DURATION,
    "note": TEXT,
}
"""The fields that every run may have."""
FAMILIES: Mapping[str, str] = {"params": PARAM, "tags": TEXT, "metrics": NUMBER}
"""Those that are followed by a name."""
PARTS = ("last", "min", "max")
"""What can be asked of a metric; without one of them it is `last`."""

ORDERS = ("<", "<=", ">", ">=")
EQUALS = ("=", "!=")
PATTERNS = ("~", "!~")

PLAIN_NAME = re.compile(r"[^\s\"'()=!<>~,&|;]+")
"""What may stand without quotes behind `params.` and its like."""
_PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
WORDS = frozenset({"and", "or", "not", "in", "true", "false", "nan", "inf"})
"""These mean something by themselves."""
_MOMENT = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?)?")
_EXACT = 1 << 53

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


@dataclass(frozen=True, slots=True)
class Field:
    """`status` is Field("status"); `metrics.loss.min` is Field("metrics", "loss", "min")."""

    family: str
    name: str = ""
    part: str = ""
    """One of PARTS for a metric, else nothing."""

    @property
    def kind(self) -> str:
        """What its values are."""
        return FAMILIES.get(self.family) or KINDS[self.family]

    def __str__(self) -> str:
        if self.family not in FAMILIES:
            return self.family
        ends = self.name.rpartition(".")[2] in PARTS and self.family == "metrics"
        plain = PLAIN_NAME.fullmatch(self.name) and self.name.isprintable() and not ends
        part = f".{self.part}" if self.part not in {"", "last"} else ""
        return f"{self.family}.{self.name if plain else quoted(self.name)}{part}"


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time; compared with a time: the moment so long ago."""

    seconds: float

    def __str__(self) -> str:
        for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
            if 0 < self.seconds < _EXACT and self.seconds % size == 0:
                return f"{int(self.seconds // size)}{unit}"
        if self.seconds == int(self.seconds):
            return f"{int(self.seconds)}s"
        from decimal import Decimal  # all digits, and no exponent

        return f"{Decimal(repr(self.seconds)):f}s"


@dataclass(frozen=True, slots=True)
class Moment:
    """A day, a minute or a second of the local clock, as it was written: 2026-11-18, 2026-11-18T14:00."""

    text: str

    def __str__(self) -> str:
        return self.text

    def span(self) -> tuple[float, float]:
        """Its first instant, and the first one after it. Raises ValueError when the calendar has no such moment."""
        found = _MOMENT.fullmatch(self.text)
        if found is None:
            raise ValueError(self.text)
        year, month, day, hour, minute, second = (int(piece or 0) for piece in found.groups())
        if hour > 23 or minute > 59 or second > 59 or year < 1971:
            raise ValueError(self.text)
        begin = time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
        if time.localtime(begin)[:3] != (
            year,
            month,
            day,
        ):  # mktime takes the 31st of February for the 3rd of March
            raise ValueError(self.text)
        if found[4] is None:
            return begin, time.mktime((year, month, day + 1, 0, 0, 0, 0, 0, -1))
        return begin, begin + (60 if found[6] is None else 1)


Value = str | int | float | bool | Duration | Moment


@dataclass(frozen=True, slots=True)
class Compare:
    """`metrics.loss < 0.2`."""

    field: Field
    op: str
    value: Value

    def __str__(self) -> str:
        return f"{self.field} {self.op} {shown(self.value)}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """`status in (failed, lost)`."""

    field: Field
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.field} in ({', '.join(map(shown, self.values))})"


@dataclass(frozen=True, slots=True)
class Has:
    """`params.debug`: it is there, and not false."""

    field: Field

    def __str__(self) -> str:
        return str(self.field)


@dataclass(frozen=True, slots=True)
class Not:
    """`not metrics.loss < 0.2`, which is also true for a run without that metric."""

    of: Tree

    def __str__(self) -> str:
        return f"not ({self.of})" if isinstance(self.of, (And, Or)) else f"not {self.of}"


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more."""

    parts: tuple[Tree, ...]

    def __str__(self) -> str:
        return " and ".join(f"({p})" if isinstance(p, (And, Or)) else str(p) for p in self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of two or more."""

    parts: tuple[Tree, ...]

    def __str__(self) -> str:
        return " or ".join(f"({p})" if isinstance(p, Or) else str(p) for p in self.parts)


Tree = Compare | OneOf | Has | Not | And | Or


@dataclass(frozen=True, slots=True)
class Sort:
    """By which field, and in which direction; runs without it come last either way."""

    field: Field
    descending: bool = False

    def __str__(self) -> str:
        return ("-" if self.descending else "") + str(self.field)


def holds(tree: Tree, facts: Mapping[Field, Fact], now: float | None = None) -> bool:
    """True when a run with these facts is one that `tree` asks for. `now` is what "2d ago" is counted from."""
    moment = time.time() if now is None else now
    match tree:
        case And(parts):
            return all(holds(part, facts, moment) for part in parts)
        case Or(parts):
            return any(holds(part, facts, moment) for part in parts)
        case Not(of):
            return not holds(of, facts, moment)
        case OneOf(field, values):
            return any(holds(Compare(field, "=", value), facts, moment) for value in values)
        case Has(field):
            return facts.get(field) is not None and not (
                field.kind == PARAM and text_of(facts[field]) == "false"
            )
        case Compare(field, op, value):
            fact = facts.get(field)
            return fact is not None and _compares(field.kind, fact, op, value, moment)


def fields_of(tree: Tree) -> Iterator[Field]:
    """Every field that is asked for, in the order of the expression."""
    match tree:
        case And(parts) | Or(parts):
            for part in parts:
                yield from fields_of(part)
        case Not(of):
            yield from fields_of(of)
        case Compare() | OneOf() | Has():
            yield tree.field


def _compares(kind: str, fact: str | float, op: str, value: Value, now: float) -> bool:
    if kind == TEXT:
        return _text_compares(str(fact), op, str(value))
    if kind == PARAM:
        return _param_compares(fact, op, value)
    assert not isinstance(fact, str)
    return in_order(fact, op, *instants(kind, value, now))


def _text_compares(fact: str, op: str, value: str) -> bool:
    if op in PATTERNS:
        return matches(value, fact) == (op == "~")
    return in_order(fact, op, value, value)


def _param_compares(fact: Fact, op: str, value: Value) -> bool:
    text = text_of(fact)
    assert text is not None
    if isinstance(value, bool):
        return (text == ("true" if value else "false")) == (op == "=")
    if isinstance(value, (int, float)):
        number = number_of(fact)
        return op == "!=" if number is None else in_order(number, op, value, value)
    value = str(value)
    is_number = isinstance(fact, (int, float)) and not isinstance(fact, bool)
    if op in EQUALS:
        same = text == value or (
            is_number and number_of(fact) is not None and number_of(fact) == number_of(value)
        )
        return same == (op == "=")
    if op in ORDERS and not isinstance(fact, str):
        return False
    return _text_compares(text, op, value)


def in_order(fact: Any, op: str, begin: Any, end: Any) -> bool:
    """Compare with what lasts from `begin` up to, and without, `end`; both are the same for all but dates."""
    instant = begin == end
    match op:
        case "<":
            return bool(fact < begin)
        case ">=":
            return bool(fact >= begin)
        case "<=":
            return bool(fact <= begin or fact < end)
        case ">":
            return bool(fact > begin if instant else fact >= end)
    if begin != begin:  # not-a-number is asked for by name, although it equals nothing
        same = fact != fact
    else:
        same = fact == begin if instant else begin <= fact < end
    return bool(same) == (op == "=")


def instants(kind: str, value: Value, now: float) -> tuple[float, float]:
    """What `value` is for a number, a time or a duration: from when to when."""
    if isinstance(value, Moment):
        return value.span()
    if isinstance(value, Duration):
        length = now - value.seconds if kind == TIME else value.seconds
        return length, length
    assert not isinstance(value, str)
    return value, value


def as_span(text: str) -> Value | None:
    """The duration (90s, 1h30m, 2d) or date that is written there; None when it is neither."""
    if _MOMENT.fullmatch(text):
        return Moment(text)
    try:
        return Duration(parse_duration(text))
    except UsageError:
        return None


def shown(value: Value) -> str:
    """`value` as it is written in an expression."""
    if isinstance(value, str):
        is_plain = _PLAIN_WORD.fullmatch(value) and value.lower() not in WORDS
        return value if is_plain else quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def quoted(text: str) -> str:
    """`text` in double quotes, in one line, whatever is in it."""
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _by_number(c)) for c in text) + '"'


def _by_number(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
