"""From runs to drawings: reads the points, thinned to what a terminal can show, and puts curves into panels.

Read `panels` first. How a panel is drawn is `curves`' business. A metric of a million points is never read whole.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from dray.cli.axes import LENGTH, MOMENT, WHOLE
from dray.cli.curves import LOWEST, Curve, Ink, Panel, Point, draw
from dray.cli.facts import count_of, show_number
from dray.cli.tables import width_of
from dray.cli.voice import paints
from dray.core.errors import printable

if TYPE_CHECKING:
    from dray.cli.metric_words import Meant
    from dray.store.thinning import Thinned
    from dray.workspace import Run, Workspace

STEP, TIME, RELATIVE = "step", "time", "relative"
_KINDS = {STEP: WHOLE, TIME: MOMENT, RELATIVE: LENGTH}
MOST_PANELS = 6  # where nobody said which
_WIDTH, _HEIGHT = 80, 24  # where there is no terminal
_EVERY_S = 1.0
_USUAL = 10


class Wish(NamedTuple):
    """How the user wants it drawn."""

    x: str = STEP
    smooth: float | None = None
    log: bool = False
    width: int | None = None
    height: int | None = None


class Drawing(NamedTuple):
    """Lines for stdout, and what cannot be seen in them."""

    lines: list[str]
    notes: list[str]


def drawing(ws: Workspace, meant: Meant, wish: Wish) -> Drawing:
    """All panels below each other, as large as the terminal."""
    paper = ink()
    width = wish.width or width_of(sys.stdout) or _WIDTH
    names = list(dict.fromkeys(name for run in meant.runs for name in meant.names[run.id]))
    left_out = [] if meant.patterns else names[MOST_PANELS:]
    names = names[: len(names) - len(left_out)]
    height = wish.height or height_of_each(len(names), width)
    lines: list[str] = [] if names else ["nothing is logged yet"]
    notes: list[str] = []
    for name in names:
        panel = _panel(ws, meant, name, wish, width, notes)
        lines += [*([""] if lines else []), *draw(panel, width, height, paper)]
    if left_out:
        notes.append(f"{count_of(len(left_out), 'more metric')} not drawn: name some, or all with '*'")
    if wish.smooth and not paper.coloured:
        notes.append("without colours only the smooth curves are drawn")
    return Drawing(lines, notes)


def live(draw_now: Callable[[], Drawing], refresh: Callable[[], bool]) -> Drawing:
    """Draw again and again in the same place, until `refresh` says that nothing more will come; the last drawing."""
    shown = 0
    while True:
        now = draw_now()
        goes_on = refresh()
        # What does not fit on the terminal could not be taken back.
        fitting = now.lines[: max(_lines_of_terminal() - 1, 1)] if goes_on else now.lines
        sys.stdout.write((f"\x1b[{shown}F\x1b[J" if shown else "") + "\n".join(fitting) + "\n")
        sys.stdout.flush()
        if not goes_on:
            return now
        shown = len(fitting)
        time.sleep(_EVERY_S)


def ink() -> Ink:
    """What stdout can show."""
    try:
        "⣿┤─".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Ink(paints(1), braille=False)
    return Ink(paints(1))


def _lines_of_terminal() -> int:
    return shutil.get_terminal_size((_WIDTH, _HEIGHT)).lines


def height_of_each(panels: int, width: int) -> int:
    """All of them on one screen, if that is not too low; wide ones not higher than looks good."""
    lines = _lines_of_terminal() if width_of(sys.stdout) else _HEIGHT
    share = (lines - 1) // max(panels, 1) - (panels > 1)
    return max(min(share, max(width // 3, 12)), _USUAL if panels > 1 else LOWEST)


def _panel(ws: Workspace, meant: Meant, name: str, wish: Wish, width: int, notes: list[str]) -> Panel:
    """The curves of one metric, one for each run that has it."""
    runs = [run for run in meant.runs if name in meant.names[run.id]]
    # Two dots stand beside each other in a character.
    thinned = [ws.store.thinned(run.id, name, width * 2, times=wish.x != STEP) for run in runs]
    labels = _labels(runs)
    curves = []
    for run, label, rows in zip(runs, labels, thinned, strict=True):
        points = _points(run, rows, wish.x)
        smooth = list(_smoothed(points, rows.sizes, wish.smooth)) if wish.smooth else []
        value = run.latest()[name][0]
        curves.append(Curve(f"{label}  {show_number(value)}", points, smooth))
        notes += _notes(label if len(meant.runs) > 1 else "", name, rows, points, wish)
    title = ", ".join(
        part
        for part in (
            printable(name),
            "log scale" if wish.log else "",
            f"by {_name_of_x(wish.x, thinned)}",
            f"smoothed {wish.smooth:g}" if wish.smooth else "",
        )
        if part
    )
    return Panel(title, curves, _KINDS[wish.x], wish.log)


def _labels(runs: Sequence[Run]) -> list[str]:
    """Names where they tell the runs apart, else ids."""
    names = [run.name or run.id for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({run.id})"
        for run, name in zip(runs, names, strict=True)
    ]


def _points(run: Run, rows: Thinned, x: str) -> list[Point]:
    return [
        Point(place, *_finite(*spans))
        for place, *spans in zip(_places(run, rows, x), rows.values, rows.lows, rows.highs, strict=True)
    ]


def _finite(value: float, low: float, high: float) -> tuple[float, float, float]:
    """The mean may have overflowed, or a bound be infinite, while there is something to draw."""
    known = [bound for bound in (low, high) if math.isfinite(bound)]
    if not known:
        return math.nan, math.nan, math.nan
    if not math.isfinite(value):
        value = known[0] / 2 + known[-1] / 2
    return value, known[0], known[-1]


def _places(run: Run, rows: Thinned, x: str) -> Iterator[float]:
    """Where each row lies: its step, or where it has none the number of its last point."""
    if x == STEP:
        for step, count in zip(rows.steps, accumulate(rows.sizes), strict=True):
            yield float(count - 1 if step is None else step)
        return
    began = 0.0
    if x == RELATIVE and rows.times:
        began = min(run.record.started or math.inf, *rows.times)
    for moment in rows.times:
        yield moment - began


def _name_of_x(x: str, thinned: Sequence[Thinned]) -> str:
    if x != STEP:
        return "time" if x == TIME else "time since the start"
    steps = [step for rows in thinned for step in rows.steps]
    if None not in steps:
        return "step"
    return "point" if all(step is None for step in steps) else "step (point, where there is none)"


def _smoothed(points: Sequence[Point], sizes: Sequence[int], weight: float) -> Iterator[float]:
    """The exponential moving average; a row that stands for n points counts as n. Begins anew where x goes back."""
    total, share, before = 0.0, 0.0, -math.inf
    for point, size in zip(points, sizes, strict=True):
        if point.x < before:
            total = share = 0.0
        before = point.x
        if not math.isfinite(point.value):
            yield math.nan
            continue
        kept = weight**size
        total, share = total * kept + point.value * (1 - kept), share * kept + (1 - kept)
        yield total / share


def _notes(label: str, name: str, rows: Thinned, points: Sequence[Point], wish: Wish) -> Iterator[str]:
    """What cannot be seen in the drawing."""
    of = f"{label}: " if label else ""
    strange = [
        not (math.isfinite(row[0]) and math.isfinite(row[1]) and math.isfinite(row[2]))
        for row in zip(rows.values, rows.lows, rows.highs, strict=True)
    ]
    if strange and all(strange[-1:]):
        first = len(strange) - next((n for n, odd in enumerate(reversed(strange)) if not odd), len(strange))
        where = rows.steps[first]
        since = f" from step {where} on" if where is not None else " at the end"
        yield f"{of}{name} is not a finite number{since}"
    elif any(strange):
        yield f"{of}{name} is not a finite number in places; they are left out"
    if wish.log and any(low <= 0 for low in rows.lows):
        yield f"{of}{name} has values of 0 or less; on a log axis they are left out"
