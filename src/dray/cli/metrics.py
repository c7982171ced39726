"""`dray metrics`: what a run logged as numbers."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import number, write_json
from dray.cli.facts import show_number
from dray.cli.options import one_run, voiced
from dray.cli.tables import write_table
from dray.cli.voice import Voice
from dray.core.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from dray.workspace import Run

COLUMNS = ("name", "step", "time", "value")


@click.command("metrics")
@one_run
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--json", "wants_json", is_flag=True, help="{name: {steps, times, values}} on stdout.")
@click.option("--csv", "wants_csv", is_flag=True, help="Lines of name,step,time,value on stdout.")
@voiced
def metrics(word: str, names: tuple[str, ...], wants_json: bool, wants_csv: bool, voice: Voice) -> int:
    """Show what a run logged, with full histories.

    Without NAME one line for each metric; with NAMEs all their points. Times are seconds since 1970. Where the first
    word names no run, but a metric of the newest one, that run is meant.

    \b
    Examples:
      dray metrics
      dray metrics loss
      dray metrics @last --csv > points.csv
    """  # noqa: D301
    if wants_json and wants_csv:
        raise UsageError("`--json` and `--csv` exclude one another")
    with desk.workspace() as ws:
        run, is_last = desk.find_or_last(ws, word, lambda run: word in run.metrics, voice)
        if is_last:
            names = (word, *names)
        series = _chosen(desk.fresh(run, voice), names)
        if wants_json:
            write_json({name: _columns(one) for name, one in series.items()}, compact=True)
        elif wants_csv:
            _write_csv(series)
        elif names:
            write_table([name.upper() for name in COLUMNS], _points(series), right=("STEP", "TIME", "VALUE"))
        elif series:
            rows = [_line(name, one) for name, one in series.items()]
            write_table(
                ("NAME", "POINTS", "LAST", "STEP", "MIN", "MAX"),
                rows,
                right=("POINTS", "LAST", "STEP", "MIN", "MAX"),
            )
        else:
            voice.say(
                f"{run.id} has logged no metric", "in the script: import dray; dray.log(loss=0.3, step=7)"
            )
    return 0


def _chosen(run: Run, names: tuple[str, ...]) -> Mapping[str, Any]:
    series = run.metrics
    for name in names:
        if name not in series:
            raise UnknownName("metric", name, series)
    return {name: series[name] for name in names} if names else series


def _columns(one: Any) -> dict[str, list[Any]]:
    return {"steps": list(one.steps), "times": list(one.times), "values": list(one.values)}


def _points(series: Mapping[str, Any]) -> list[tuple[str, object, object, object]]:
    return [
        (name, "" if step is None else step, time, number(value))
        for name, one in series.items()
        for step, time, value in zip(one.steps, one.times, one.values, strict=True)
    ]


def _write_csv(series: Mapping[str, Any]) -> None:
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(COLUMNS)
    lines.writerows(_points(series))


def _line(name: str, one: Any) -> tuple[str, ...]:
    # Not-a-number is no minimum: where all are, so be it.
    real = [value for value in one.values if value == value] or list(one.values)
    step = one.steps[-1]
    return (name, str(len(one.values)), show_number(one.values[-1]), "" if step is None else str(step),
            show_number(min(real)), show_number(max(real)))  # fmt: skip
