"""`dray metrics`: what runs logged as numbers, as a table, as data, as curves."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import number, write_csv, write_json
from dray.cli.facts import show_number
from dray.cli.metric_words import Meant, as_of_now, understand
from dray.cli.options import voiced
from dray.cli.tables import write_table
from dray.cli.voice import Voice, is_terminal, pass_echo
from dray.core.errors import UsageError

if TYPE_CHECKING:
    from dray.workspace import Run, Workspace

COLUMNS = ("name", "step", "time", "value")
GPU = "gpu"
_NUMBERS = ("POINTS", "LAST", "STEP", "MIN", "MAX")


@click.command("metrics")
@click.argument("words", metavar="[RUN]... [NAME]...", nargs=-1)
@click.option(
    "--plot", "-p", "is_drawn", is_flag=True, help="Draw curves; several RUNs are laid over each other."
)
@click.option(
    "--smooth",
    metavar="W",
    type=click.FloatRange(0, 1, max_open=True),
    help="Draw the exponential moving average, in which what came before weighs W: 0.9 is smooth, 0.99 very. "
    "With colours the points themselves stay visible, faintly.",
)
@click.option("--log", "is_log", is_flag=True, help="A logarithmic axis; what is 0 or less is left out.")
@click.option(
    "--x",
    "axis",
    type=click.Choice(["step", "time", "relative"]),
    help="Draw by step (the default; the number of the point where it has none), by time of day, or by time since the "
    "run's start.",
)
@click.option("--width", metavar="N", type=click.IntRange(20, 1000), help="Columns of the drawing.")
@click.option(
    "--height", metavar="N", type=click.IntRange(6, 1000), help="Lines of the drawing of one metric."
)
@click.option(
    "--live", "-f", "is_live", is_flag=True, help="Draw again each second until all runs have ended."
)
@click.option(
    "--json",
    "wants_json",
    is_flag=True,
    help="{name: {steps, times, values}} on stdout; of several RUNs {id: that}.",
)
@click.option(
    "--csv",
    "wants_csv",
    is_flag=True,
    help="Lines of name,step,time,value on stdout; of several RUNs run,name,...",
)
@voiced
def metrics(
    words: tuple[str, ...],
    is_drawn: bool,
    smooth: float | None,
    is_log: bool,
    axis: str | None,
    width: int | None,
    height: int | None,
    is_live: bool,
    wants_json: bool,
    wants_csv: bool,
    voice: Voice,
) -> int:
    """Show what a run logged, with full histories.

    `--plot gpu` draws what was sampled of GPUs, memory, cores and disk.

    RUNs and NAMEs may stand in any order; without a RUN the newest one is meant. A NAME may be a pattern such as 'val/*';
    `metrics.NAME` is never taken for a run. Without NAME one line for each metric; with NAMEs all their points. Times are
    seconds since 1970. The options of a drawing draw without --plot, too.

    \b
    Examples:
      dray metrics
      dray metrics loss --plot
      dray metrics k3f9x2abqd good 'val/*' --plot --smooth 0.9 --log
      dray metrics @last --csv > points.csv
      dray metrics @last --plot gpu
    """  # noqa: D301
    is_drawn = is_drawn or is_log or is_live or any(v is not None for v in (smooth, axis, width, height))
    if is_drawn + wants_json + wants_csv > 1:
        raise UsageError("`--json`, `--csv` and a drawing exclude one another")
    with desk.workspace() as ws:
        if is_drawn and GPU in words:
            from dray.cli.gpu_plots import split

            mine, rest = split(ws, words, voice)
            if mine is not None:
                if smooth is not None or is_log:
                    raise UsageError("`--plot gpu` draws samples as they are: without --smooth and --log")
                return _plot_gpu(ws, mine, (width, height, axis), is_live, voice)
            words = rest
        meant = understand(ws, words, voice)
        if is_drawn:
            from dray.cli.plots import STEP, Wish

            return _plot(ws, meant, Wish(axis or STEP, smooth, is_log, width, height), is_live, voice)
        if wants_json or wants_csv or meant.patterns:
            series = {run.id: ws.store.metrics(run.id, meant.names[run.id]) for run in meant.runs}
            histories = {
                run.id: {name: series[run.id][name] for name in meant.names[run.id]} for run in meant.runs
            }
            _write_points(histories, wants_json, wants_csv)
        elif any(meant.names.values()):
            _write_summary(ws, meant)
        else:
            _say_nothing(meant, voice)
    return 0


def _plot(ws: Workspace, meant: Meant, wish: Any, is_live: bool, voice: Voice) -> int:
    """Curves on stdout, now or again and again; what they cannot show on stderr."""
    from dray.cli import plots

    def drawn() -> plots.Drawing:
        return plots.drawing(ws, as_of_now(meant), wish)

    def refresh() -> bool:
        """Whether more may come."""
        active = [run for run in meant.runs if not run.ended]
        for run in active:
            desk.fresh(run, voice)
        return bool(active)

    if is_live and not is_terminal(1):
        raise UsageError("`--live` draws on a terminal only", why="stdout is none", hint="leave `--live` out")
    if not is_live and not any(meant.names.values()):
        _say_nothing(meant, voice)
        return 0
    try:
        done = plots.live(drawn, refresh) if is_live else drawn()
    except KeyboardInterrupt:
        pass_echo()
        voice.say("left; what runs goes on")
        raise
    if not is_live:
        sys.stdout.write("".join(f"{line}\n" for line in done.lines))
        sys.stdout.flush()
    for note in done.notes:
        voice.say(note)
    return 0


def _plot_gpu(ws: Workspace, run: Run, looks: tuple[Any, ...], is_live: bool, voice: Voice) -> int:
    """What was sampled of one run's GPUs and processes."""
    from dray.cli import gpu_plots, plots

    if is_live and not is_terminal(1):
        raise UsageError("`--live` draws on a terminal only", why="stdout is none", hint="leave `--live` out")

    def drawn() -> plots.Drawing:
        return gpu_plots.drawing(
            ws, run, plots.Wish(looks[2] or plots.RELATIVE, width=looks[0], height=looks[1])
        )

    def refresh() -> bool:
        if not run.ended:
            desk.fresh(run, voice)
        return not run.ended

    done = plots.live(drawn, refresh) if is_live else drawn()
    if not is_live:
        sys.stdout.write("".join(f"{line}\n" for line in done.lines))
        sys.stdout.flush()
    for note in done.notes:
        voice.say(note)
    return 0


def _say_nothing(meant: Meant, voice: Voice) -> None:
    many = len(meant.runs) > 1
    voice.say(
        "none of these runs has logged a metric" if many else f"{meant.runs[0].id} has logged no metric",
        "in the script: import dray; dray.log(loss=0.3, step=7)",
    )


def _write_points(histories: Mapping[str, Mapping[str, Any]], wants_json: bool, wants_csv: bool) -> None:
    """All points; of several runs with the run's id in front."""
    many = len(histories) > 1
    if wants_json:
        documents = {
            run: {name: _columns(one) for name, one in series.items()} for run, series in histories.items()
        }
        write_json(documents if many else next(iter(documents.values())), compact=True)
        return
    columns = ("run", *COLUMNS) if many else COLUMNS
    rows = [
        (run, *point) if many else point for run, series in histories.items() for point in _points(series)
    ]
    if wants_csv:
        write_csv([columns, *rows])
    else:
        write_table([name.upper() for name in columns], rows, right=("STEP", "TIME", "VALUE"))


def _columns(one: Any) -> dict[str, list[Any]]:
    return {"steps": list(one.steps), "times": list(one.times), "values": list(one.values)}


def _points(series: Mapping[str, Any]) -> list[tuple[object, ...]]:
    return [
        (name, "" if step is None else step, time, number(value))
        for name, one in series.items()
        for step, time, value in zip(one.steps, one.times, one.values, strict=True)
    ]


def _write_summary(ws: Workspace, meant: Meant) -> None:
    """One line for each metric."""
    many = len(meant.runs) > 1
    rows = [
        (*([run.name or run.id] if many else []), *_line(name, one))
        for run in meant.runs
        for name, one in ws.store.metrics(run.id).items()
    ]
    write_table(("RUN", "NAME", *_NUMBERS)[not many :], rows, right=_NUMBERS)


def _line(name: str, one: Any) -> tuple[str, ...]:
    # Not-a-number is no minimum: where all are, so be it.
    real = [value for value in one.values if value == value] or list(one.values)
    step = one.steps[-1]
    return (name, str(len(one.values)), show_number(one.values[-1]), "" if step is None else str(step),
            show_number(min(real)), show_number(max(real)))  # fmt: skip
