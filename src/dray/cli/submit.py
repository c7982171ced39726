"""`dray submit`: the words of one submit become a Submission, and the run that it gives is followed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk, secret_values
from dray.cli.documents import write_json
from dray.cli.environment_options import names_an_environment
from dray.cli.facts import environment_text, git_text, shell_words, write_facts
from dray.cli.options import Duration, as_json, in_a_container, voiced, with_gpus
from dray.cli.progress import Activity
from dray.cli.starting import describes_a_run, start_and_follow
from dray.cli.tables import write_table
from dray.cli.voice import Voice
from dray.core.container_wish import ContainerWish
from dray.core.durations import show_bytes
from dray.core.errors import UsageError, printable
from dray.core.gpus import words as gpu_words

if TYPE_CHECKING:
    from dray.workspace import Plan, Submission, Workspace


class SubmitCommand(click.Command):
    """Keeps apart `SCRIPT [ARGS...]` and `-- ANY COMMAND`, which click makes the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Notes in `ctx.meta` whether the words came after a `--` of their own."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            if name != "words" and (value == "--" or (isinstance(value, tuple) and "--" in value)):
                raise click.UsageError(f"`--` is not a value for --{name.replace('_', '-')}", ctx)
        words = ctx.params.get("words") or ()
        before = len(given) - len(words) - 1
        ctx.meta["dray.is_command"] = bool(words) and before >= 0 and given[before] == "--"
        return rest


@click.command(
    "submit",
    cls=SubmitCommand,
    # From SCRIPT on all words are the script's, whatever they look like.
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@describes_a_run("$DRAY_COMPUTE, else local; A,B: the first that can start it", "the folder's name")
@click.option("--dir", "folder", metavar="D", help="The code folder; default: the project around the script.")
@names_an_environment
@with_gpus
@in_a_container
@click.option("--outputs", metavar="GLOB", multiple=True, help="Results beside outputs/; may be repeated.")
@click.option("--buffered", is_flag=True, help="Let Python buffer its output.")
@click.option(
    "--require-gpu",
    is_flag=True,
    help="Fail before the script starts where no GPU works for it, and afterwards if it used none.",
)
@click.option(
    "--stop-if-idle",
    "stop_if_idle_s",
    type=Duration(),
    metavar="D",
    help="Warn, then end the script when its GPUs did nothing for it for this long (10m, 1h).",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent and run; start nothing.")
@as_json("the run (with --dry-run the plan)")
@voiced
@click.argument("words", metavar="SCRIPT [ARGS...] | -- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    yes: bool,
    wants_json: bool,
    voice: Voice,
    secret_words: tuple[str, ...],
    **fields: Any,
) -> int:
    """Send a script to a compute and follow it.

    The script starts in its project's folder as `python SCRIPT` would. All words after SCRIPT belong to the script.
    stdout carries the script's output and nothing else; its stdin is empty. Ctrl-C leaves; the run goes on.

    Ends with the script's exit code (128+n for signal n); 124 timeout, 125 not started, 75 link lost, 130 left with
    Ctrl-C; a canceled run gives 143, 137 when it had to be killed.

    \b
    Examples:
      dray submit train.py --lr 0.1
      dray submit -c gpu1 --timeout 4h --secret HF_TOKEN train.py
      dray submit -d -- make all
    """  # noqa: D301 # \b is click's mark for "keep these lines"
    sources = secret_values.sources(secret_words)
    if not dry_run and words:
        from dray.workspace import ahead

        ahead.start(fields["compute"], sources.keys())
    submission = _submission(ctx, words, fields)
    with desk.workspace() as ws:
        if dry_run:
            return _show_plan(ws, submission, list(sources), voice, wants_json)
        secrets = secret_values.collect(sources, may_ask=not yes)
        whole = replace(submission, secrets=secrets)
        return start_and_follow(
            lambda on: ws.submit_planned(whole, on), voice, detach=detach, wants_json=wants_json
        )


def _submission(ctx: click.Context, words: tuple[str, ...], fields: dict[str, Any]) -> Submission:
    from dray.workspace import Submission

    if not words or not words[0]:
        raise UsageError("nothing to run", hint="dray submit train.py, or dray submit -- make all")
    tags, env = dict(fields.pop("tags")), dict(fields.pop("env"))
    environment = fields["environment"]
    if environment is not None and "=" in environment:
        shown = printable(environment)
        raise UsageError(
            f"`--env {shown}` names no file", why="variables have an option of their own", hint=f"-e {shown}"
        )
    what: dict[str, Any] = {"script": words[0], "args": words[1:]}
    if ctx.meta["dray.is_command"]:
        what = {"script": None, "command": words}
    said = {name: fields.pop(name) for name in ContainerWish.__dataclass_fields__ if name in fields}
    container = ContainerWish.of(said)
    return Submission(**what, tags=tags, env=env, container=container, **fields)


def _python_text(plan: Plan) -> str:
    if plan.environment:
        return "the environment's"
    if plan.python:
        return f"{plan.python} ({plan.python_from})"
    return "the image's" if plan.container else "the machine's own"


def _environment(plan: Plan) -> list[str]:
    """What is installed, why that, and what was changed about it."""
    if plan.environment is None:
        return []
    return [f"{environment_text(plan.environment.to_json())} ({plan.environment_why})", *plan.notes]


def _show_plan(
    ws: Workspace, submission: Submission, secrets: list[str], voice: Voice, wants_json: bool
) -> int:
    with Activity(voice) as activity:
        activity.begin("reading the code")
        plan = ws.plan(submission)
    if wants_json:
        write_json({**plan.to_json(), "env": dict(submission.env), "secrets": secrets})
        return 0
    from dray.workspace.containers import in_words

    git = plan.git or {}
    facts = [
        ("compute", plan.compute),
        ("experiment", plan.experiment),
        ("folder", plan.folder),
        ("command", shell_words(plan.command)),
        ("container", in_words(plan.container) if plan.container else None),
        ("python", _python_text(plan)),
        ("environment", _environment(plan)),
        ("asks for", gpu_words(plan.gpus, plan.cpus)),
        ("variables", [f"{name}={value}" for name, value in submission.env.items()]),
        ("secrets", ", ".join(secrets)),
        ("git", git_text(git)),
        ("code", plan.summary),
    ]
    write_facts(facts)
    if plan.files:
        click.echo()
        write_table(
            ("SENT", "SIZE"), [(path, show_bytes(size)) for path, size in plan.files], right=("SIZE",)
        )
    if plan.links:
        click.echo()
        write_table(("LINK", "TO"), plan.links)
    if plan.left_out:
        click.echo()
        write_table(("LEFT OUT", "BY"), plan.left_out)
    return 0
