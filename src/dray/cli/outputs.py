"""`dray outputs`: the files that a run left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.endings import FAILED
from dray.cli.facts import count_of
from dray.cli.options import as_json, one_run, voiced
from dray.cli.progress import Activity
from dray.cli.tables import write_table
from dray.cli.trouble import say_error
from dray.cli.voice import Voice, ask, can_ask
from dray.core.durations import show_bytes
from dray.core.errors import UnknownName, UsageError, printable

if TYPE_CHECKING:
    from dray.workspace import Run
    from dray.workspace.outputs import Fetched

_MUCH = 10_000_000_000
_MANY = 10_000


@click.command("outputs")
@one_run
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--to", "folder", metavar="DIR", help="Fetch the files into DIR.")
@click.option("--force", is_flag=True, help="Replace different files in DIR; else a terminal is asked.")
@click.option("--follow", is_flag=True, help="Keep DIR like the outputs until the run has ended.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing, however much it is.")
@as_json("the files")
@voiced
def outputs(
    word: str,
    paths: tuple[str, ...],
    folder: str | None,
    force: bool,
    follow: bool,
    yes: bool,
    wants_json: bool,
    voice: Voice,
) -> int:
    """List or fetch the files that a run left.

    A PATH is a file, a folder, or a pattern such as '*.png'. Files lie below outputs/, or where --outputs said. Where
    the first word names no run, but files of the newest one, that run is meant. On a terminal, more than 10 GB or 10,000
    files are asked about.

    \b
    Examples:
      dray outputs
      dray outputs model.pkl --to .
      dray outputs k3f9x2abqd '*.png' --to plots --force
      dray outputs @last --follow --to results
    """  # noqa: D301
    if follow:
        if folder is None:
            raise UsageError("--follow needs a folder", hint=f"dray outputs {word} --follow --to results")
        from dray.cli.mirroring import mirror

        return mirror(word, paths, folder, force, wants_json, voice)
    with desk.workspace() as ws:
        run, is_last = desk.find_or_last(
            ws, word, lambda run: any(meets(path, word) for path in run.outputs), voice
        )
        if is_last:
            paths = (word, *paths)
        with Activity(voice) as activity:
            activity.begin("looking")
            files = run.outputs.list()
        if paths and not files:
            none = "it left no outputs" if run.ended else "it has left no outputs so far"
            raise UsageError(f"{run.id} has no output `{printable(paths[0])}`", why=none)
        files = chosen(files, paths)
        if folder is not None and files:
            if not yes and not _is_meant(files):
                voice.say("nothing was fetched")
                return FAILED
            return _fetch(run, files, folder, force, wants_json, voice)
    if wants_json:
        write_json([{"path": path, "bytes": size} for path, size in files])
    elif files:
        write_table(("PATH", "SIZE"), [(path, show_bytes(size)) for path, size in files], right=("SIZE",))
    else:
        voice.say(
            f"{run.id} has left nothing in outputs/" + (": nothing to fetch" if folder is not None else "")
        )
    return 0


def _is_meant(files: Sequence[tuple[str, int]]) -> bool:
    """Whether so much is to be fetched. Without a terminal it is: it was asked for."""
    size = sum(size for _, size in files)
    if (size <= _MUCH and len(files) <= _MANY) or not can_ask():
        return True
    return ask(f"Fetch {count_of(len(files), 'file')}, {show_bytes(size)}?")


def _fetch(
    run: Run, files: Sequence[tuple[str, int]], folder: str, force: bool, wants_json: bool, voice: Voice
) -> int:
    """Bring `files` into `folder`; 1 when one of them could not be brought, whatever became of the others."""
    with Activity(voice) as activity:

        def may_replace(place: Path) -> bool:
            activity.rest()
            return force or (can_ask() and ask(f"{place} is a different file. Replace it?"))

        wanted = [path for path, _ in files]
        fetched = [*run.outputs.fetch_each(wanted, folder, activity.hear, may_replace=may_replace)]
    return tell_fetched(fetched, folder, wants_json, voice)


def tell_fetched(fetched: Sequence[Fetched], folder: str, wants_json: bool, voice: Voice) -> int:
    """Say what is where, and what could not be brought; the exit code."""
    places = [os.fspath(one.place) for one in fetched if one.place is not None]
    if wants_json:
        write_json(places)
    else:
        for place in places:
            click.echo(printable(place))
    troubles = [one.trouble for one in fetched if one.trouble is not None]
    for trouble in troubles:
        say_error(trouble)
    there = sum(one.was_there for one in fetched)
    size = sum(one.size for one in fetched if one.place is not None)
    said = f"{count_of(len(places), 'file')}, {show_bytes(size)}, in {folder}"
    voice.say(said + (f"; {there} already there" if there else ""))
    return FAILED if troubles else 0


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
