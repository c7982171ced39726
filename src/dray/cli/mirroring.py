"""`dray outputs --follow`: a folder that is kept like the outputs of a run until the run has ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dray.cli import desk
from dray.cli.endings import LEFT
from dray.cli.outputs import meets, tell_fetched
from dray.cli.progress import Activity
from dray.cli.voice import Voice, pass_echo


def mirror(word: str, paths: Sequence[str], folder: str, force: bool, wants_json: bool, voice: Voice) -> int:
    """Mirror until the end; 1 when a file could not be brought."""

    def choose(files: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
        return [row for row in files if not paths or any(meets(row[0], path) for path in paths)]

    def may_replace(place: Path) -> bool:
        return force

    with desk.workspace() as ws:
        from dray.workspace import Event, Progress

        run = desk.find(ws, word)
        try:
            with Activity(voice) as activity:

                def hear(event: Event) -> None:
                    activity.hear(event)
                    if isinstance(event, Progress) and event.done >= (event.total or 0):
                        activity.rest()

                if not run.ended:
                    voice.say(f"keeping {folder} like the outputs of {run.id} until it ends; Ctrl-C leaves")
                each = run.outputs.mirror_each(folder, hear, choose=choose, may_replace=may_replace)
                fetched = [*each]
        except KeyboardInterrupt:
            pass_echo()
            voice.say(f"left; {run.id} goes on", "what came stays; the same command goes on with it")
            return LEFT
        if not fetched:
            voice.say(
                f"{run.id} has left nothing of that in outputs/"
                if paths
                else f"{run.id} has left nothing in outputs/"
            )
        return tell_fetched(fetched, folder, wants_json, voice)
