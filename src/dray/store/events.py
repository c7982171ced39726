"""The lines of a `*.jsonl` stream, read into what the history stores. docs/design.md, "Streams", has the table.

Read `parse` first: text in, values out, no I/O. A piece where every line is as we expect takes a quick way; one odd line
in it, and the whole piece is read again line by line, with each line judged alone. Both ways agree on every good line,
so it does not matter how a stream was cut into pieces.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from typing import Any, NamedTuple

from dray.store.points import Series

VERSION = 1
UNKNOWN = "unknown"
HEAD = 1000
"""So many bytes of a broken line are kept."""
LONGEST = 8 << 20
"""Bytes of a line. A longer one is set aside in pieces of that size, so that nobody ever has to hold it whole."""
DEEP = 100
"""Brackets inside brackets: more of them, and other readers of the history would stumble."""

RUNNER_KINDS = frozenset({"state", "host", "environment", "note", "gpus"})
TELEMETRY_KINDS = frozenset({"sample", "usage"})

SCRIPT_KINDS = frozenset({"opened", "params", "tags", "table", "image", "text"})
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBERS = {float, int}
_STEPS = {int, type(None)}
_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKETS = re.compile(r"[\[\]{}]")
_scan = getattr(json.JSONDecoder(), "scan_once")  # noqa: B009 - what json.loads calls; typeshed does not list it


class Event(NamedTuple):
    """A line that is no metric; `pos` is where it begins in its stream."""

    pos: int
    kind: str
    t: float
    data: dict[str, Any]


class Broken(NamedTuple):
    """A line that was set aside."""

    pos: int
    length: int
    why: str
    head: bytes


class Batch(NamedTuple):
    """What whole lines said."""

    opened: float | None
    """Time of the first good line."""
    points: dict[str, Series]
    events: list[Event]
    broken: list[Broken]


class _Odd(Exception):
    """This line is not what we expect; says why."""


def decided(data: bytes) -> int:
    """How many bytes of `data`, which begins with a line, can be read: whole lines, and whole pieces of an endless one."""
    whole = data.rfind(b"\n") + 1
    tail = len(data) - whole
    return whole + tail - tail % LONGEST


def parse(lines: bytes, start: int, kinds: frozenset[str] = SCRIPT_KINDS) -> Batch:
    """Read `lines`, the first one at `start` in its stream, as far as they are `decided`."""
    try:
        return _quick(lines, start, kinds)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        StopIteration,
        _Odd,
    ):
        return _careful(lines, start, kinds)


def torn(tail: bytes, start: int) -> Broken:
    """A last line that will never get its newline."""
    return Broken(start, len(tail), "it has no end: the process was killed while writing it", tail[:HEAD])


def judge(event: Any, stream_kinds: frozenset[str]) -> tuple[str, float, dict[str, Any]]:
    """Kind, time and data of an event that did not come as a line of a stream. Raises ValueError for an odd one."""
    try:
        return _judged(event, stream_kinds)
    except (OverflowError, _Odd) as odd:
        raise ValueError(_why(odd)) from None


def refuse_deep(text: str) -> None:
    """Raise ValueError for JSON that is nested more deeply than a line may be, and what may be around one."""
    try:
        _refuse_deep(text, DEEP + 5)
    except _Odd as odd:
        raise ValueError(str(odd)) from None


def plain(text: str) -> str:
    """`text` without lone surrogates, which SQLite cannot store."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _quick(lines: bytes, start: int, kinds: frozenset[str]) -> Batch:
    points: dict[str, Series] = {}
    events = []
    opened = None
    pos = start
    # In ASCII a character is a byte, so positions need no second look; our own writers write nothing else.
    split = lines.decode("ascii").split("\n")
    if split.pop():
        raise _Odd
    for line in split:
        if len(line) > 2 * DEEP:
            _refuse_deep(line)
        event, end = _scan(line, 0)
        if end != len(line):
            raise _Odd
        if event["type"] == "metrics" and event["v"] == VERSION:
            t, data = event["t"], event["data"]
            step = data["step"]
            for name, value in data["values"].items():
                if name not in points:
                    if plain(name) != name:  # it may mean the same as another name
                        raise _Odd
                    points[name] = Series([], [], [])
                steps, times, values = points[name]
                steps.append(step)
                times.append(t)
                values.append(value)
        else:
            kind, t, data = _judged(event, kinds)
            events.append(Event(pos, kind, t, data))
        if opened is None:
            opened = _time(t)
        pos += len(line) + 1
    return Batch(opened, {name: _typed(series) for name, series in points.items()}, events, [])


def _careful(lines: bytes, start: int, kinds: frozenset[str]) -> Batch:
    points: dict[str, Series] = {}
    events = []
    broken = []
    opened = None
    pos = start
    *ended, last = lines.split(b"\n")
    for line in ended:
        tail = len(line) % LONGEST
        broken += _endless(line, pos)
        pos, line = pos + len(line) - tail, line[len(line) - tail :]  # noqa: PLW2901 - judged as a line of its own
        try:
            text = line.decode()
            _refuse_deep(text)
            event = json.loads(text)
            if isinstance(event, dict) and event.get("type") == "metrics" and event.get("v") == VERSION:
                t, fresh = _metrics(event)
                for name, series in fresh.items():
                    points.setdefault(name, Series([], [], [])).extend(series)
            else:
                kind, t, data = _judged(event, kinds)
                events.append(Event(pos, kind, t, data))
            opened = t if opened is None else opened
        except (ValueError, OverflowError, RecursionError, _Odd) as error:
            broken.append(Broken(pos, len(line) + 1, _why(error), line[:HEAD]))
        pos += len(line) + 1
    return Batch(opened, points, events, broken + _endless(last, pos))


def _endless(line: bytes, pos: int) -> list[Broken]:
    """The whole pieces of a line, at `pos` in its stream, that is too long to be one."""
    starts = range(0, len(line) - LONGEST + 1, LONGEST)
    return [Broken(pos + at, LONGEST, "it is too long", line[at : at + HEAD]) for at in starts]


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return "it is not JSON"
    return str(error) if isinstance(error, _Odd) else "a number in it is too big"


def _metrics(event: dict[str, Any]) -> tuple[float, dict[str, Series]]:
    t, data = _time(event.get("t")), event.get("data")
    values = data.get("values") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(values, dict):
        raise _Odd("it has no values")
    fresh: dict[str, Series] = {}
    for name, value in values.items():
        one = _typed(Series([data.get("step")], [t], [value]))
        fresh.setdefault(plain(name), Series([], [], [])).extend(one)
    return t, fresh


def _typed(series: Series) -> Series:
    """The same with true types; refuses what is no number."""
    steps, times, values = series
    if not _STEPS.issuperset(map(type, steps)):
        raise _Odd("its step is not a whole number")
    array("q", [step for step in steps if step is not None])  # OverflowError beyond 64 bits
    kinds = set(map(type, values))
    if str in kinds:  # JSON has no word for these three
        values = [_SPECIAL.get(value, value) if isinstance(value, str) else value for value in values]
        kinds = set(map(type, values))
    if not _NUMBERS.issuperset(kinds):
        raise _Odd("a value in it is not a number")
    if not _NUMBERS.issuperset(map(type, times)):
        raise _Odd("its time is not a number")
    clock = array("d", times).tolist()
    if not math.isfinite(sum(clock)):
        raise _Odd("its time is not a number")
    return Series(steps, clock, array("d", values).tolist())


def _judged(event: Any, kinds: frozenset[str]) -> tuple[str, float, dict[str, Any]]:
    """Kind, time and data of a line that is no metric of our version."""
    if not isinstance(event, dict):
        raise _Odd("it is not an object")
    t, kind, data = _time(event.get("t")), event.get("type"), event.get("data")
    if not isinstance(kind, str):
        raise _Odd("it has no type")
    if type(event.get("v")) not in _NUMBERS:
        raise _Odd("it has no version")
    if event["v"] != VERSION or kind not in kinds:
        return UNKNOWN, t, event
    if not isinstance(data, dict):
        raise _Odd("it has no data")
    _check(kind, data)
    return kind, t, data


def _check(kind: str, data: dict[str, Any]) -> None:
    if kind in {"params", "tags"}:
        allowed = (str,) if kind == "tags" else (str, int, float, bool, type(None))
        values = data.get("values")
        if not isinstance(values, dict) or not all(isinstance(value, allowed) for value in values.values()):
            raise _Odd(f"its {kind} are not plain values by name")
    elif kind in {"table", "image", "text"}:
        if not isinstance(data.get("name"), str) or type(data.get("step")) not in _STEPS:
            raise _Odd("it has no name, or its step is not a whole number")
        rows = data.get("rows")
        if kind == "table" and not (
            isinstance(data.get("columns"), list)
            and isinstance(rows, list)
            and all(isinstance(row, list) for row in rows)
        ):
            raise _Odd("it has no columns and rows")
        if kind == "image" and not isinstance(data.get("stream"), str):
            raise _Odd("it names no picture")
    elif kind in {"sample", "usage", "gpus"}:
        rows = data.get("devices" if kind == "gpus" else "gpus")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise _Odd("it has no list of GPUs")
    elif kind == "state" and not isinstance(data.get("state"), str):
        raise _Odd("it names no state")
    elif kind == "note" and not isinstance(data.get("text"), str):
        raise _Odd("it has no text")


def _time(t: Any) -> float:
    if type(t) not in _NUMBERS or not math.isfinite(float(t)):
        raise _Odd("its time is not a number")
    return float(t)


def _refuse_deep(line: str, most: int = DEEP) -> None:
    if len(line) >= LONGEST:
        raise _Odd("it is too long")
    if line.count("{") + line.count("[") <= most:
        return
    depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub("", line)):
        depth += 1 if bracket in "[{" else -1
        if depth > most:
            raise _Odd("it is nested too deeply")
