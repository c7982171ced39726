"""Finds rows and columns in the many shapes that people call a table, without importing the libraries they are from."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

Shape = Tuple[List[Any], List[List[Any]]]


def shaped(rows: Any, columns: Optional[Iterable[Any]] = None) -> Shape:
    """Column names and rows, each row as long as there are columns."""
    named = None if columns is None else list(columns)
    if hasattr(rows, "to_dict"):
        rows = _from_frame(rows)
    elif hasattr(rows, "tolist"):
        rows = rows.tolist()
    if isinstance(rows, _Split):
        heads, body = rows.columns, rows.rows
    elif isinstance(rows, Mapping):
        heads, body = _from_columns(rows)
    elif isinstance(rows, (str, bytes)) or not hasattr(rows, "__iter__"):
        raise TypeError(f"a table is a list of rows, not a value of type {type(rows).__name__}")
    else:
        heads, body = _from_rows(rows, named)
    return _even(named or heads, body)


class _Split:
    """A frame taken apart."""

    def __init__(self, columns: List[Any], rows: List[Any]) -> None:
        self.columns = columns
        self.rows = rows


def _from_frame(frame: Any) -> Any:
    try:
        split = frame.to_dict("split")  # pandas: the only form that keeps columns of the same name
        return _Split(list(split["columns"]), list(split["data"]))
    except Exception:  # not every to_dict knows that word, and each says so in its own way
        return frame.to_dict()


def _from_columns(table: Mapping[Any, Any]) -> Shape:
    """{"a": [1, 2], "b": [3, 4]}; a dict of plain values is a table of two columns."""
    parts = {name: _listed(column) for name, column in table.items()}
    whole: Dict[Any, List[Any]] = {name: column for name, column in parts.items() if column is not None}
    if len(whole) != len(parts):
        return ["name", "value"], [[name, value] for name, value in table.items()]
    length = max((len(column) for column in whole.values()), default=0)
    return list(whole), [[c[i] if i < len(c) else None for c in whole.values()] for i in range(length)]


def _listed(column: Any) -> Optional[List[Any]]:
    if isinstance(column, Mapping):
        return list(column.values())
    if isinstance(column, (str, bytes)) or not hasattr(column, "__iter__"):
        return None
    return list(column)


def _from_rows(rows: Iterable[Any], named: Optional[List[Any]]) -> Shape:
    body: List[List[Any]] = []
    heads: Dict[Any, None] = dict.fromkeys(named or [])
    for given in rows:
        row = given.tolist() if hasattr(given, "tolist") else given
        if isinstance(row, Mapping):
            if named is None:
                heads.update(dict.fromkeys(row))
            body.append([row])
        elif isinstance(row, (str, bytes)) or not hasattr(row, "__iter__"):
            body.append([row])
        else:
            body.append(list(row))
    names = list(heads)
    return names, [[r[0].get(n) for n in names] if r and isinstance(r[0], Mapping) else r for r in body]


def _even(heads: List[Any], body: List[List[Any]]) -> Shape:
    width = max([len(heads)] + [len(row) for row in body])
    # Columns nobody named are called by their number, counted from 0 as in an array.
    return heads + list(range(len(heads), width)), [list(row) + [None] * (width - len(row)) for row in body]
