"""`dray env ...`: environments that are registered here, and those that were built on machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.endings import FAILED
from dray.cli.environment_options import names_an_environment
from dray.cli.facts import count_of, environment_text, write_facts
from dray.cli.group import Section
from dray.cli.options import Duration, as_json, one_run, voiced
from dray.cli.prepare import build_and_tell
from dray.cli.progress import Activity
from dray.cli.tables import write_table
from dray.cli.times import ago, at
from dray.cli.voice import Voice, ask, can_ask
from dray.core.durations import show_bytes, show_duration

if TYPE_CHECKING:
    from dray.workspace import Run, Workspace
    from dray.workspace.built import BuiltEnvironment, BuiltEnvironments
    from dray.workspace.registered import RegisteredEnvironment

_SHORT = 12
_on = click.option(
    "-c", "--compute", metavar="NAME", help="The machine to ask; default: $DRAY_COMPUTE, else local."
)


@click.group("env", cls=Section)
def env() -> None:
    """Work with environments: what is installed for runs.

    \b
    Example:
      dray env list -c gpu1
    """  # noqa: D301


@env.command("list")
@_on
@as_json("the environments")
@voiced
def list_(compute: str | None, wants_json: bool, voice: Voice) -> int:
    """List environments: registered here, and built on a machine.

    \b
    Example:
      dray env list -c gpu1
    """  # noqa: D301
    with desk.workspace() as ws:
        registered = ws.environments.all()
        there, built = _built(ws, compute, voice)
    if wants_json:
        write_json(
            {
                "registered": [one.to_json() for one in registered],
                "compute": there.compute,
                "built": [_plain(one) for one in built],
            }
        )
        return 0
    if registered:
        rows = [
            (
                f"{one.name}:{one.version}",
                environment_text({**one.environment.to_json(), "source": ""}),
                ago(one.registered),
            )
            for one in registered
        ]
        write_table(("REGISTERED", "WHAT", "SINCE"), rows, soft=("WHAT",))
        click.echo()
    write_table(
        ("BUILT", "PYTHON", "BY", "PACKAGES", "SIZE", "LAST USED", "STATE"),
        [
            (
                one.name[:_SHORT],
                one.version or "",
                one.kind or "",
                _or_blank(one.packages),
                show_bytes(one.bytes),
                ago(one.used),
                one.state,
            )
            for one in built
        ],
        right=("PACKAGES", "SIZE"),
        spare=("BY", "PACKAGES"),
    )
    voice.detail(
        f"{count_of(len(built), 'environment')} on {there.compute}, {show_bytes(sum(one.bytes for one in built))}"
    )
    return 0


@env.command("show")
@click.argument("name", metavar="NAME")
@_on
@as_json("the environment")
@voiced
def show(name: str, compute: str | None, wants_json: bool, voice: Voice) -> int:
    """Show one environment: what was wanted, and what is in it.

    NAME is that of a registered one (`torch`, `torch:2`), or the beginning of a built one's.

    \b
    Example:
      dray env show 0123456789ab -c gpu1
    """  # noqa: D301
    with desk.workspace() as ws:
        registered = ws.environments.find(name) if compute is None else None
        if registered is not None:
            return _show_registered(registered, len(ws.environments.versions(registered.name)), wants_json)
        with Activity(voice) as activity:
            ws.answers = desk.person(activity)
            there = ws.built_environments(compute)
            activity.begin(f"asking {there.compute}")
            inside = there.show(name)
    if wants_json:
        write_json(
            {
                **_plain(inside.built),
                "spec": dict(inside.spec),
                "installed": inside.installed,
                "lock_kind": inside.lock_kind,
                "lock": inside.lock,
            }
        )
        return 0
    one = inside.built
    write_facts(
        [
            ("name", one.name), ("state", one.state), ("wanted", environment_text(inside.spec)),
            ("python", f"{one.version or ''} {one.python or ''}".strip()), ("made by", one.kind),
            ("made", f"{at(one.built)}, in {show_duration(one.built_s)}" if one.built else None),
            ("last used", ago(one.used)), ("size", show_bytes(one.bytes)), ("compute", there.compute),
        ]
    )  # fmt: skip
    if inside.installed:
        click.echo()
        write_table(("PACKAGE", "VERSION"), inside.installed)
    return 0


@env.command("build")
@_on
@click.option("--dir", "folder", metavar="D", help="The code folder; default: the current one.")
@names_an_environment
@as_json("what was made")
@voiced
def build(wants_json: bool, voice: Voice, **fields: Any) -> int:
    """Make an environment ahead; the same as `dray prepare`.

    \b
    Example:
      dray env build -c gpu1
    """  # noqa: D301
    return build_and_tell(wants_json, voice, fields)


@env.command("lock")
@one_run
@voiced
def lock(word: str, voice: Voice) -> int:
    """Print exactly what was installed for a run.

    The text is a lock: `dray submit --locked FILE` installs the very same again.

    \b
    Example:
      dray env lock @last > lock.txt
    """  # noqa: D301
    with desk.workspace() as ws:
        text, kind = desk.find(ws, word).lock()
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    voice.detail(f"it is a {kind} text: dray submit --locked FILE ...")
    return 0


@env.command("why")
@one_run
@click.argument("other", metavar="[OTHER]", required=False)
@as_json("the changes")
@voiced
def why(word: str, other: str | None, wants_json: bool, voice: Voice) -> int:
    """Tell which lines made a run's environment another one.

    Compared with that of OTHER, by default the run before in the same experiment. Nothing is printed when they are the
    same.

    \b
    Example:
      dray env why @last
    """  # noqa: D301
    from dray.core.spec import Environment
    from dray.workspace.environment_changes import changes

    with desk.workspace() as ws:
        run = desk.find(ws, word)
        before = desk.find(ws, other) if other else _before(ws, run)
    now = run.record.spec.environment
    if now is None:
        voice.say(f"{run.id} has no environment of its own: it used the Python of its machine")
        return 0
    if before is None:
        voice.say(f"{run.id} is the first run of {run.record.experiment} with an environment")
        return 0
    was = before.record.spec.environment or Environment()
    found = changes(was, now)
    if wants_json:
        write_json(
            {
                "run": run.id,
                "before": before.id,
                "digests": [was.digest, now.digest],
                "changes": [one.to_json() for one in found],
            }
        )
        return 0
    for one in found:
        click.echo(str(one))
    words = "the same environment" if not found else f"{count_of(len(found), 'change')} of the environment"
    voice.say(f"{words}, from {before.id} to {run.id}", *_built_again(run, found))
    return 0


@env.command("rm")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_on
@click.option(
    "--forget", is_flag=True, help="Forget what was resolved, too: the next build may take newer versions."
)
@voiced
def rm(names: tuple[str, ...], compute: str | None, forget: bool, voice: Voice) -> int:
    """Remove environments: registered names, or built ones.

    Runs that had one keep what is known of it, and a run that needs it again builds it again.

    \b
    Example:
      dray env rm 0123456789ab -c gpu1
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:
        ws.answers = desk.person(activity)
        known = {name for name in names if compute is None and ws.environments.find(name)}
        there = ws.built_environments(compute)
        built = [one for name in names if name not in known for one in there.named(name)]
        for name in sorted(known):
            for one in ws.environments.remove(name):
                click.echo(f"{one.name}:{one.version}")
        return _remove(there, built, forget, voice) if built else 0


@env.command("prune")
@_on
@click.option(
    "--older-than", "age", type=Duration(), default="30d", show_default=True, metavar="D",
    help="Those last used longer ago than this go, and those that were never finished.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would go, and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@voiced
def prune(compute: str | None, age: float, dry_run: bool, yes: bool, voice: Voice) -> int:
    """Remove environments that nobody has used for a while.

    \b
    Example:
      dray env prune -c gpu1 --older-than 14d
    """  # noqa: D301
    with desk.workspace() as ws, Activity(voice) as activity:
        ws.answers = desk.person(activity)
        there = ws.built_environments(compute)
        activity.begin(f"asking {there.compute}")
        built = there.unused(age)
        activity.rest()
        if not built:
            voice.say(f"nothing to remove on {there.compute}")
            return 0
        write_table(
            ("BUILT", "SIZE", "LAST USED"),
            [(one.name[:_SHORT], show_bytes(one.bytes), ago(one.used)) for one in built],
            right=("SIZE",),
        )
        if dry_run or (not yes and can_ask() and not ask(f"Remove {count_of(len(built), 'environment')}?")):
            voice.say("nothing was removed")
            return 0 if dry_run else FAILED
        return _remove(there, built, forget=False, voice=voice)


@env.command("register")
@click.argument("name", metavar="NAME")
@names_an_environment
@click.option(
    "--run", "run_word", metavar="RUN", help="The environment of that run, exactly as it was resolved."
)
@click.option("--note", default="", metavar="TEXT", help="A word about this version.")
@as_json("the version")
@voiced
def register(
    name: str, run_word: str | None, note: str, wants_json: bool, voice: Voice, **fields: Any
) -> int:
    """Give an environment a name, for runs from any folder.

    From the file of --env, by default the nearest one; or from a run. Each change is a new version: `--env NAME` means the
    newest one, `--env NAME:2` the second.

    \b
    Example:
      dray env register torch --env requirements.txt
    """  # noqa: D301
    from dray.workspace import Submission

    with desk.workspace() as ws:
        if run_word is not None:
            made = ws.environments.register_run(name, desk.find(ws, run_word), note)
        else:
            chosen = ws.environment_of(Submission(command=("true",), prepare=True, **fields))
            made = ws.environments.register(name, chosen, note)
    if wants_json:
        write_json(made.to_json())
        return 0
    click.echo(f"{made.name}:{made.version}")
    voice.say(
        f"{environment_text({**made.environment.to_json(), 'source': ''})}; use it: dray submit --env {made.name} ..."
    )
    return 0


def _built(
    ws: Workspace, compute: str | None, voice: Voice
) -> tuple[BuiltEnvironments, list[BuiltEnvironment]]:
    with Activity(voice) as activity:
        ws.answers = desk.person(activity)
        there = ws.built_environments(compute)
        activity.begin(f"asking {there.compute}")
        return there, there.all()


def _remove(there: BuiltEnvironments, built: Sequence[BuiltEnvironment], forget: bool, voice: Voice) -> int:
    sizes = {one.name: one.bytes for one in built}
    gone, kept = there.remove(list(sizes), frozen=forget)
    for name in gone:
        click.echo(name)
    for name, why_kept in kept.items():
        voice.warn(f"{name[:_SHORT]} stays: {why_kept}")
    voice.say(f"{show_bytes(sum(sizes.get(name, 0) for name in gone))} freed on {there.compute}")
    return FAILED if kept else 0


def _show_registered(one: RegisteredEnvironment, versions: int, wants_json: bool) -> int:
    if wants_json:
        write_json(one.to_json())
        return 0
    made = one.environment
    write_facts(
        [
            ("name", f"{one.name}:{one.version}"), ("of", count_of(versions, "version")), ("digest", made.digest), ("note", one.note),
            ("registered", at(one.registered)), ("from", made.source), ("python", made.python), ("packages", list(made.packages)),
            ("conda", list(made.conda)), ("channels", ", ".join(made.channels)), ("index", list(_index(made.index))),
            ("lock", f"{made.lock_kind}, {count_of(len((made.lock or '').splitlines()), 'line')}" if made.lock else None),
        ]
    )  # fmt: skip
    return 0


def _index(index: Mapping[str, Any]) -> Iterator[str]:
    for name, value in index.items():
        for one in [value] if isinstance(value, str) else value:
            yield f"{name.removesuffix('s').replace('_', '-')} {one}"


def _before(ws: Workspace, run: Run) -> Run | None:
    """The run before in the same experiment that had an environment."""
    earlier = (
        one for one in ws.runs(experiment=run.record.experiment, refresh_within_s=None) if one.id != run.id
    )
    return next(
        (one for one in earlier if one.record.spec.environment and one.record.created < run.record.created),
        None,
    )


def _built_again(run: Run, found: Sequence[object]) -> list[str]:
    """Why it was built all the same, or was not."""
    built_s = (run.record.environment or {}).get("built_s")
    if not found and built_s:
        again = (
            "it was to be resolved again (--refresh)"
            if run.record.spec.refresh
            else "the machine did not have it any more, or has another platform or Python"
        )
        return [f"it was built all the same, as {again}"]
    return []


def _plain(one: BuiltEnvironment) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(one), "state": one.state}


def _or_blank(value: int | None) -> str:
    return "" if value is None else str(value)
