"""Draws curves with characters: a title, an axis on the left, one below, a legend.

Read `draw` first. The dots are plotille's; the axes, the legend and the colours are drawn here, because a user's terminal has a
width that must be kept, names are from outside, and curves have to be told apart without colours too: each has a letter of
its own on it. All that is returned is safe for a terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dray.cli.axes import MOMENT, NUMBER, Axis, Tick
from dray.cli.tables import columns, shorten
from dray.core.errors import printable

NARROWEST, LOWEST = 20, 6
MARKS = "ox+*#@%&"
_COLOURS = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)
_FAINT, _BOLD = "2", "1"
_BLANK = 0x2800  # braille without a dot; the eight bits above are the dots
_FEWEST_ROWS = 3
_NEARLY_NOTHING = 0.02
_NAN = math.nan


class Point(NamedTuple):
    """One row of a curve; not-a-number where there is nothing to draw. `low` and `high` are the span it stands for."""

    x: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A line. Where x goes back, or a value is missing, the pen is lifted."""

    label: str
    points: Sequence[Point]
    smooth: Sequence[float] = ()
    """If any: one value for each point, drawn in front of them."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves that share their axes."""

    title: str
    curves: Sequence[Curve]
    x_kind: str = NUMBER
    log: bool = False


@dataclass(frozen=True, slots=True)
class Ink:
    """What the paper can show."""

    coloured: bool = False
    braille: bool = True


class _Cell(NamedTuple):
    text: str
    style: str = ""


class _Field:
    """The place for the curves: `width` times `height` characters, each two dots wide and four high."""

    def __init__(self, width: int, height: int, x: Axis, y: Axis, ink: Ink) -> None:
        self.width, self.height, self.x, self.y, self.ink = width, height, x, y, ink
        self._bits = [[0] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]
        self._marks: list[list[str]] = [[""] * width for _ in range(height)]

    def dot(self, x: float, y: float) -> tuple[int, int]:
        """Column and row of the dot at (x, y), from the lower left."""
        return (
            round(self.x.place(x) * (self.width * 2 - 1)),
            round(self.y.place(y) * (self.height * 4 - 1)),
        )

    def line(self, points: Sequence[Point], style: str, mark: str) -> None:
        """Join the points, and draw the span of each."""
        from plotille import Canvas

        canvas = Canvas(self.width, self.height, 0, 0, self.width * 2, self.height * 4)
        before: Point | None = None
        for point in points:
            if not math.isfinite(point.value):
                before = None
                continue
            here = self.dot(point.x, point.value)
            start = here if before is None or before.x > point.x else self.dot(before.x, before.value)
            canvas.line(*start, *here)
            canvas.line(*self.dot(point.x, point.low), *self.dot(point.x, point.high))
            before = point
        self._lay(canvas.plot(linesep="\n").split("\n"), style, mark)

    def _lay(self, rows: Sequence[str], style: str, mark: str) -> None:
        for y, row in enumerate(rows):
            for x, char in enumerate(row):
                if char != chr(_BLANK):
                    self._bits[y][x] |= ord(char) - _BLANK
                    self._styles[y][x] = style
                    self._marks[y][x] = "" if self.ink.braille else mark

    def mark(self, points: Sequence[Point], style: str, mark: str, nth: int, of: int) -> None:
        """Write the curve's letter on it now and then, at other places than those of the other curves; and at its end."""
        real = [point for point in points if math.isfinite(point.value)]
        every = max(self.width // 6, 4)
        wanted = every * nth / of
        for count, point in enumerate(real, 1):
            x, y = self.dot(point.x, point.value)
            if x // 2 >= wanted or count == len(real):
                wanted = x // 2 + every
                row = self.height - 1 - y // 4
                self._marks[row][x // 2], self._styles[row][x // 2] = mark, style

    def rows(self) -> Iterator[list[_Cell]]:
        """The characters, from above."""
        for bits, styles, marks in zip(self._bits, self._styles, self._marks, strict=True):
            yield [
                _Cell(mark or (chr(_BLANK + dots) if dots else " "), style)
                for dots, style, mark in zip(bits, styles, marks, strict=True)
            ]


def draw(panel: Panel, width: int, height: int, ink: Ink) -> list[str]:
    """The lines of a drawing; none is wider than `width`, and there are `height` if that is enough for the legend."""
    width, height = max(width, NARROWEST), max(height, LOWEST)
    curves = [_shown(curve, panel.log, ink) for curve in panel.curves]
    title = [[_Cell(_fit(panel.title, width, ink), _BOLD)]]
    legend = _legend(curves, width, ink) if curves else []
    if not any(math.isfinite(point.value) for curve in curves for point in curve.points):
        nothing = [_Cell(_fit("  nothing that can be drawn", width, ink), _FAINT)]
        return [_ink(line, ink) for line in (*title, nothing, *legend)]
    y = _axis(curves, lambda point: (point.low, point.high), NUMBER, log=panel.log)
    x = _axis(curves, lambda point: (point.x,), panel.x_kind)
    rows = max(height - 3 - len(legend), _FEWEST_ROWS)
    ticks = y.ticks(max(rows // 3, min(rows, 3)))
    margin = min(max(columns(tick.text) for tick in ticks), width // 3)
    space = _Field(width - margin - 2, rows, x, y, ink)
    _draw_curves(space, curves)
    lines = [*title, *_beside(space, ticks, margin), *_below(space, x, margin), *legend]
    return [_ink(line, ink) for line in lines]


def _shown(curve: Curve, log: bool, ink: Ink) -> Curve:
    """The curve with only what a drawing can show: finite, and above 0 on a logarithmic axis.

    Faint is a colour: without colours a smooth line could not be told from what it smooths, and stands alone.
    """

    def can(value: float) -> bool:
        return math.isfinite(value) and (value > 0 or not log)

    def point(one: Point) -> Point:
        known = [value for value in (one.low, one.value, one.high) if can(value)]
        if not known or not math.isfinite(one.x):
            return Point(one.x, _NAN, _NAN, _NAN)
        low, high = min(known), max(known)
        # Half of the smallest number is 0, which is not between the two.
        middle = one.value if can(one.value) else max(low, low / 2 + high / 2)
        return Point(one.x, middle, low, high)

    points = [point(one) for one in curve.points]
    smooth = [
        value if can(value) and math.isfinite(one.value) else _NAN
        for one, value in zip(points, curve.smooth, strict=False)  # there may be none
    ]
    shown = Curve(printable(curve.label), points, smooth)
    return shown if ink.coloured else Curve(shown.label, _front(shown))


def _axis(
    curves: Sequence[Curve], of: Callable[[Point], tuple[float, ...]], kind: str, *, log: bool = False
) -> Axis:
    values = [
        value
        for curve in curves
        for point in curve.points
        if math.isfinite(point.value)
        for value in of(point)
    ]
    low, high = min(values), max(values)
    if not log and kind != MOMENT and 0 < low <= high * _NEARLY_NOTHING:
        low = 0.0  # a tick that says more, and costs next to nothing
    return Axis(low, high, kind=kind, log=log)


def _draw_curves(space: _Field, curves: Sequence[Curve]) -> None:
    """What is faint first, then the lines, then the letters; of several curves the first one on top."""
    styles = [str(_COLOURS[n % len(_COLOURS)]) for n in range(len(curves))]
    order = list(reversed(list(enumerate(curves))))
    fronts = {n: _front(curve) for n, curve in order}
    for n, curve in order:
        if curve.smooth:
            space.line(curve.points, f"{_FAINT};{styles[n]}", mark_of(n))
    for n, _ in order:
        space.line(fronts[n], styles[n], mark_of(n))
    for n, _ in order:
        if len(curves) > 1 or sum(math.isfinite(point.value) for point in fronts[n]) == 1:
            space.mark(fronts[n], styles[n], mark_of(n), n, len(curves))


def _front(curve: Curve) -> Sequence[Point]:
    """What is drawn strongly: the smooth line, if there is one."""
    if not curve.smooth:
        return curve.points
    return [Point(p.x, s, s, s) for p, s in zip(curve.points, curve.smooth, strict=True)]


def mark_of(number: int) -> str:
    """The letter on the curve of that number."""
    marks = MARKS + "abcdefghijklmnpqrstuvwyz"
    return marks[number % len(marks)]


def _beside(space: _Field, ticks: Sequence[Tick], margin: int) -> Iterator[list[_Cell]]:
    """The rows of the field, with the left axis."""
    named = {space.height - 1 - round(tick.place * (space.height * 4 - 1)) // 4: tick.text for tick in ticks}
    for number, row in enumerate(space.rows()):
        text = shorten(named.get(number, ""), margin)
        bar = ("┤" if number in named else "│") if space.ink.braille else "|"
        yield [_Cell(f"{text:>{margin}} {bar}", _FAINT), *row]


def _below(space: _Field, axis: Axis, margin: int) -> list[list[_Cell]]:
    """The lower axis, and the names of its ticks where there is room for them."""
    line = ["─" if space.ink.braille else "-"] * space.width
    texts = [" "] * (space.width + margin + 2)
    free = 0
    for tick in axis.ticks(max(space.width // 12, 2)):
        at = round(tick.place * (space.width * 2 - 1)) // 2
        size = columns(tick.text)
        start = min(max(margin + 2 + at - size // 2, 0), len(texts) - size)
        if start < free:
            continue
        line[at] = "┬" if space.ink.braille else "+"
        texts[start : start + size] = tick.text
        free = start + size + 2
    corner = "└" if space.ink.braille else "+"
    return [
        [_Cell(f"{'':{margin}} {corner}{''.join(line)}", _FAINT)],
        [_Cell("".join(texts).rstrip(), _FAINT)],
    ]


def _legend(curves: Sequence[Curve], width: int, ink: Ink) -> list[list[_Cell]]:
    """Which curve is whose, as many in a line as there is room for."""
    lines: list[list[_Cell]] = []
    free = 0
    for number, curve in enumerate(curves):
        mark = mark_of(number) if len(curves) > 1 or not ink.braille else "─"
        text = f"  {mark} {_fit(curve.label, width - 5, ink)}"
        if columns(text) > free:
            lines.append([])
            free = width
        lines[-1].append(_Cell(text, str(_COLOURS[number % len(_COLOURS)])))
        free -= columns(text)
    return lines


def _fit(text: str, size: int, ink: Ink) -> str:
    text = printable(text)
    if not ink.braille:
        text = text.encode("ascii", "backslashreplace").decode()
    return shorten(text, size)


def _ink(cells: Sequence[_Cell], ink: Ink) -> str:
    """One line; neighbours of the same colour are coloured together."""
    if not ink.coloured:
        return "".join(cell.text for cell in cells).rstrip()
    while cells and not cells[-1].text.strip():
        cells = cells[:-1]
    pieces: list[str] = []
    style = ""
    for cell in cells:
        wanted = cell.style if cell.text.strip() else style
        if wanted != style:
            pieces.append(("\x1b[0m" if style else "") + (f"\x1b[{wanted}m" if wanted else ""))
            style = wanted
        pieces.append(cell.text)
    return "".join(pieces) + ("\x1b[0m" if style else "")
