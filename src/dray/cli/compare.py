"""`dray compare`: runs side by side, and the difference of their code and environments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import count_of
from dray.cli.options import as_json, voiced
from dray.cli.patches import write_patches
from dray.cli.progress import Activity
from dray.cli.side_by_side import write_side_by_side
from dray.cli.voice import Voice
from dray.core.errors import UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dray.workspace.comparing import Comparison, Row


@click.command("compare")
@click.argument("words", metavar="RUN RUN...", nargs=-1, required=True)
@click.option("--code", "wants_code", is_flag=True, help="The difference of the code, as a patch.")
@click.option("--env", "wants_env", is_flag=True, help="The difference of the environments.")
@click.option("--all", "wants_all", is_flag=True, help="Equal rows too, and each metric's min and max.")
@as_json("all rows, and with --code and --env those differences")
@voiced
def compare(
    words: tuple[str, ...], wants_code: bool, wants_env: bool, wants_all: bool, wants_json: bool, voice: Voice
) -> int:
    """Show what differs between runs, side by side.

    One column for each run; rows that are equal are hidden. `metrics.X` is the latest value.

    With --code or --env their differences stand in place of the table. --code compares each run with the first one, and
    prints what `git apply` and `patch -p1` take; files that are binary or bigger than 1 MB are named on stderr.

    \b
    Examples:
      dray compare k3f9 m2xq
      dray compare k3f9 m2xq --code > changes.patch
    """  # noqa: D301
    if len(words) < 2:
        raise UsageError("one run alone cannot be compared", hint=printable(f"dray compare {words[0]} OTHER"))
    with desk.workspace() as ws:
        runs = [desk.find(ws, word) for word in words]
        comparison = runs[0].compare(*runs[1:])
        for run in comparison.runs:
            desk.fresh(run, voice)
        if wants_json:
            write_json(_document(comparison, wants_code, wants_env))
            return 0
        if wants_env:
            _show_rows(comparison, comparison.environments, "environment", wants_all, voice)
        if wants_code:
            with Activity(voice) as activity:
                activity.begin("looking for the code")
                differences = comparison.code(activity.hear)
            write_patches(differences, voice)
        if not wants_env and not wants_code:
            _show_rows(comparison, comparison.rows, "run", wants_all, voice)
    return 0


def _document(comparison: Comparison, wants_code: bool, wants_env: bool) -> dict[str, Any]:
    document = comparison.to_json()
    if wants_env:
        document["environments"] = [row.to_json() for row in comparison.environments]
    if wants_code:
        document["code"] = [difference.to_json() for difference in comparison.code()]
    return document


def _show_rows(comparison: Comparison, rows: Sequence[Row], of: str, wants_all: bool, voice: Voice) -> None:
    shown = [row for row in rows if wants_all or not (row.is_equal or row.is_detail)]
    equal = [row for row in rows if row.is_equal and not row.is_detail]
    names = [run.name or "" for run in comparison.runs]
    headers = [run.name if run.name and names.count(run.name) == 1 else run.id for run in comparison.runs]
    if shown:
        write_side_by_side(headers, shown)
        sys.stdout.flush()  # first the table, then the words about it
    if wants_all:
        return
    count = f"{count_of(len(equal), 'equal row')} hidden: --all shows {'it' if len(equal) == 1 else 'them'}"
    if not rows:
        voice.say(f"neither {of} says anything" if of == "run" else "none of the runs has an environment")
    elif not shown:
        voice.say(f"no {of} differs from the others", count)
    elif equal:
        voice.say(count)
