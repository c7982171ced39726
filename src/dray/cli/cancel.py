"""`dray cancel`: ask for the end of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.each import for_each
from dray.cli.options import Duration, as_json, many_runs, voiced
from dray.cli.voice import Voice
from dray.core.durations import show_duration

if TYPE_CHECKING:
    from dray.workspace import Run


@click.command("cancel")
@many_runs(required=True)
@click.option(
    "--grace",
    "grace_s",
    type=Duration(),
    default="10s",
    show_default=True,
    metavar="D",
    help="How long the script may tidy up before it is killed.",
)
@as_json("the runs and their states")
@voiced
def cancel(words: tuple[str, ...], grace_s: float, wants_json: bool, voice: Voice) -> int:
    """Stop runs, keeping all they have written so far.

    Asks all processes of a run to end (SIGTERM), and kills what is left after the grace time. Does not wait for the
    end: `dray wait RUN` does. A run that has ended stays as it is.

    \b
    Example:
      dray cancel k3f9x2abqd --grace 1m
    """  # noqa: D301

    def one(run: Run) -> dict[str, Any]:
        had_ended = run.ended
        state = run.cancel(grace_s)
        if not wants_json:
            click.echo(f"{run.id}\t{state}")
        if had_ended:
            voice.say(f"{run.id} had ended before")
        elif not state.is_ended:
            left = f"has {show_duration(grace_s)} to tidy up" if grace_s else "is being killed"
            voice.say(f"{run.id} {left}; see it end: dray wait {run.id}")
        return {"id": run.id, "status": str(state)}

    with desk.workspace() as ws:
        code, done = for_each(ws, words, one)
    if wants_json:
        write_json(done)
    return code
