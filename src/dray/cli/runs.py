"""`dray runs`: the history as a table."""

from __future__ import annotations

import re
from itertools import compress
from typing import TYPE_CHECKING

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import shell_words
from dray.cli.options import as_json, voiced
from dray.cli.progress import Activity
from dray.cli.tables import shorten, write_table
from dray.cli.times import ago, took
from dray.cli.voice import Voice, paint_word
from dray.core.states import RunState

if TYPE_CHECKING:
    from dray.workspace import Run

HEADERS = ("ID", "NAME", "EXPERIMENT", "COMPUTE", "STATUS", "CREATED", "TOOK", "COMMAND", "WHY")
MORE = ("FOLDER", "CODE")  # with -v
MAY_BE_EMPTY = ("NAME", "WHY")
SOFT = ("NAME", "EXPERIMENT", "COMMAND", "WHY", "FOLDER")
SPARE = ("CODE", "FOLDER", "COMPUTE", "CREATED", "TOOK", "EXPERIMENT", "WHY", "NAME", "COMMAND")
A_SCREEN = 30
LONGEST_WHY = 80
_SENTENCE = re.compile(r"(?<=\.)\s|\n")  # where one ends


@click.command("runs")
@click.option("--experiment", metavar="E", help="Only runs of this experiment.")
@click.option(
    "--status",
    metavar="S",
    type=click.Choice([str(state) for state in RunState]),
    help="Only runs in this state: created, staging, preparing, queued, running, finalizing, completed, "
    "failed, canceled or lost.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"At most so many, the newest; 0: all. Default: {A_SCREEN}, with --json all.",
)
@as_json("the runs")
@voiced
def runs(
    experiment: str | None, status: str | None, limit: int | None, wants_json: bool, voice: Voice
) -> int:
    """List the history, newest first.

    Machines of active runs are asked first, for two seconds at most.

    \b
    Example:
      dray runs --experiment digits --status failed
    """  # noqa: D301
    if limit is None:
        limit = 0 if wants_json else A_SCREEN
    with desk.workspace() as ws:
        # One more than is shown tells whether there are more.
        with Activity(voice) as activity:
            activity.begin("asking the machines")
            found = ws.runs(experiment=experiment, status=status, limit=limit + 1 if limit else None)
        shown = found[:limit] if limit else found
        for warning in ws.warnings:
            voice.warn(warning)
        if wants_json:
            write_json([run.to_json() for run in shown])
            return 0
        if not found:
            some = experiment is not None or status is not None
            voice.say(
                "no such run" if some else "no run yet", *([] if some else ["begin: dray submit train.py"])
            )
            return 0
        _write([_row(run, voice) for run in shown], HEADERS + MORE * voice.verbose)
        if len(found) > len(shown):
            voice.say(f"there are more: dray runs --limit {limit * 3}, or 0 for all")
    return 0


def _row(run: Run, voice: Voice) -> tuple[str, ...]:
    record = run.record
    spec = record.spec
    why = str((record.reason or {}).get("text") or "") if record.status != RunState.COMPLETED else ""
    if record.unreachable:
        why = f"as of {ago(record.as_of)}"
    row = (
        record.id, record.name or "", record.experiment or "", record.compute or "", str(record.status),
        ago(record.created), took(record.duration_s, record.started, record.ended), shell_words(spec.command),
        shorten(_SENTENCE.split(why)[0], LONGEST_WHY),
    )  # fmt: skip
    return (*row, spec.folder, spec.snapshot[:12]) if voice.verbose else row


def _write(rows: list[tuple[str, ...]], headers: tuple[str, ...]) -> None:
    """A table without the columns that have nothing to say."""
    told = [
        any(cells) or header not in MAY_BE_EMPTY
        for header, cells in zip(headers, zip(*rows, strict=True), strict=True)
    ]
    write_table(
        list(compress(headers, told)),
        [list(compress(row, told)) for row in rows],
        right=("TOOK",),
        soft=SOFT,
        spare=SPARE,
        paint=_paint,
    )


def _paint(header: str, cell: str) -> str:
    return paint_word(cell) if header == "STATUS" else cell
