"""Plain files, as `to_files` writes them, read back into a run that can be stored. Nothing in them is believed unseen.

Read `read` first. Sizes and digests of the files have been checked by who calls; here is checked what they say.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from dray.store import events, points, shapes, streams
from dray.store.contents import Edit
from dray.store.errors import UnsafeName
from dray.store.events import Broken, Event
from dray.store.runs import check_id
from dray.store.to_files import EDITS, HEADER, RUN, VERSION, metrics_path, stream_path
from dray.store.whole import WholeRun, WholeStream

MOST_JSON = 64 << 20
"""Bytes of run.json, of an end.json, of edits.json."""
MOST_LINE = 256 << 20
"""Bytes of one line."""
MOST_STREAMS = 100_000
_MOST_NAME = 16 << 20
_END = re.compile(r"attempts/([1-9][0-9]{0,6})/end\.json")
_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

Open = Callable[[str], BinaryIO]


class Misfit(Exception):
    """A file does not say what it has to."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why


def read(sizes: Mapping[str, int], opened: Open) -> WholeRun:
    """The run in those files; `sizes` are theirs by path. Raises Misfit."""
    document = _document(RUN, sizes, opened)
    with _about(RUN):
        spec, facts, rows = _checked(document)
    ends = {
        int(found[1]): _end(path, sizes, opened) for path in sorted(sizes) if (found := _END.fullmatch(path))
    }
    if facts["end"] is not None and facts["end"] not in ends:
        raise Misfit(RUN, f"it ends with attempt {facts['end']}, and that has no end.json")
    return WholeRun(
        spec["id"],
        spec,
        facts,
        ends,
        [_stream(row, sizes, opened) for row in rows],
        _edits(sizes, opened),
    )


@contextlib.contextmanager
def _about(path: str) -> Iterator[None]:
    """Whatever is wrong inside is wrong with that file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise Misfit(path, "it is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise Misfit(path, "it is not JSON") from error
    except UnsafeName as error:
        raise Misfit(path, error.what) from error
    except RecursionError as error:
        raise Misfit(path, "it is nested too deeply") from error
    except (ValueError, OverflowError, csv.Error) as error:
        raise Misfit(path, str(error)) from error


def _document(path: str, sizes: Mapping[str, int], opened: Open) -> Any:
    if path not in sizes:
        raise Misfit(path, "it is not there")
    if sizes[path] > MOST_JSON:
        raise Misfit(path, f"it is larger than {MOST_JSON} bytes")
    with _about(path):
        with opened(path) as file:
            text = file.read(MOST_JSON).decode()
        events.refuse_deep(text)
        return json.loads(text)


def _checked(document: Any) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Spec, facts and streams of run.json."""
    shapes.require(document, {"v": shapes.count, "spec": shapes.fields({})}, "run.json")
    if document["v"] != VERSION:
        raise ValueError(f"a newer dray wrote it, in form {document['v']}; this dray knows {VERSION}")
    spec = shapes.require(document["spec"], shapes.SPEC, "the spec")
    shapes.require(spec, shapes.SPEC_MORE, "the spec", optional=True)
    check_id(spec["id"])
    facts = shapes.require(document, shapes.FACTS, "run.json")
    rows = shapes.require(document, {"streams": shapes.several(shapes.fields({}))}, "run.json")["streams"]
    if len(rows) > MOST_STREAMS:
        raise ValueError(f"it has more than {MOST_STREAMS} streams")
    places = set()
    for row in rows:
        shapes.require(row, shapes.STREAM, "a stream")
        streams.check_stream(row["attempt"], row["name"])
        places.add((row["attempt"], row["name"]))
    if len(places) < len(rows):
        raise ValueError("it has the same stream twice")
    return spec, facts, rows


def _end(path: str, sizes: Mapping[str, int], opened: Open) -> str:
    end = _document(path, sizes, opened)
    with _about(path):
        return json.dumps(shapes.require(end, shapes.END, "the end", optional=True))


def _edits(sizes: Mapping[str, int], opened: Open) -> list[Edit]:
    if EDITS not in sizes:
        return []
    rows = _document(EDITS, sizes, opened)
    with _about(EDITS):
        if not isinstance(rows, list):
            raise shapes.DoesNotFit("it is not a list")
        for row in rows:
            shapes.require(row, shapes.EDIT, "an edit")
        found = [Edit(row["kind"], row["key"], row["value"], float(row["t"])) for row in rows]
        if len({edit[:2] for edit in found}) < len(found):
            raise ValueError("it says the same thing twice")
        return found


def _stream(row: dict[str, Any], sizes: Mapping[str, int], opened: Open) -> WholeStream:
    attempt, name, size = row["attempt"], row["name"], row["bytes"]
    path, table = stream_path(attempt, name), metrics_path(attempt, name)
    said: list[Event] = []
    broken: list[Broken] = []
    series: dict[str, points.Packed] = {}
    if not streams.holds_events(name):
        if sizes.get(path) != size:
            raise Misfit(path, f"run.json says that it has {size} bytes")
    else:
        kinds = streams.kinds_of(name)
        if path in sizes:
            with _about(path), opened(path) as file:
                said, broken = _lines(file, size, kinds)
        if table in sizes:
            with _about(table), opened(table) as file:
                series = _series(file)
    return WholeStream(attempt, name, size, row["opened"], said, broken, series)


def _lines(file: BinaryIO, size: int, kinds: frozenset[str]) -> tuple[list[Event], list[Broken]]:
    """What `_lines` of `to_files` gave."""
    said: list[Event] = []
    broken: list[Broken] = []
    before = -1
    for line in _each_line(file):
        text = line.decode()
        events.refuse_deep(text)
        row = shapes.require(json.loads(text), {"pos": shapes.count}, "a line")
        if not before < row["pos"] < size:
            raise ValueError("its lines are in no order, or lie beyond the end of the stream")
        before = row["pos"]
        if "broken" in row:
            shapes.require(row, {"broken": shapes.text, "bytes": shapes.count, "head": shapes.text}, "a line")
            broken.append(Broken(before, row["bytes"], row["broken"], row["head"].encode("latin-1")))
            continue
        event = row.get("event")
        if isinstance(event, str):  # it holds a NaN, which is no JSON
            events.refuse_deep(event)
            event = json.loads(event)
        said.append(Event(before, *events.judge(event, kinds)))
    return said, broken


def _each_line(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MOST_LINE + 1):
        if len(line) > MOST_LINE:
            raise ValueError(f"a line of it is longer than {MOST_LINE} bytes")
        yield line


def _series(file: BinaryIO) -> dict[str, points.Packed]:
    """What `_table` of `to_files` gave."""
    if csv.field_size_limit() < _MOST_NAME:
        csv.field_size_limit(_MOST_NAME)
    lines = (line.decode() for line in _each_line(file))
    if next(lines, None) != HEADER:
        raise ValueError(f"its first line is not `{HEADER.strip()}`")
    rows = csv.reader(lines, strict=True)
    found: dict[str, _Packing] = {}
    packing = None
    name = None
    for row in rows:
        if len(row) != 4:
            raise ValueError(f"line {rows.line_num + 1} has not four cells")
        if packing is None or row[0] != name:
            name = row[0]
            packing = found.setdefault(name, _Packing())
        packing.waiting.append(row)
        if len(packing.waiting) == points.FULL:
            packing.pack()
    return {name: packing.done() for name, packing in found.items()}


class _Packing:
    """A series that is being read, a block at a time."""

    def __init__(self) -> None:
        self.waiting: list[list[str]] = []
        self._blocks: list[tuple[Any, ...]] = []
        self._n = 0
        self._last: points.Point = (None, 0.0, 0.0)

    def pack(self) -> None:
        """Make a block of what waits."""
        if not self.waiting:
            return
        _, steps, times, values = zip(*self.waiting, strict=True)
        piece = points.Series(
            [int(step) if step else None for step in steps],
            [float(t) for t in times],
            [_WORDS[value] if value in _WORDS else float(value) for value in values],
        )
        array("q", [step for step in piece.steps if step is not None])  # OverflowError beyond 64 bits
        if not all(map(shapes.number, piece.times)):
            raise ValueError("a time in it is not a number")
        self._blocks.append(points.block(self._n, piece))
        self._n += len(piece.values)
        self._last = (piece.steps[-1], piece.times[-1], piece.values[-1])
        self.waiting.clear()

    def done(self) -> points.Packed:
        """The whole series."""
        self.pack()
        lows = [block[2] for block in self._blocks if block[2] is not None]
        highs = [block[3] for block in self._blocks if block[3] is not None]
        span = (min(lows), max(highs)) if lows else (None, None)
        return points.Packed(self._blocks, self._n, span, self._last)
