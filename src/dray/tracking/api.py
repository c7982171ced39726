"""The five functions that scripts call. None of them ever raises for dray's own trouble, or keeps anything back.

`log` is the one that is called a million times: what it does for plain floats and ints is written out here, and all
else is left to `values.py`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from .speech import say_once
from .stream import Stream, current
from .values import (
    LARGEST_EXACT,
    LARGEST_FLOAT,
    _names,
    as_text,
    cell,
    key,
    number,
    quote,
    quote_name,
    short,
    step_text,
)

LARGEST_LINE = 900_000
"""Streams travel in pieces of 1 MiB, and readers take whole lines; what is longer is split or cut."""


def log(values: Optional[Mapping[str, Any]] = None, /, step: Any = None, **named: Any) -> None:
    """Record numbers: `log(loss=0.3, step=7)`, or `log({"val/loss": 0.3}, step=7)` for other names.

    One write a call, no buffer. A string is kept as a text event, even "0.3": what is a number, the script decides.
    """
    try:
        stream = current()
        if stream is None:
            return
        if values is not None:
            named, step = _merged(values, named, step)
        if type(step) is not int or not -LARGEST_EXACT <= step <= LARGEST_EXACT:
            step = step_text(step)
        parts = []
        for name, value in named.items():
            kind = type(value)
            if kind is float and -LARGEST_FLOAT <= value <= LARGEST_FLOAT:
                shown: Optional[str] = repr(value)
            elif kind is int and -LARGEST_EXACT <= value <= LARGEST_EXACT:
                shown = str(value)
            else:
                shown = _unusual(stream, name, value, step)
                if shown is None:
                    continue
            quoted = _names.get(name) or key(name)
            if quoted is not None:
                parts.append(f"{quoted}{shown}")
        if parts:
            body = ",".join(parts)
            if len(body) > LARGEST_LINE:
                _write_split(stream, f'"type":"metrics","data":{{"step":{step},', parts)
            else:
                stream.write(f'"type":"metrics","data":{{"step":{step},"values":{{{body}}}}}')
    except Exception as trouble:  # the script comes first
        _complain("log", trouble)


def log_params(values: Any = None, /, **named: Any) -> None:
    """Record what the run was given: `log_params(lr=0.1)`, `log_params(vars(args))`. The last value of a name counts."""
    try:
        stream = current()
        if stream is not None:
            _write_values(stream, "params", _mapping(values, named, "log_params"), cell)
    except Exception as trouble:  # the script comes first
        _complain("log_params", trouble)


def tag(values: Any = None, /, **named: Any) -> None:
    """Put words on the run, to find it by: `tag(stage="dev")`."""
    try:
        stream = current()
        if stream is not None:
            _write_values(stream, "tags", _mapping(values, named, "tag"), _tag_text)
    except Exception as trouble:  # the script comes first
        _complain("tag", trouble)


def log_table(name: str, rows: Any, columns: Any = None, step: Any = None) -> None:
    """Record a table: a list of dicts, a list of lists, a dict of columns, a data frame or an array."""
    try:
        stream = current()
        if stream is None:
            return
        from .tables import shaped  # few scripts log tables

        heads, cells = shaped(rows, columns)
        head = f'"name":{quote_name(name)},"step":{step_text(step)},"columns":[{",".join(map(quote_name, heads))}]'
        lines: List[str] = []
        room = LARGEST_LINE - len(head)
        if room < 0:
            raise ValueError(f"{len(heads)} columns are more than a line can hold")
        for row in cells:
            line = f"[{','.join(map(cell, row))}]"
            room -= len(line) + 1
            if room < 0:
                say_once(
                    ("table", as_text(name)),
                    f"table {short(name)} is large; its first {len(lines)} rows are kept",
                )
                break
            lines.append(line)
        stream.write(f'"type":"table","data":{{{head},"rows":[{",".join(lines)}]}}')
    except Exception as trouble:  # the script comes first
        _complain("log_table", trouble)


def log_image(name: str, figure_or_path_or_bytes: Any, step: Any = None) -> None:
    """Record a picture: a matplotlib figure, a PIL image, the path of a file, or the bytes of one."""
    try:
        stream = current()
        if stream is None:
            return
        from .pictures import keep  # few scripts log pictures

        media, size = keep(stream.folder, figure_or_path_or_bytes)
        what = f'"name":{quote_name(name)},"step":{step_text(step)},"stream":"{media}","bytes":{size}'
        stream.write(f'"type":"image","data":{{{what}}}')
    except Exception as trouble:  # the script comes first
        _complain("log_image", trouble)


def _unusual(stream: Stream, name: Any, value: Any, step: Any) -> Optional[str]:
    """The number in `value`, if it is one. A string becomes an event of its own; anything else is named and left out."""
    if isinstance(value, str):
        if name == "":
            key(name)  # says that there is no name
            return None
        say_once(
            ("text", as_text(name)),
            f"metric {short(name)} was given the text {short(value)}; it is kept as text, not as a number",
        )
        stream.write(
            f'"type":"text","data":{{"name":{quote_name(name)},"step":{step},"value":{quote(as_text(value))}}}'
        )
        return None
    shown = number(value)
    if shown is None:
        too_large = isinstance(value, int)
        what = "a whole number that is too large" if too_large else f"{_kind(value)}, which is no number"
        say_once(("metric", as_text(name)), f"metric {short(name)} was given {what}; it is left out")
    return shown


def _write_values(stream: Stream, kind: str, values: Mapping[Any, Any], text_of: Any) -> None:
    parts = []
    for name, value in values.items():
        quoted = key(name)
        if quoted is not None:
            parts.append(quoted + text_of(value))
    _write_split(stream, f'"type":"{kind}","data":{{', parts)


def _write_split(stream: Stream, head: str, parts: List[str]) -> None:
    """Write the values in as many lines as they need; for a reader that is the same as several calls."""
    line: List[str] = []
    room = LARGEST_LINE
    for part in parts:
        if line and len(part) >= room:
            stream.write(f'{head}"values":{{{",".join(line)}}}}}')
            line, room = [], LARGEST_LINE
        line.append(part)
        room -= len(part) + 1
    if line:
        stream.write(f'{head}"values":{{{",".join(line)}}}}}')


def _tag_text(value: Any) -> str:
    return quote("" if value is None else as_text(value))


def _merged(values: Any, named: Dict[str, Any], step: Any) -> Tuple[Dict[Any, Any], Any]:
    if isinstance(values, int) and step is None:
        return named, values  # log(7, loss=0.3): the step came first
    return _mapping(values, named, "log"), step


def _mapping(values: Any, named: Dict[str, Any], function: str) -> Dict[Any, Any]:
    """Both halves of a call in one dict. An argparse namespace or a dataclass counts as a dict of its fields."""
    if values is None:
        return named
    if not hasattr(values, "items") and hasattr(values, "__dict__") and not isinstance(values, type):
        values = vars(values)
    if not hasattr(values, "items"):
        say_once(
            (function, "mapping"),
            f"{function}() was given {_kind(values)}; it takes a dict, or names and values",
        )
        return named
    return {**dict(values.items()), **named}


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _complain(function: str, trouble: Exception) -> None:
    say_once(
        (function, type(trouble)),
        f"{function}() could not record this: {short(trouble) if trouble.args else type(trouble).__name__}",
    )
