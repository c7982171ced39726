"""`dray runs`: the history as a table, as data, or live."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import shell_words
from dray.cli.options import as_json, voiced
from dray.cli.progress import Activity
from dray.cli.tables import shorten, write_table
from dray.cli.times import ago, took
from dray.cli.voice import Voice, paint_word
from dray.core.errors import UsageError
from dray.core.states import RunState

if TYPE_CHECKING:
    from dray.core.where_tree import Field
    from dray.workspace import Run, Workspace

HEADERS = ("ID", "NAME", "EXPERIMENT", "COMPUTE", "STATUS", "CREATED", "TOOK", "COMMAND", "WHY")
MORE = ("FOLDER", "CODE")  # with -v
MAY_BE_EMPTY = ("NAME", "WHY")
SOFT = ("NAME", "EXPERIMENT", "COMMAND", "WHY", "FOLDER")
SPARE = ("CODE", "FOLDER", "COMPUTE", "CREATED", "TOOK", "EXPERIMENT", "WHY", "NAME", "COMMAND")
SHOWN_ANYWAY = {"id", "name", "experiment", "compute", "status", "reason", "exit_code", "created", "duration"}
AS_CSV = "id,name,experiment,compute,status,reason,exit_code,created,started,ended,duration"
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
@click.option("--where", metavar="EXPR", help="Only runs of which this is true.")
@click.option("--sort", metavar="FIELDS", help="By these fields; with `-` in front the greatest first.")
@click.option("--columns", metavar="FIELDS", help="Show these fields instead, in this order.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"At most so many; 0: all. Default: {A_SCREEN}, with --json and --csv all.",
)
@click.option("--watch", "is_live", is_flag=True, help="Active runs only, live until the last one has ended.")
@click.option("--csv", "wants_csv", is_flag=True, help="Print the columns as lines of CSV.")
@as_json("the runs (with --columns those fields)")
@voiced
def runs(
    limit: int | None,
    columns: str | None,
    is_live: bool,
    wants_csv: bool,
    wants_json: bool,
    voice: Voice,
    **asked: Any,
) -> int:
    """List the history, newest first.

    Machines of active runs are asked first, for two seconds at most.

    EXPR compares fields with values (= != < <= > >= ~ !~ in), joined by and, or, not. FIELDS are separated by commas.
    Fields: id name experiment compute status reason exit_code created started ended duration note, and params.X
    tags.X metrics.X (also metrics.X.min and .max). `~` matches * and ?; times look like 2d (ago) or 2026-11-18.
    All of it: docs/reference/where.md

    \b
    Examples:
      dray runs --experiment digits --status failed
      dray runs --where 'metrics.loss < 0.2 and created > 2d' --sort metrics.loss
      dray runs --columns id,name,params.lr,metrics.acc.max --csv
      dray runs --watch
    """  # noqa: D301
    if wants_json and wants_csv:
        raise UsageError("`--json` and `--csv` exclude one another")
    if is_live and (wants_json or wants_csv):
        raise UsageError(f"`--watch` and `--{'json' if wants_json else 'csv'}` exclude one another")
    if limit is None:
        limit = 0 if wants_json or wants_csv else A_SCREEN
    with desk.workspace() as ws:
        if is_live:
            from dray.cli.watching import watch

            return watch(ws, voice, limit=limit, columns=columns, **asked)
        fields = _fields(columns or (AS_CSV if wants_csv else None))
        # One more than is shown tells whether there are more.
        with Activity(voice) as activity:
            activity.begin("asking the machines")
            found = ws.runs(**asked, limit=limit + 1 if limit else None)
        shown = found[:limit] if limit else found
        warnings = ws.warnings
        values = ws.columns(shown, fields) if fields else []
        for warning in dict.fromkeys([*warnings, *(ws.warnings if fields else ())]):
            voice.warn(warning)
        if not found:
            _say_why_none(ws, voice, asked)
        if wants_csv:
            _write_csv(fields, values)
        elif wants_json:
            write_json(values if fields else [run.to_json() for run in shown])
        elif found and fields:
            from dray.cli.cells import write_fields

            write_fields(fields, values)
        elif found:
            _write_usual(ws, shown, asked, voice)
        sys.stdout.flush()  # the table first, also where both go into one file
        if len(found) > len(shown):
            voice.say(f"there are more: --limit {limit * 3}, or 0 for all")
    return 0


def _fields(columns: str | None) -> tuple[Field, ...]:
    """The fields that are wanted instead of the usual table, each once."""
    if columns is None:
        return ()
    from dray.core.where import parse_columns

    return tuple(dict.fromkeys(parse_columns(columns)))


def _say_why_none(ws: Workspace, voice: Voice, asked: dict[str, Any]) -> None:
    asked = {name: value for name, value in asked.items() if name != "sort"}
    if voice.quiet:
        return
    if not any(value is not None for value in asked.values()):
        voice.say("no run yet", "begin: dray submit train.py")
    else:
        voice.say(*ws.why_none(**asked))


def _write_csv(fields: Sequence[Field], values: Sequence[dict[str, Any]]) -> None:
    import csv

    from dray.cli.cells import as_data

    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow([str(field) for field in fields])
    lines.writerows([as_data(row[str(field)]) for field in fields] for row in values)


def _write_usual(ws: Workspace, runs: Sequence[Run], asked: dict[str, Any], voice: Voice) -> None:
    """The usual table, with what was asked about beside it."""
    headers, rows = HEADERS + MORE * voice.verbose, [_row(run, voice) for run in runs]
    right = ["TOOK"]
    if asked["where"] is not None or asked["sort"] is not None:
        from dray.cli.cells import cells, header, is_right
        from dray.core.where import parse, parse_sort
        from dray.workspace.questions import asked_fields

        tree = parse(asked["where"]) if asked["where"] is not None else None
        order = parse_sort(asked["sort"]) if asked["sort"] is not None else ()
        fields = [field for field in asked_fields(tree, order) if field.family not in SHOWN_ANYWAY]
        values = ws.columns(runs, fields)
        at = headers.index("COMMAND")
        rows = [(*row[:at], *more, *row[at:]) for row, more in zip(rows, cells(fields, values), strict=True)]
        headers = (*headers[:at], *map(header, fields), *headers[at:])
        right += [header(field) for field in fields if is_right(field, values)]
    _write(rows, headers, right)


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


def _write(rows: Sequence[tuple[str, ...]], headers: tuple[str, ...], right: Sequence[str]) -> None:
    """A table without the columns that have nothing to say."""
    told = [
        any(cells) or header not in MAY_BE_EMPTY
        for header, cells in zip(headers, zip(*rows, strict=True), strict=True)
    ]
    write_table(
        list(compress(headers, told)),
        [list(compress(row, told)) for row in rows],
        right=right,
        soft=SOFT,
        spare=SPARE,
        paint=_paint,
    )


def _paint(header: str, cell: str) -> str:
    return paint_word(cell) if header == "STATUS" else cell
