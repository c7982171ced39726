"""`dray doctor`: find the reason before the user does."""

from __future__ import annotations

import click

from dray.cli import desk
from dray.cli.findings import show_findings
from dray.cli.options import as_json, voiced
from dray.cli.progress import Activity
from dray.cli.voice import Voice


@click.command("doctor")
@click.option("-c", "--compute", metavar="NAME", help="Look at that compute alone.")
@as_json("the findings")
@voiced
def doctor(compute: str | None, wants_json: bool, voice: Voice) -> int:
    """Find what is wrong here and how to mend it.

    Of each compute: whether it can be reached, its disk, its clock, its engines for containers, its GPUs with driver,
    device files, health and users, and the frameworks that runs would meet there. Ends with 1 when something is bad.

    \b
    Examples:
      dray doctor
      dray doctor -c gpu1
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:
        activity.begin("examining")
        findings = ws.doctor(compute)
    return show_findings(findings, wants_json=wants_json)
