"""`dray adopt`: runs that are found on a machine, and that this history does not know."""

from __future__ import annotations

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import count_of
from dray.cli.options import as_json, voiced
from dray.cli.progress import Activity
from dray.cli.voice import Voice


@click.command("adopt")
@click.argument("name")
@as_json("the runs that were taken in")
@voiced
def adopt(name: str, wants_json: bool, voice: Voice) -> int:
    """Take runs found on a compute into this history.

    They may have been started from another client, or before this history was lost. What was removed stays removed.

    \b
    Example:
      dray adopt gpu1
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:
        activity.begin(f"asking {name}")
        ws.answers = desk.person(activity)
        taken = ws.adopt(name)
    if wants_json:
        write_json(taken)
    else:
        for run_id in taken:
            click.echo(run_id)
    voice.say(
        f"{count_of(len(taken), 'run')} taken in" if taken else f"no run on {name} is new to this history"
    )
    return 0
