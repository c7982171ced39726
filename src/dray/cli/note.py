"""`dray note`: a few sentences about a run."""

from __future__ import annotations

import sys

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.options import as_json, voiced
from dray.cli.voice import Voice, is_terminal
from dray.core.errors import UsageError, printable


@click.command("note")
@click.argument("word", metavar="RUN")
@click.argument("text", metavar="[TEXT]...", nargs=-1)
@click.option("--rm", "take_away", is_flag=True, help="Take the note away.")
@as_json("the run's note")
@voiced
def note(word: str, text: tuple[str, ...], take_away: bool, wants_json: bool, voice: Voice) -> int:
    """Write a note about a run, or read it.

    Without TEXT the note is printed; with `-` it is read from stdin. A new note takes the place of the one before.

    \b
    Examples:
      dray note @last "the learning rate was too high"
      dray note @last
    """  # noqa: D301
    if take_away and text:
        raise UsageError("`--rm` takes a note away, and none is given then")
    said = sys.stdin.read().strip() if text == ("-",) else " ".join(text)
    if text and not said.strip():
        raise UsageError("the note is empty", hint="--rm takes a note away")
    with desk.workspace() as ws:
        run = desk.find(ws, word)
        if text or take_away:
            run.note = said or None
        if wants_json:
            write_json({"id": run.id, "note": run.note})
        elif text or take_away:
            click.echo(run.id)
        elif run.note is None:
            voice.say(f"{run.id} has no note", f"write one: dray note {run.id} TEXT")
        else:
            _write(run.note)
    return 0


def _write(text: str) -> None:
    """As it is into files and pipes; a terminal gets no orders from it."""
    if is_terminal(1):
        text = "\n".join(printable(line) for line in text.split("\n"))
    sys.stdout.write(text + "\n")
