"""`dray outputs`: the files that a run left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import count_of
from dray.cli.options import as_json, one_run, voiced
from dray.cli.progress import Activity
from dray.cli.tables import write_table
from dray.cli.voice import Voice
from dray.core.durations import show_bytes
from dray.core.errors import UnknownName, printable


@click.command("outputs")
@one_run
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--to", "folder", metavar="DIR", type=click.Path(file_okay=False), help="Fetch the files into DIR."
)
@as_json("the files")
@voiced
def outputs(word: str, paths: tuple[str, ...], folder: str | None, wants_json: bool, voice: Voice) -> int:
    """List or fetch the files that a run left.

    A PATH is a file, a folder, or a pattern such as '*.png'. Files lie below outputs/, or where --outputs said.

    \b
    Example:
      dray outputs @last model.pkl --to .
    """  # noqa: D301
    with desk.workspace() as ws:
        run = ws.run(word)
        with Activity(voice) as activity:
            activity.begin("looking")
            files = chosen(run.outputs.list(), paths)
        if folder is None:
            if wants_json:
                write_json([{"path": path, "bytes": size} for path, size in files])
            elif files:
                write_table(
                    ("PATH", "SIZE"), [(path, show_bytes(size)) for path, size in files], right=("SIZE",)
                )
            else:
                voice.say(f"{run.id} has left nothing in outputs/")
            return 0
        with Activity(voice) as activity:
            here = run.outputs.fetch_all(
                [path for path, _ in files],
                to=folder,
                on=activity.hear,
            )
        if wants_json:
            write_json([os.fspath(path) for path in here])
        else:
            for path in here:
                click.echo(printable(os.fspath(path)))
        voice.say(f"{count_of(len(here), 'file')}, {show_bytes(sum(s for _, s in files))}, in {folder}")
    return 0


def chosen(files: Sequence[tuple[str, int]], wanted: Sequence[str]) -> list[tuple[str, int]]:
    """Those of `files` that `wanted` names, in their own order; all without a wish. Refuses a wish that is not met."""
    if not wanted:
        return list(files)
    for wish in wanted:
        if not any(meets(path, wish) for path, _ in files):
            raise UnknownName("output", wish, [path for path, _ in files])
    return [(path, size) for path, size in files if any(meets(path, wish) for wish in wanted)]


def meets(path: str, wish: str) -> bool:
    """Whether `wish` names `path`: itself, a folder above it, or a pattern; with or without `outputs/` in front."""
    wish = wish.removeprefix("./").rstrip("/") or "."
    for name in (path, path.removeprefix("outputs/"), f"outputs/{path}"):
        if wish in (".", name) or name.startswith(wish + "/") or fnmatchcase(name, wish):
            return True
    return False
