"""`dray images`: what a run logged with `log_image`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk, logged
from dray.cli.documents import write_json
from dray.cli.options import one_run, voiced
from dray.cli.tables import write_table
from dray.cli.voice import Voice
from dray.core.durations import show_bytes

if TYPE_CHECKING:
    from dray.workspace import Image


@click.command("images")
@one_run
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--step", metavar="S", type=int, help="Only the one of that step.")
@click.option("--to", "folder", metavar="DIR", help="Save them into DIR.")
@click.option("--force", is_flag=True, help="Replace different files in DIR; else a terminal is asked.")
@click.option("--json", "wants_json", is_flag=True, help="Print the list as JSON; with --to the files.")
@voiced
def images(
    word: str,
    name: str | None,
    step: int | None,
    folder: str | None,
    force: bool,
    wants_json: bool,
    voice: Voice,
) -> int:
    """List or save the pictures that a run logged.

    In DIR they are called by their name and step. Where the first word names no run, but a picture of the newest one, that
    run is meant.

    \b
    Examples:
      dray images
      dray images curve --to plots
      dray images k3f9x2abqd curve --step 3 --to .
    """  # noqa: D301
    with desk.workspace() as ws:
        run, there, name = logged.find(ws, word, name, lambda run: run.images(), voice)
        wanted = logged.chosen("picture", there, name, step)
        if folder is not None and wanted:
            return _bring(there, wanted, folder, force=force, wants_json=wants_json, voice=voice)
    if wants_json:
        write_json([image.to_json() for image in wanted])
    elif not there:
        nothing = ": nothing to save" if folder is not None else ""
        voice.say(
            f"{run.id} has logged no picture{nothing}",
            "in the script: import dray; dray.log_image('name', figure)",
        )
    else:
        write_table(
            ("NAME", "STEP", "FORMAT", "SIZE"), [_row(image) for image in wanted], right=("STEP", "SIZE")
        )
    return 0


def _row(image: Image) -> tuple[object, ...]:
    step = "" if image.step is None else image.step
    return (image.name, step, image.format, show_bytes(image.size) if image.size else "not here")


def _bring(
    there: list[Image], wanted: list[Image], folder: str, *, force: bool, wants_json: bool, voice: Voice
) -> int:
    from dray.workspace.logged import file_names, write

    def saver(image: Image) -> Any:
        return lambda place, force: write(place, image.bytes, force=force)

    # Named among all, so that a picture gets the same name whatever else is wanted.
    names = file_names(there, [image.format for image in there])
    files = [
        (name, saver(image))
        for name, image in zip(names, there, strict=True)
        if any(image is w for w in wanted)
    ]
    return logged.bring(folder, files, force=force, wants_json=wants_json, voice=voice)
