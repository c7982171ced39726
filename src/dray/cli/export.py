"""`dray export`: whole runs as plain files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.endings import FAILED
from dray.cli.facts import count_of
from dray.cli.options import as_json, many_runs, voiced
from dray.cli.progress import Activity
from dray.cli.trouble import say_error
from dray.cli.voice import Voice
from dray.core.errors import UsageError, printable

if TYPE_CHECKING:
    from dray.workspace import Run, Workspace
    from dray.workspace.exporting import Exported

FEW = 3


@click.command("export")
@many_runs(required=False)
@click.option("--to", "folder", metavar="DIR", required=True, help="Where the folders of the runs go.")
@click.option("--where", metavar="EXPR", help="Runs for which this holds, such as 'metrics.loss < 0.2'.")
@click.option("--experiment", metavar="E", help="Runs of this experiment.")
@click.option("--all", "everything", is_flag=True, help="All runs that have ended.")
@click.option("--no-outputs", is_flag=True, help="Leave the outputs out.")
@click.option("--no-code", is_flag=True, help="Leave the code out.")
@click.option("--force", is_flag=True, help="Replace other exports of the same runs in DIR.")
@as_json("the runs and where they are")
@voiced
def export(
    words: tuple[str, ...],
    folder: str,
    where: str | None,
    experiment: str | None,
    everything: bool,
    no_outputs: bool,
    no_code: bool,
    force: bool,
    wants_json: bool,
    voice: Voice,
) -> int:
    """Write whole runs as plain files, to carry or keep.

    Each run gets a folder DIR/ID with all that it was, said and left, in files that any program can read, and a list
    of them with digests. `dray import DIR` takes them into another history. Outputs are fetched from the machines;
    what cannot be had is said, and the command ends with 1. Only runs that have ended are exported.

    \b
    Examples:
      dray export k3f9x2abqd --to archive
      dray export --experiment digits --where 'metrics.loss < 0.2' --to good
    """  # noqa: D301
    done: list[Exported] = []
    with desk.workspace() as ws, Activity(voice) as activity:
        chosen = _chosen(ws, words, where, experiment, everything=everything, voice=voice)
        if not chosen:
            voice.say("no run to export")
        else:
            outcomes = ws.export_each(
                chosen, folder, outputs=not no_outputs, code=not no_code, force=force, on=activity.hear
            )
            for one in outcomes:
                done.append(one)
                _tell(one, voice, activity, wants_json=wants_json)
    if wants_json:
        write_json([_row(one) for one in done])
    _sum_up(done, folder, voice)
    return 0 if all(one.is_whole for one in done) else FAILED


def _chosen(
    ws: Workspace,
    words: tuple[str, ...],
    where: str | None,
    experiment: str | None,
    *,
    everything: bool,
    voice: Voice,
) -> list[Run]:
    """The runs that were named, and those that were described; of the latter those that have ended."""
    described = where is not None or experiment is not None or everything
    if not words and not described:
        raise UsageError(
            "which runs are to be exported?",
            why="name them, or describe them with --where, --experiment or --all",
            hint="dray export @last --to DIR",
        )
    named = [desk.find(ws, word) for word in words]
    if not described:
        return named
    from dray.core.where import parse
    from dray.workspace import Run

    tree = None if where is None else parse(where)
    ws.refresh()
    found = [Run(ws, record) for record in ws.store.runs(experiment=experiment, where=tree)]
    active = [run.id for run in found if not run.ended]
    if active:
        some = ", ".join(active[:FEW]) + (" ..." if len(active) > FEW else "")
        voice.say(f"left out, not ended yet: {some}")
    return named + [run for run in found if run.ended]


def _tell(one: Exported, voice: Voice, activity: Activity, *, wants_json: bool) -> None:
    if one.trouble is None and not wants_json:
        click.echo(printable(os.fspath(one.folder or "")))
    if one.trouble is not None:
        activity.rest()
        say_error(one.trouble)
    elif not one.is_whole:
        activity.rest()
        lines = [f"{what}: {why}" for what, why in sorted(one.missing.items())]
        more = [f"and {len(lines) - FEW} more"] if len(lines) > FEW else []
        voice.warn(f"{one.run_id} is exported without", *lines[:FEW], *more)


def _sum_up(done: Sequence[Exported], folder: str, voice: Voice) -> None:
    from dray.workspace.exporting import NOT_KEPT

    codeless = sum(NOT_KEPT in one.missing.values() for one in done)
    if codeless:
        voice.say(f"{count_of(codeless, 'run')} without code: it was not kept when the run was submitted")
    there = sum(one.was_there for one in done)
    count = sum(one.folder is not None for one in done)
    if count:
        voice.say(f"{count_of(count, 'run')} in {folder}" + (f"; {there} already there" if there else ""))


def _row(one: Exported) -> dict[str, Any]:
    """One run of `--json`."""
    return {
        "id": one.run_id,
        "folder": None if one.folder is None else os.fspath(one.folder),
        "was_there": one.was_there,
        "missing": dict(one.missing),
        "error": None if one.trouble is None else one.trouble.code,
    }
