"""`dray rebuild`: the history from the run folders."""

from __future__ import annotations

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import count_of
from dray.cli.options import as_json, voiced
from dray.cli.progress import Activity
from dray.cli.voice import Voice


@click.command("rebuild")
@as_json("what was found")
@voiced
def rebuild(wants_json: bool, voice: Voice) -> int:
    """Make the history again from the run folders.

    For a history.db that was deleted or damaged. What the machines still hold comes back; nothing is deleted.

    \b
    Example:
      dray rebuild
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:
        found = ws.rebuild(activity.hear)
    if wants_json:
        write_json(found)
    else:
        more = f", {found['imported']} of them imported" if found["imported"] else ""
        click.echo(f"{count_of(found['runs'] + found['imported'], 'run')} in the history{more}")
    return 0
