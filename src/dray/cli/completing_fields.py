"""What can come next in an expression, a sorting or a list of columns: fields, operators, values, from the history."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dray.core.states import RunState
from dray.core.where_error import WhereError
from dray.core.where_tree import (
    DURATION,
    FAMILIES,
    KINDS,
    NUMBER,
    PARTS,
    TEXT,
    TIME,
    Field,
    quoted,
    shown,
)
from dray.store.peek import Peek

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<term>(?:[^\s"'()=!<>~,&|;]|"(?:[^"\\]|\\.)*(?:"|\Z)|'(?:[^'\\]|\\.)*(?:'|\Z))+)
    |(?P<op>==|!=|<=|>=|!~|[=<>~])|(?P<mark>[(),])|(?P<odd>.)""",
    re.VERBOSE | re.DOTALL,
)
_OPERATORS = {
    TEXT: ("=", "!=", "~", "!~", "in ("),
    NUMBER: ("<", "<=", ">", ">=", "=", "!="),
    TIME: (">", "<", ">=", "<="),
    DURATION: (">", "<", ">=", "<="),
}
_LISTED = ("experiment", "compute", "name", "reason")
_TIMES = ("1h", "1d", "7d", "30d")
_ROUNDS = 4


class Next(NamedTuple):
    """One way to go on."""

    text: str
    about: str = ""
    is_end: bool = False
    """A person may well stop here; else more must follow."""


class _Place(NamedTuple):
    """Where the cursor is in an expression."""

    expects: str
    """field, operator, value, or joint: what binds one comparison to the next."""
    partial: str
    field: str
    """The field of the comparison that the cursor is in."""
    is_list: bool


def expression(peek: Peek, text: str, *, is_open: bool) -> list[Next]:
    """Whole expressions that `text` may become.

    `is_open`: it stands in an open quote, which a shell closes behind the only way to go on. So what must be followed by
    more comes with that already.
    """
    found = list(_expression(peek, text))
    for _ in range(_ROUNDS if is_open else 0):
        if len(found) != 1 or found[0].is_end:
            break
        only = found[0].text
        further = list(_expression(peek, only if only.endswith((".", "(")) else only + " "))
        if not further:
            break
        found = further
    return found


def fields(peek: Peek, text: str, *, may_descend: bool) -> list[Next]:
    """Whole lists of fields that `text` may become; with `may_descend` a `-` may stand in front of each."""
    tokens = list(_TOKEN.finditer(text))
    last = tokens[-1] if tokens and tokens[-1].lastgroup == "term" else None
    partial = last[0] if last else ""
    before = text[: len(text) - len(partial)]
    if may_descend and partial.startswith("-"):
        before, partial = before + "-", partial[1:]
    return [Next(before + one.text, one.about) for one in _fields(peek, partial)]


def _expression(peek: Peek, text: str) -> Iterator[Next]:
    place = _place(text)
    before = text[: len(text) - len(place.partial)]
    for one in _at(peek, place):
        if one.text.startswith(place.partial):
            yield one._replace(text=before + one.text)


def _place(text: str) -> _Place:
    expects, field, is_list, previous = "field", "", False, ""
    tokens = [token for token in _TOKEN.finditer(text) if token.lastgroup != "space"]
    # A word that touches the cursor may go on.
    partial = (
        tokens.pop()[0] if tokens and tokens[-1].lastgroup == "term" and tokens[-1].end() == len(text) else ""
    )
    for token in tokens:
        word = token[0].lower() if token.lastgroup == "term" else token[0]
        if word == "(":
            is_list = previous == "in"
            expects = "value" if is_list else "field"
        elif word == ")":
            expects, is_list = "joint", False
        elif word == "," or token.lastgroup == "op":
            expects = "value"
        elif word in ("and", "or", "not"):
            expects = "field"
        elif word == "in":
            expects = "list"
        elif expects == "field":
            expects, field = "operator", token[0]
        else:
            expects = "joint"
        previous = word
    return _Place(expects, partial, field, is_list)


def _at(peek: Peek, place: _Place) -> Iterator[Next]:
    if place.expects == "field":
        yield from _fields(peek, place.partial)
        yield Next("not")
    elif place.expects == "operator":
        kind = _kind(place.field)
        for operator in _OPERATORS.get(kind, (*_OPERATORS[NUMBER], "~", "in (")):
            yield Next(operator)
        yield from (Next("and"), Next("or"))
    elif place.expects == "value":
        for one in _values(peek, place.field, place.partial):
            yield one._replace(is_end=not place.is_list)
    elif place.expects == "joint":
        yield from (Next(","), Next(")", is_end=True)) if place.is_list else (Next("and"), Next("or"))
    elif place.expects == "list":
        yield Next("(")


def _fields(peek: Peek, partial: str) -> Iterator[Next]:
    """Fields that begin so; of the three families the names, once the dot is there."""
    family, dot, name = partial.partition(".")
    if not dot:
        for known in KINDS:
            if known.startswith(partial):
                yield Next(known)
        for known in FAMILIES:
            if known.startswith(partial):
                yield Next(f"{known}.", "by name")
        return
    if family not in FAMILIES:
        return
    is_quoted = name.startswith('"')
    for found in peek.names(family, "" if is_quoted else name):
        text = f"{family}.{quoted(found)}" if is_quoted else str(Field(family, found))
        if text.startswith(partial):
            yield Next(text)
    whole, _, part = name.rpartition(".")
    if family == "metrics" and whole and whole in peek.names(family, whole):
        yield from (Next(f"metrics.{whole}.{one}") for one in PARTS if one.startswith(part) and one != "last")


def _values(peek: Peek, field: str, partial: str) -> Iterator[Next]:
    read = _read(field)
    if read is None:
        return
    if read.family == "status":
        yield from (Next(str(state)) for state in RunState)
    elif read.kind == TIME:
        yield from (Next(length, "ago") for length in _TIMES)
    elif read.family in _LISTED or read.family in ("tags", "params"):
        # Of 100,000 names only those that begin so; what is written with a backslash is looked for among the most common.
        prefix = "" if "\\" in partial else partial.removeprefix('"')
        for value, count in peek.values(read, prefix):
            text = shown(str(value)) if read.family != "params" else _param(str(value))
            if partial.startswith('"') and not text.startswith('"'):
                text = quoted(str(value))
            yield Next(text, f"{count} runs" if count != 1 else "1 run")


def _param(value: str) -> str:
    """As it is written: numbers and truths bare."""
    from dray.core.scalars import as_number

    return value if as_number(value) is not None or value in ("true", "false") else shown(value)


def _kind(field: str) -> str:
    read = _read(field)
    return read.kind if read is not None else ""


def _read(field: str) -> Field | None:
    from dray.core.where import parse_columns

    try:
        return parse_columns(field)[0]
    except WhereError:
        return None
