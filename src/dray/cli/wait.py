"""`dray wait`: return when runs have ended."""

from __future__ import annotations

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.endings import exit_code_of, headline
from dray.cli.options import LAST, as_json, many_runs, voiced
from dray.cli.progress import Activity
from dray.cli.voice import Voice


@click.command("wait")
@many_runs(required=False)
@as_json("the runs")
@voiced
def wait(words: tuple[str, ...], wants_json: bool, voice: Voice) -> int:
    """Wait until runs have ended.

    Ends with 0 when all have completed, else with the code of the first one, in the order given, that has not.

    \b
    Example:
      dray wait k3f9x2abqd b7m2p8nrct
    """  # noqa: D301
    with desk.workspace() as ws:
        runs = [desk.find(ws, word) for word in words or (LAST,)]
        for run in runs:
            with Activity(voice) as activity:
                activity.begin(f"waiting for {run.id}")
                run.wait()
            if not wants_json:
                click.echo(f"{run.id}\t{run.status}")
            voice.detail(f"{run.id} {headline(run)}")
        if wants_json:
            write_json([run.to_json() for run in runs])
        return next((code for code in map(exit_code_of, runs) if code), 0)
