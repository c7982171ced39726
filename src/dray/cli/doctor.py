"""`dray doctor`: find the reason before the user does."""

from __future__ import annotations

import click

from dray.cli import desk
from dray.cli.findings import show_findings
from dray.cli.options import as_json, voiced
from dray.cli.progress import Activity
from dray.cli.voice import Voice


@click.command("doctor")
@as_json("the findings")
@voiced
def doctor(wants_json: bool, voice: Voice) -> int:
    """Find what is wrong here and how to mend it.

    Ends with 1 when something is bad.

    \b
    Example:
      dray doctor
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:
        activity.begin("examining")
        findings = ws.doctor()
    return show_findings(findings, wants_json=wants_json)
