"""`dray import`: exported runs into this history."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.endings import FAILED
from dray.cli.facts import count_of
from dray.cli.options import as_json, voiced
from dray.cli.progress import Activity
from dray.cli.trouble import say_error
from dray.cli.voice import Voice

if TYPE_CHECKING:
    from dray.workspace.importing import Imported

FEW = 3


@click.command("import")
@click.argument("folder", metavar="DIR")
@click.option("--dry-run", is_flag=True, help="Check everything, and take nothing in.")
@as_json("the runs and what became of them")
@voiced
def import_(folder: str, dry_run: bool, wants_json: bool, voice: Voice) -> int:
    """Take exported runs into this history.

    DIR is one exported run, or holds several. All sizes and digests are checked before anything of a run is taken in;
    each comes whole or not at all. A run that is here already is left alone, and a different one of the same id is
    refused. No machine is asked about an imported run: everything of it is here.

    \b
    Example:
      dray import archive
    """  # noqa: D301
    done: list[Imported] = []
    with desk.workspace() as ws, Activity(voice) as activity:
        for one in ws.import_each(folder, dry_run=dry_run, on=activity.hear):
            done.append(one)
            if one.trouble is not None:
                activity.rest()
                say_error(one.trouble)
            elif not wants_json:
                click.echo(f"{one.run_id}\t{one.outcome}")
    if wants_json:
        write_json([_row(one) for one in done])
    for remark in dict.fromkeys(remark for one in done for remark in one.remarks):
        ids = [one.run_id or "" for one in done if remark in one.remarks]
        some = ", ".join(ids[:FEW]) + (f" and {len(ids) - FEW} more" if len(ids) > FEW else "")
        voice.say(f"{some}: {remark}")
    counts = Counter(one.outcome or "refused" for one in done)
    if len(done) > 1 or not counts["refused"]:
        told = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
        voice.say(f"{count_of(len(done), 'run')}: {told}")
    return FAILED if counts["refused"] else 0


def _row(one: Imported) -> dict[str, Any]:
    return {
        "id": one.run_id,
        "folder": os.fspath(one.folder),
        "outcome": one.outcome,
        "remarks": list(one.remarks),
        "error": None if one.trouble is None else one.trouble.code,
    }
