"""`dray restore`: the code of a run, in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import count_of, git_text
from dray.cli.options import as_json, one_run, voiced
from dray.cli.progress import Activity
from dray.cli.voice import Voice
from dray.core.durations import show_bytes
from dray.core.errors import printable

if TYPE_CHECKING:
    from dray.workspace.restoring import Restored

_FEW = 5


@click.command("restore")
@one_run
@click.option("--to", "folder", metavar="DIR", required=True, help="A new folder, or one that is empty.")
@click.option(
    "--force", is_flag=True, help="Move a folder that is not empty to DIR.before-1; nothing is deleted."
)
@as_json("what was restored")
@voiced
def restore(word: str, folder: str, force: bool, wants_json: bool, voice: Voice) -> int:
    """Lay the exact code of a run out in a folder.

    Files, links, empty folders and what is executable are as they were at the submit, and compared with the snapshot's
    digest. What did not travel then is not there now; a link to something outside is made as a link. The folder appears
    whole or not at all.

    \b
    Examples:
      dray restore @last --to again
      cd "$(dray restore k3f9x2abqd --to /tmp/k3f9)"
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:
        run = desk.find(ws, word)
        activity.begin("looking for the code")
        restored = run.restore(folder, activity.hear, force=force)
        activity.rest()
    if wants_json:
        write_json(restored.to_json())
    else:
        click.echo(printable(str(restored.folder)))
    for line in _words(restored, run.id):
        voice.say(line)
    return 0


def _words(restored: Restored, run_id: str) -> list[str]:
    """What is to be known about the folder."""
    files = f"{count_of(restored.files, 'file')}, {show_bytes(restored.bytes)}"
    lines = [f"the code of {run_id}: {files}, digest {restored.digest[:12]} checked"]
    if restored.moved_to:
        lines.append(f"what was there is now in {restored.moved_to}")
    commit = git_text(restored.git)
    if commit:
        lines.append(f"git: {commit}")
    lines += [f"the link {path} leads out of it, to {target}" for path, target in restored.leads_out[:_FEW]]
    lines += _more(len(restored.leads_out), "link")
    # What never travels anywhere, such as .git, is no news.
    missing = [(path, rule) for path, rule in restored.left_out if not rule.startswith("dray (")]
    lines += [f"did not travel: {path} by {rule}" for path, rule in missing[:_FEW]]
    return lines + _more(len(missing), "entry", "entries")


def _more(count: int, one: str, many: str | None = None) -> list[str]:
    left = count - _FEW
    return [f"and {left} more {one if left == 1 else many or one + 's'} like that"] if left > 0 else []
