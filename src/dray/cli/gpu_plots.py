"""`dray metrics --plot gpu`: what was sampled of a run's GPUs and processes, as curves over time.

Read `panels` first: samples in, panels out. A value that the driver did not give lifts the pen; it is never drawn as 0.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dray.cli import desk
from dray.cli.axes import LENGTH, MOMENT
from dray.cli.curves import LOWEST, Curve, Panel, Point, draw
from dray.cli.facts import show_number
from dray.cli.plots import TIME, Drawing, Wish, height_of_each, ink
from dray.cli.tables import width_of
from dray.cli.voice import Voice
from dray.core.errors import UsageError

if TYPE_CHECKING:
    from dray.workspace import Run, Workspace

GPU = "gpu"
_WIDTH = 80
_GIB = 1 << 30
_NAN = math.nan

Sample = tuple[float, Mapping[str, Any]]
"""Time and what was seen."""


def split(ws: Workspace, words: Sequence[str], voice: Voice) -> tuple[Run | None, tuple[str, ...]]:
    """(the run, ...) when the words mean its samples; (None, words) when `gpu` is a metric of the run's own."""
    others = [word for word in words if word != GPU]
    if len(others) > 1:
        raise UsageError("`--plot gpu` draws one run", hint=f"dray metrics {others[0]} --plot gpu")
    run = desk.fresh(desk.find(ws, others[0] if others else "@last"), voice)
    if GPU in run.latest():
        return None, tuple(words)
    return run, ()


def drawing(ws: Workspace, run: Run, wish: Wish) -> Drawing:
    """All panels below each other."""
    samples = [(line.t, line.data) for line in ws.store.telemetry(run.id)]
    began = run.record.started or (samples[0][0] if samples else 0.0)
    made = panels(
        samples, 0.0 if wish.x == TIME else began, MOMENT if wish.x == TIME else LENGTH, _labels(ws, run)
    )
    if not made:
        return Drawing(
            ["nothing was sampled"],
            ["a run is sampled from its start, on Linux; those of older versions were not"],
        )
    width = wish.width or width_of(sys.stdout) or _WIDTH
    height = max(wish.height or height_of_each(len(made), width), LOWEST)
    lines: list[str] = []
    for panel in made:
        lines += [*([""] if lines else []), *draw(panel, width, height, ink())]
    return Drawing(lines, [])


def _labels(ws: Workspace, run: Run) -> dict[str, str]:
    """UUID -> what people call it."""
    devices = (ws.store.gpus(run.id) or {}).get("devices") or ()
    known = {}
    for device in devices:
        known[str(device.get("uuid"))] = f"GPU {device.get('index')}"
        for nth, part in enumerate(device.get("mig") or ()):
            known[str(part.get("uuid"))] = f"GPU {device.get('index')} part {nth}"
    return known


def panels(samples: Sequence[Sample], began: float, x_kind: str, labels: Mapping[str, str]) -> list[Panel]:
    """One for each kind of quantity that has values."""
    rows: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for t, data in samples:
        for row in data.get("gpus") or ():
            rows.setdefault(str(row.get("gpu")), []).append((t - began, row))
    many = len(rows) > 1

    def of_gpus(what: str, *quantities: tuple[str, str, str, float]) -> Panel | None:
        curves = []
        for uuid, series in rows.items():
            label = labels.get(uuid, uuid[:12]) if many else ""
            for named, mean, most, unit in quantities:
                curves.append(_curve(" ".join(filter(None, (label, named))), series, mean, most, unit))
        return _panel(what, curves, x_kind)

    run = [(t - began, row) for t, data in samples if isinstance(row := data.get("run"), Mapping)]
    made = [
        of_gpus(
            "GPU busy, percent", ("this run", "own_util", "own_util_max", 1), ("all", "util", "util_max", 1)
        ),
        of_gpus(
            "GPU memory, GiB",
            ("this run", "own_memory", "own_memory", _GIB),
            ("all", "memory", "memory", _GIB),
        ),
        of_gpus("GPU power, watts", ("", "power_w", "power_w", 1)),
        of_gpus("GPU temperature, degrees Celsius", ("", "temperature", "temperature", 1)),
        _panel("cores", [_curve("this run", run, "cpu", "cpu", 1)], x_kind),
        _panel("memory, GiB", [_curve("this run", run, "memory", "memory", _GIB)], x_kind),
    ]
    return [panel for panel in made if panel is not None]


def _panel(what: str, curves: Sequence[Curve], x_kind: str) -> Panel | None:
    """None where nothing of it was measurable."""
    known = [curve for curve in curves if any(math.isfinite(point.value) for point in curve.points)]
    by = "time of day" if x_kind == MOMENT else "time since the start"
    return Panel(f"{what}, by {by}", known, x_kind) if known else None


def _curve(label: str, rows: Sequence[Sample], mean: str, most: str, unit: float) -> Curve:
    points = []
    for t, row in rows:
        value, top = _number(row.get(mean)) / unit, _number(row.get(most)) / unit
        points.append(Point(t, value, value, max(top, value)))
    last = next((point.value for point in reversed(points) if math.isfinite(point.value)), _NAN)
    return Curve(f"{label or 'GPU'}  {show_number(last)}", points)


def _number(value: Any) -> float:
    """Not-a-number for what is none: a machine may send anything."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e18 else _NAN
