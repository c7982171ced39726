"""`dray name`: what a run is called from now on."""

from __future__ import annotations

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import count_of
from dray.cli.options import as_json, voiced
from dray.cli.voice import Voice
from dray.core.errors import UsageError, printable
from dray.core.where_tree import Compare, Field


@click.command("name")
@click.argument("word", metavar="RUN")
@click.argument("new", metavar="[NEW]", required=False)
@click.option("--rm", "take_away", is_flag=True, help="Take its name away.")
@as_json("the run's name")
@voiced
def name(word: str, new: str | None, take_away: bool, wants_json: bool, voice: Voice) -> int:
    """Give a run a name, or another one.

    Without NEW the name is shown. What the run was called at its submit is kept: `dray show` has both.

    \b
    Example:
      dray name @last baseline
    """  # noqa: D301
    if take_away and new is not None:
        raise UsageError("`--rm` takes a name away, and none is given then")
    with desk.workspace() as ws:
        run = desk.find(ws, word)
        if take_away or new is not None:
            run.rename(new)
        if wants_json:
            write_json({"id": run.id, "name": run.name})
        else:
            click.echo(f"{run.id}\t{printable(run.name or '')}")
        others = ws.store.count(where=Compare(Field("name"), "=", new)) - 1 if new is not None else 0
        if others > 0:
            voice.say(f"{count_of(others, 'other run')} {'has' if others == 1 else 'have'} that name too",
                      "where a RUN is to be named, type the id")  # fmt: skip
    return 0
