"""`dray compute ...`: what scripts can be sent to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from dray.cli import desk
from dray.cli.attach import attach, container_changes, login_of, login_options, machine_options, show_attached
from dray.cli.documents import write_json
from dray.cli.endings import FAILED
from dray.cli.facts import write_facts
from dray.cli.findings import show_findings
from dray.cli.group import Section
from dray.cli.options import as_json, in_a_container, voiced
from dray.cli.progress import Activity
from dray.cli.tables import write_table
from dray.cli.voice import Voice, ask, can_ask
from dray.core.durations import show_bytes
from dray.core.errors import UsageError


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
        described = ws.list_computes()
    if wants_json:
        write_json(described)
    else:
        rows = [
            (
                one["name"] + (" *" if one["default"] else ""),
                one["kind"],
                one["where"],
                ", ".join(one["aliases"]),
            )
            for one in described
        ]
        headers = ("NAME", "KIND", "WHERE", "ALSO CALLED")
        some = any(row[3] for row in rows)
        write_table(headers if some else headers[:3], rows if some else [row[:3] for row in rows])
    voice.detail(f"{len(described)} known; * is the default")
    return 0


@compute.command("show")
@click.argument("name", required=False)
@click.option("--watch", is_flag=True, help="Keep GPUs and queue up to date until Ctrl-C.")
@as_json("the compute")
@voiced
def show(name: str | None, watch: bool, wants_json: bool, voice: Voice) -> int:
    """Show one compute, its GPUs, and who holds and waits for them.

    \b
    Examples:
      dray compute show local
      dray compute show gpu1 --watch
    """  # noqa: D301
    from dray.cli import machine_gpus

    with desk.workspace() as ws, Activity(voice) as activity:
        ws.answers = desk.person(activity)
        wanted = ws.target(name).name
        activity.begin(f"asking {wanted}")
        if watch:
            return machine_gpus.watch(ws, wanted, activity, wants_json=wants_json)
        described = {**ws.describe(wanted), "gpus": ws.gpus(wanted)}
    if wants_json:
        write_json(described)
        return 0
    write_facts(_facts(described))
    click.echo()
    for line in machine_gpus.lines(described["gpus"]):
        click.echo(line)
    voice.detail(f"can it run scripts? dray compute check {described['name']}")
    return 0


@compute.command("check")
@click.argument("name", required=False)
@click.option("--accept-new", is_flag=True, help="Trust a host key that was never seen.")
@as_json("the findings")
@voiced
def check(name: str | None, accept_new: bool, wants_json: bool, voice: Voice) -> int:
    """Check that a compute can run scripts.

    Ends with 1 when something is bad.

    \b
    Example:
      dray compute check local
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:
        ws.answers = desk.accepting(desk.person(activity)) if accept_new else desk.person(activity)
        # Without a NAME the one that a submit would use.
        wanted = ws.target(name).name
        activity.begin(f"asking {wanted}")
        findings = ws.check(wanted)
    return show_findings(findings, wants_json=wants_json)


@compute.command("update")
@click.argument("name")
@machine_options(name_the_address=False)
@login_options
@in_a_container
@as_json("the compute")
@voiced
def update(name: str, wants_json: bool, voice: Voice, **words: Any) -> int:
    """Change how a compute is reached, in place.

    Its runs stay readable. An empty text takes an option away: --setup ''. Of `local` only --default-gpus can be changed.

    \b
    Example:
      dray compute update gpu1 --port 22
    """  # noqa: D301
    with desk.workspace() as ws:
        login, options = login_of(words, voice)
        if name == "local" and set(options) == {"default_gpus"}:
            ws.set_default_gpus(options["default_gpus"])
            click.echo(name)
            voice.say(f"runs on local that ask for no GPUs get {options['default_gpus']}")
            return 0
        changes = {key: value if value != "" else None for key, value in options.items()}
        changes.update(container_changes(ws, name, words))
        with Activity(voice) as activity:
            ws.answers = desk.person(activity)
            activity.begin(f"reaching {name}")
            found = ws.update_compute(name, changes, login)
        return show_attached(found, wants_json, voice, how="updated")


@compute.command("rm")
@click.argument("name")
@click.option(
    "--purge", is_flag=True, help="Remove dray's folder there: all its runs, environments and caches."
)
@click.option("--gone", is_flag=True, help="The machine is gone for good: runs that it had are lost.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@voiced
def rm(name: str, purge: bool, gone: bool, yes: bool, voice: Voice) -> int:
    """Forget a compute. The history keeps what its runs said.

    With --purge the machine is as it was before dray came, apart from what scripts did there. Never while a run is alive;
    if the machine will never answer again, --gone says so.

    \b
    Example:
      dray compute rm gpu1
    """  # noqa: D301
    if purge and gone:
        raise UsageError("`--purge` and `--gone` exclude one another", why="nothing can be removed there")
    if (
        purge
        and not yes
        and can_ask()
        and not ask(f"Remove all that dray has on {name}, outputs of runs included?")
    ):
        voice.say("nothing was removed")
        return FAILED
    with desk.workspace() as ws, Activity(voice) as activity:
        ws.answers = desk.person(activity)
        activity.begin(f"removing {name}")
        told = ws.remove_compute(name, purge=purge, gone=gone)
    click.echo(name)
    voice.say(f"{name} is forgotten", *told)
    return 0


@compute.command("alias")
@click.argument("alias")
@click.argument("name")
@voiced
def alias(alias: str, name: str, voice: Voice) -> int:
    """Give a compute a second name.

    `dray compute rm ALIAS` takes it away.

    \b
    Example:
      dray compute alias gpu-cluster gpu1
    """  # noqa: D301
    with desk.workspace() as ws:
        before = ws.computes.aliases().get(alias)
        ws.computes.put_alias(alias, name)
    no_longer = f", and no longer {before}" if before not in (None, name) else ""
    voice.say(f"{alias} means {name} from now on{no_longer}")
    return 0


@compute.command("default")
@click.argument("name", required=False)
@voiced
def default(name: str | None, voice: Voice) -> int:
    """Show or choose the compute of a submit without -c.

    \b
    Example:
      dray compute default gpu1
    """  # noqa: D301
    with desk.workspace() as ws:
        if name is not None:
            ws.computes.set_default(name)
        click.echo(ws.computes.default())
        named = os.environ.get("DRAY_COMPUTE")
    if named:
        voice.say(f"but DRAY_COMPUTE is {named}, and wins")
    return 0


compute.add_command(attach)


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
        ("containers", _engine(described.get("engine") or {})),
        ("programs", [f"{name}: {path}" for name, path in programs.items() if path]),
    ]


def _engine(said: Mapping[str, Any]) -> str:
    """docker 28.1, rootless; or why not."""
    if not said:
        return ""
    from dray.workspace.engines import engine_text

    return str(said["trouble"]) if said.get("trouble") else engine_text(said)
