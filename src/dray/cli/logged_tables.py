"""`dray tables`: what a run logged with `log_table`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk, logged
from dray.cli.documents import csv_text, write_csv, write_json
from dray.cli.facts import count_of, show_number
from dray.cli.options import one_run, voiced
from dray.cli.tables import columns as columns_of
from dray.cli.tables import squeeze, width_of, write_table
from dray.cli.voice import Voice
from dray.core.errors import UsageError, printable

if TYPE_CHECKING:
    from dray.workspace import Table


@click.command("tables")
@one_run
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--step", metavar="S", type=int, help="The one of that step; without it the last one is shown.")
@click.option("--to", "folder", metavar="DIR", help="Write them into DIR, as CSV files; of a NAME all steps.")
@click.option("--force", is_flag=True, help="Replace different files in DIR; else a terminal is asked.")
@click.option("--json", "wants_json", is_flag=True, help="Print them as JSON, whole; with --to the files.")
@click.option("--csv", "wants_csv", is_flag=True, help="Print one of them as CSV.")
@voiced
def tables(
    word: str,
    name: str | None,
    step: int | None,
    folder: str | None,
    force: bool,
    wants_json: bool,
    wants_csv: bool,
    voice: Voice,
) -> int:
    """Show the tables that a run logged.

    Without NAME a list of them. Where the first word names no run, but a table of the newest one, that run is meant.

    \b
    Examples:
      dray tables
      dray tables confusion --step 3
      dray tables @last confusion --csv > confusion.csv
    """  # noqa: D301
    if wants_csv and (wants_json or folder is not None):
        raise UsageError("`--csv` excludes `--json` and `--to`", why="`--to DIR` writes CSV files by itself")
    with desk.workspace() as ws:
        run, there, name = logged.find(ws, word, name, lambda run: run.tables(), voice)
        wanted = logged.chosen("table", there, name, step)
        if folder is not None and wanted:
            return _bring(there, wanted, folder, force=force, wants_json=wants_json, voice=voice)
    if wants_json:
        write_json([table.to_json() for table in wanted], compact=True)
    elif not there:
        voice.say(f"{run.id} has logged no table", "in the script: import dray; dray.log_table('name', rows)")
    elif wants_csv:
        names = list(dict.fromkeys(table.name for table in wanted))
        if len(names) > 1:
            listed = ", ".join(f"`{printable(name)}`" for name in names)
            raise UsageError("`--csv` prints one table", why=f"{run.id} has {listed}")
        write_csv([wanted[-1].columns, *wanted[-1].rows])
    elif name is None and step is None:
        _write_list(wanted)
    else:
        _show(wanted, voice)
    return 0


def _write_list(there: Sequence[Table]) -> None:
    rows = [
        (table.name, "" if table.step is None else table.step, len(table.rows), ", ".join(table.columns))
        for table in there
    ]
    write_table(("NAME", "STEP", "ROWS", "COLUMNS"), rows, right=("STEP", "ROWS"), soft=("NAME", "COLUMNS"))


def _show(wanted: Sequence[Table], voice: Voice) -> None:
    """The last of each name, cut to the terminal; what is not seen of it is said."""
    for table in {table.name: table for table in wanted}.values():
        others = [one.step for one in wanted if one.name == table.name and one is not table]
        at = "" if table.step is None else f", step {table.step}"
        more = f"; {count_of(len(others), 'earlier one')}: --step" if others else ""
        voice.say(f"{table.name}{at}: {count_of(len(table.rows), 'row')}{more}")
        headers = _distinct(table.columns)
        rows = [[_cell(value) for value in row] for row in table.rows]
        width = width_of(sys.stdout)
        shown = rows if width is None else rows[: max(shutil.get_terminal_size().lines - 4, 5)]
        numeric = [
            header
            for place, header in enumerate(headers)
            if all(isinstance(row[place], (int, float, type(None))) for row in table.rows)
        ]
        spare = headers[:0:-1]
        write_table(headers, shown, right=numeric, spare=spare)
        unseen = [count_of(len(rows) - len(shown), "more row")] if len(shown) < len(rows) else []
        if width is not None and (lost := len(headers) - _columns_seen(headers, shown, width, spare)):
            unseen.append(count_of(lost, "more column"))
        if unseen:
            voice.say(f"{' and '.join(unseen)}: --csv has all")


def _columns_seen(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str]
) -> int:
    widths = {
        h: max(columns_of(printable(line[i])) for line in (headers, *rows)) for i, h in enumerate(headers)
    }
    return len(squeeze(widths, width, headers, spare))


def _distinct(columns: Sequence[str]) -> list[str]:
    """The columns' names as headers, each a different one."""
    headers: list[str] = []
    for number_of, column in enumerate(columns, 1):
        name = printable(column) or f"({number_of})"
        headers.append(f"{name} ({number_of})" if name in headers else name)
    return headers


def _cell(value: Any) -> str:
    """As a person reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value) if isinstance(value, int) else show_number(value)
    return value if isinstance(value, str) else json.dumps(value)


def _bring(
    there: Sequence[Table],
    wanted: Sequence[Table],
    folder: str,
    *,
    force: bool,
    wants_json: bool,
    voice: Voice,
) -> int:
    from dray.workspace.logged import file_names, write

    def saver(table: Table) -> Any:
        content = csv_text([table.columns, *table.rows]).encode(errors="surrogatepass")
        return lambda place, force: write(place, content, force=force)

    # Named among all, so that a table gets the same name whatever else is wanted.
    names = file_names(there, ["csv"] * len(there))
    files = [
        (name, saver(table))
        for name, table in zip(names, there, strict=True)
        if any(table is w for w in wanted)
    ]
    return logged.bring(folder, files, force=force, wants_json=wants_json, voice=voice)
