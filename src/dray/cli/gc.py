"""`dray gc`: clear away what is not needed any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.endings import FAILED
from dray.cli.facts import count_of
from dray.cli.options import Duration, Size, as_json, voiced
from dray.cli.progress import Activity
from dray.cli.tables import write_table
from dray.cli.voice import Voice, ask, can_ask
from dray.core.durations import show_bytes

if TYPE_CHECKING:
    from dray.workspace.cleanup import CleanUp

_SHOWN = 3


@click.command("gc")
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="N",
    help="Of each experiment the newest N ended runs stay. Alone: all other ended runs go.",
)
@click.option(
    "--older-than",
    type=Duration(),
    metavar="D",
    help="Runs that ended, and environments and images last used, longer ago than this go (30d, 12h).",
)
@click.option(
    "--budget",
    type=Size(),
    metavar="SIZE",
    help="After that, what was used longest ago goes until dray takes no more than this (50GB).",
)
@click.option("--unfetched", is_flag=True, help="Runs go even if their outputs were not fetched.")
@click.option(
    "-c", "--compute", metavar="NAME", help="The compute to clean up; default: DRAY_COMPUTE, else local."
)
@click.option("--dry-run", is_flag=True, help="Show what would go, and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@as_json("what goes and what stays")
@voiced
def gc(
    keep: int | None, older_than: float | None, budget: int | None, unfetched: bool, compute: str | None,
    dry_run: bool, yes: bool, wants_json: bool, voice: Voice,
) -> int:  # fmt: skip
    """Clear away what is not needed any more.

    Without a limit only what nothing refers to goes: contents of files that no run needs, what killed processes left
    behind, runner versions of other dray releases. It is safe at any time, whatever else is at work.

    With a limit ended runs go too, as with `dray rm`: log, metrics and outputs, here and on the machine. These stay in
    any case: live runs; runs tagged `keep`; runs with outputs that were not fetched, unless --unfetched. A budget
    counts all of dray's folder on the compute; to keep to it, environments go first, then the oldest runs.

    On a terminal it asks before runs or environments go. Without one, as in a crontab, it does what it was told.

    \b
    Examples:
      dray gc
      dray gc --keep 20 --older-than 30d
      dray gc --budget 50GB --dry-run
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:

        def agree(plan: CleanUp) -> bool:
            activity.rest()
            if not wants_json:
                _show(plan, voice)
            question = _question(plan)
            return yes or not question or not can_ask() or ask(question)

        result = ws.gc(
            keep=keep, older_than=older_than, budget=budget, unfetched=unfetched, compute=compute,
            dry_run=dry_run, agree=agree, on=activity.hear,
        )  # fmt: skip
    if wants_json:
        write_json(result.to_json())
    elif dry_run:
        _show(result, voice)
    return _conclude(result, voice)


def _show(plan: CleanUp, voice: Voice) -> None:
    """The table of what goes, then what stays and why."""
    if plan.goes:
        rows = [
            (_kind(thing.kind), thing.what or str(thing.count), show_bytes(thing.bytes), thing.why)
            for thing in plan.goes
        ]
        write_table(("KIND", "WHAT", "SIZE", "WHY"), rows, right=("SIZE",), soft=("WHAT", "WHY"))
        click.echo(f"total  {show_bytes(plan.bytes)}")
    for why, runs in plan.spared.items():
        more = (
            ["fetch them with `dray outputs RUN --to DIR`, or give --unfetched"] if "fetched" in why else []
        )
        voice.say(f"{count_of(len(runs), 'run')} stay{'s' * (len(runs) == 1)}, {why}: {_some(runs)}", *more)
    for note in plan.notes:
        voice.say(note)
    if plan.budget is not None and plan.used is not None:
        after = show_bytes(max(0, plan.used - plan.bytes))
        words = f"dray takes {show_bytes(plan.used)}"
        if plan.over:
            voice.warn(f"{words}; at least {after} will stay, {show_bytes(plan.over)} more than the budget")
        else:
            voice.say(f"{words}{f', {after} will stay' if plan.goes else ''}")


def _question(plan: CleanUp) -> str:
    runs = sum(thing.kind == "run" for thing in plan.goes)
    environments = sum(thing.kind == "environment" for thing in plan.goes)
    parts = []
    if runs:
        parts.append(f"{count_of(runs, 'run')} with {'their' if runs > 1 else 'its'} logs and outputs")
    if environments:
        parts.append(count_of(environments, "environment"))
    images = sum(thing.kind == "image" for thing in plan.goes)
    if images:
        parts.append(count_of(images, "image"))
    return f"Delete {' and '.join(parts)}?" if parts else ""


def _conclude(result: CleanUp, voice: Voice) -> int:
    """Say how it went; the exit code."""
    for why, names in result.kept.items():
        voice.warn(f"left alone, {why}: {_some(names)}")
    if result.dry_run:
        if not result.goes:
            voice.say("there is nothing to clear away")
        return 0
    if result.freed is None:
        voice.say("nothing was deleted")
        return FAILED
    voice.say(f"{show_bytes(result.freed)} freed" if result.goes else "there was nothing to clear away")
    return 0


def _kind(kind: str) -> str:
    return {"runner": "runner version"}.get(kind, kind)


def _some(names: list[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:_SHOWN])
    return f"{shown}, ..." if len(names) > _SHOWN else shown
