"""`dray rm`: forget runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.each import for_each
from dray.cli.endings import FAILED
from dray.cli.options import as_json, many_runs, voiced
from dray.cli.progress import Activity
from dray.cli.voice import Voice, ask, can_ask

if TYPE_CHECKING:
    from dray.workspace import Run


@click.command("rm")
@many_runs(required=True)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@as_json("the runs that are gone")
@voiced
def rm(words: tuple[str, ...], yes: bool, wants_json: bool, voice: Voice) -> int:
    """Forget ended runs and delete their folders.

    Log, metrics and outputs are deleted on the machine and here. A live run is never removed: cancel it first. On a
    terminal, more than one run is asked about.

    \b
    Example:
      dray rm k3f9x2abqd
    """  # noqa: D301
    must_ask = len(words) > 1 and not yes and can_ask()
    if must_ask and not ask(f"Delete {len(words)} runs with their logs and outputs?"):
        voice.say("nothing was deleted")
        return FAILED

    def one(run: Run) -> dict[str, Any]:
        with Activity(voice) as activity:
            activity.begin(f"deleting {run.id}")
            run.remove()
        if not wants_json:
            click.echo(run.id)
        voice.detail(f"{run.id} is gone")
        return {"id": run.id, "removed": True}

    with desk.workspace() as ws:
        code, done = for_each(ws, words, one)
    if wants_json:
        write_json(done)
    return code
