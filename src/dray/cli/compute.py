"""`dray compute ...`: what scripts can be sent to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import write_facts
from dray.cli.findings import show_findings
from dray.cli.group import Section
from dray.cli.options import as_json, voiced
from dray.cli.progress import Activity
from dray.cli.tables import write_table
from dray.cli.voice import Voice
from dray.core.durations import show_bytes


@click.group("compute", cls=Section)
def compute() -> None:
    """Work with computes: what scripts can be sent to.

    \b
    Example:
      dray compute check local
    """  # noqa: D301


@compute.command("list")
@as_json("the computes")
@voiced
def list_(wants_json: bool, voice: Voice) -> int:
    """List the computes.

    \b
    Example:
      dray compute list
    """  # noqa: D301
    with desk.workspace() as ws:
        # Without asking the machines: one that is away must not hold up the list.
        targets = [ws.target(name) for name in ws.compute_names()]
        described = [{"name": one.name, "kind": one.kind, "where": one.host.describe()} for one in targets]
    if wants_json:
        write_json(described)
    else:
        rows = [(one["name"], one["kind"], one["where"]) for one in described]
        write_table(("NAME", "KIND", "WHERE"), rows)
    voice.detail(f"{len(described)} known")
    return 0


@compute.command("show")
@click.argument("name", required=False)
@as_json("the compute")
@voiced
def show(name: str | None, wants_json: bool, voice: Voice) -> int:
    """Show one compute.

    \b
    Example:
      dray compute show local
    """  # noqa: D301
    with desk.workspace() as ws:
        described = ws.describe(ws.target(name).name)
    if wants_json:
        write_json(described)
        return 0
    write_facts(_facts(described))
    voice.detail(f"can it run scripts? dray compute check {described['name']}")
    return 0


@compute.command("check")
@click.argument("name", required=False)
@as_json("the findings")
@voiced
def check(name: str | None, wants_json: bool, voice: Voice) -> int:
    """Check that a compute can run scripts.

    Ends with 1 when something is bad.

    \b
    Example:
      dray compute check local
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:
        # Without a NAME the one that a submit would use.
        wanted = ws.target(name).name
        activity.begin(f"asking {wanted}")
        findings = ws.check(wanted)
    return show_findings(findings, wants_json=wants_json)


def _facts(described: Mapping[str, Any]) -> list[tuple[str, object]]:
    """The document in a person's order and words."""
    machine = described["machine"]
    programs = machine.get("programs") or {}
    return [
        *((key, described[key]) for key in ("name", "kind", "where")),
        *((key, machine.get(key)) for key in ("host", "user", "os", "platform", "python", "cpus")),
        ("memory", show_bytes(machine["memory"]) if machine.get("memory") else None),
        ("free disk", show_bytes(machine["disk_free"]) if machine.get("disk_free") else None),
        ("folder", machine.get("root")),
        ("programs", [f"{name}: {path}" for name, path in programs.items() if path]),
    ]
