"""What was asked of the history, and what to say when it has no answer: unknown names, expressions that fit no run.

The language itself is in `dray.core.where`, its SQL in the store. Here are the sentences around both.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dray.core.durations import show_duration
from dray.core.errors import nearest, printable
from dray.core.where_tree import (
    DURATION,
    FAMILIES,
    NUMBER,
    PARAM,
    TEXT,
    TIME,
    And,
    Compare,
    Field,
    Has,
    OneOf,
    Sort,
    Tree,
    fields_of,
)

if TYPE_CHECKING:
    from dray.store import Store

NOUNS = {"metrics": "metric", "params": "parameter", "tags": "tag"}
_FEW = 6
_MOST_NAMES = 2000
_MOST_PARTS = 12
_LONGEST = 80


def tree_of(
    where: Tree | str | None, experiment: str | None = None, status: str | None = None
) -> Tree | None:
    """All of it as one expression; None when nothing was asked. Raises WhereError."""
    parts: list[Tree] = []
    if experiment is not None:
        parts.append(Compare(Field("experiment"), "=", experiment))
    if status is not None:
        parts.append(Compare(Field("status"), "=", str(status)))
    if isinstance(where, str):
        from dray.core.where import parse

        parts.append(parse(where))
    elif where is not None:
        parts.append(where)
    return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


def sort_of(sort: Sequence[Sort] | str | None) -> tuple[Sort, ...]:
    """What the runs are ordered by. Raises WhereError."""
    if isinstance(sort, str):
        from dray.core.where import parse_sort

        return parse_sort(sort)
    return tuple(sort or ())


def fields_from(columns: Sequence[Field] | str) -> tuple[Field, ...]:
    """Which fields are to be shown. Raises WhereError."""
    if isinstance(columns, str):
        from dray.core.where import parse_columns

        return parse_columns(columns)
    return tuple(columns)


def asked_fields(tree: Tree | None, sort: Iterable[Sort] = ()) -> list[Field]:
    """Every field of an expression and a sorting, once, in their order."""
    of_tree = fields_of(tree) if tree is not None else ()
    return list(dict.fromkeys([*of_tree, *(by.field for by in sort)]))


def unknown_names(store: Store, fields: Iterable[Field]) -> list[str]:
    """A sentence for each metric, parameter or tag that no run has."""
    names = dict.fromkeys((field.family, field.name) for field in fields if field.family in FAMILIES)
    return [_unknown(store, *name) for name in names if not _is_known(store, *name)]


def why_none(store: Store, tree: Tree | None) -> list[str]:
    """Why no run fits: how many there are, and what each part of the expression finds by itself."""
    total = store.count()
    if not total:
        return ["no run yet"]
    first = f"no run fits; the history has {_runs(total)}"
    if tree is None:
        return [first]
    parts = list(_parts(tree))[:_MOST_PARTS]
    counts = [store.count(where=part) for part in parts]
    lines = [
        f"{_shortened(part)}: {_runs(count) if count else 'none' + _there_is(store, part)}"
        for part, count in zip(parts, counts, strict=True)
    ]
    if len(parts) > 1 and all(counts):
        lines.append("each fits some runs, but none fits all of it")
    return [first, *lines]


def _parts(tree: Tree) -> Iterator[Tree]:
    """What has to hold together, each by itself."""
    if isinstance(tree, And):
        for part in tree.parts:
            yield from _parts(part)
    else:
        yield tree


def _shortened(tree: Tree) -> str:
    text = str(tree)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _runs(count: int) -> str:
    return f"{count:,} run{'s' * (count != 1)}"


def _is_known(store: Store, family: str, name: str) -> bool:
    return store.names(family, name, 1) == [name]  # type: ignore[arg-type] # one of FAMILIES


def _unknown(store: Store, family: str, name: str) -> str:
    noun = NOUNS[family]
    shown = f"no run has a {noun} `{printable(name)}`"
    for other in FAMILIES:
        if other != family and _is_known(store, other, name):
            return f"{shown}; it is a {NOUNS[other]}: {Field(other, name)}"
    known = store.names(family, "", _MOST_NAMES)  # type: ignore[arg-type] # one of FAMILIES
    near = nearest(name, known)
    if near is not None:
        return f"{shown}; did you mean `{printable(near)}`?"
    if not known:
        return f"{shown}, nor any other"
    more = " ..." if len(known) > _FEW else ""
    return f"{shown}; there is {', '.join(f'`{printable(one)}`' for one in known[:_FEW])}{more}"


def _there_is(store: Store, part: Tree) -> str:
    """What there is instead of what one comparison asks for."""
    if not isinstance(part, (Compare, OneOf, Has)) or part.field.family in ("id", "note"):
        return ""
    field = part.field
    if field.family in FAMILIES and not _is_known(store, field.family, field.name):
        return f"; no run has {field}"
    if isinstance(part, Has) and field.kind != PARAM:
        return ""
    wanted = part.value if isinstance(part, Compare) else None
    is_measure = field.kind in (NUMBER, TIME, DURATION)
    # A parameter has a few values, or is as good as continuous.
    if is_measure or (field.kind == PARAM and len(store.values(field, _FEW + 1)) > _FEW):
        span = None if isinstance(wanted, (str, bool)) else store.span(field)
        if span is not None:
            low, high = (_shown(field.kind, value) for value in span)
            return f"; there is {low}" if low == high else f"; it lies between {low} and {high}"
    if field.kind in (TEXT, PARAM):
        return _values(store, field, wanted if isinstance(wanted, str) else None)
    return f"; no run has {field}"


def _values(store: Store, field: Field, wanted: str | None) -> str:
    known = store.values(field, _MOST_NAMES)
    if not known:
        return f"; no run has {field}"
    near = nearest(wanted, [str(value) for value, _ in known]) if wanted else None
    if near is not None:
        return f"; did you mean `{printable(near)}`?"
    shown = ", ".join(f"`{printable(str(value))}` ({count})" for value, count in known[:_FEW])
    return f"; there is {shown}{' ...' if len(known) > _FEW else ''}"


def _shown(kind: str, value: Any) -> str:
    if kind == TIME:
        return time.strftime("%Y-%m-%dT%H:%M", time.localtime(value))
    return show_duration(value) if kind == DURATION else f"{value:.6g}"
