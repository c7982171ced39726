"""`dray follow`: a run's output live, from its first byte, any number of times."""

from __future__ import annotations

from contextlib import suppress

import click

from dray.cli import desk
from dray.cli.options import as_json, one_run, voiced
from dray.cli.voice import Voice
from dray.core.errors import DrayError


@click.command("follow")
@one_run
@as_json("the run at its end")
@voiced
def follow(word: str, wants_json: bool, voice: Voice) -> int:
    """Watch a run live: its log, its states, its end.

    Begins with the first byte of the log. Ctrl-C leaves; the run goes on. Ends with the same codes as `dray submit`.

    \b
    Example:
      dray follow @last
    """  # noqa: D301
    from dray.cli.following import to_the_end

    with desk.workspace() as ws:
        run = desk.find(ws, word)
        with suppress(DrayError):  # whether it has ended is good to know; following says what is wrong
            run.look()
        return to_the_end(run, voice, wants_json=wants_json)
