"""`dray rerun`: the same once more, here or elsewhere."""

from __future__ import annotations

from typing import Any

import click

from dray.cli import desk, secret_values
from dray.cli.facts import shell_words
from dray.cli.options import as_json, voiced, with_gpus
from dray.cli.starting import describes_a_run, start_and_follow
from dray.cli.voice import Voice
from dray.core.errors import UsageError, printable

_ARGS = "dray.new_args"


class RerunCommand(click.Command):
    """Keeps apart RUN and, behind `--`, the new words, which may be none at all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leaves the words behind the first `--` in `ctx.meta`; None: there was no `--`."""
        at = args.index("--") if "--" in args else None
        ctx.meta[_ARGS] = None if at is None else tuple(args[at + 1 :])
        rest = super().parse_args(ctx, args[:at])
        extra = ctx.params.get("extra") or ()
        if extra:
            run, words = ctx.params["word"], shell_words(extra)
            raise UsageError(
                f"`{printable(extra[0])}` is neither a run nor an option",
                why="new words for the script stand behind `--`",
                hint=printable(f"dray rerun {run} -- {words}"),
            )
        return rest


@click.command("rerun", cls=RerunCommand, options_metavar="[OPTIONS]")
@describes_a_run("where the run was", "the run's")
@with_gpus
@as_json("the new run")
@voiced
@click.argument("word", metavar="RUN")
@click.argument("extra", metavar="[-- NEW ARGS...]", nargs=-1)
@click.pass_context
def rerun(
    ctx: click.Context,
    /,
    word: str,
    extra: tuple[str, ...],
    detach: bool,
    yes: bool,
    wants_json: bool,
    voice: Voice,
    secret_words: tuple[str, ...],
    tags: tuple[tuple[str, str], ...],
    env: tuple[tuple[str, str], ...],
    **fields: Any,
) -> int:
    """Run the same code, environment and command again.

    The code is that of RUN, byte for byte, whatever became of its folder. Experiment, tags, variables, time limit and
    patterns of outputs are RUN's too; tags and variables given here are added. NEW ARGS replace all words after the script,
    or after the program of a command (`--` alone: no words). Values of secrets are looked for again, as `--secret NAME` does.

    Follows the new run, with the exit codes of `dray submit`.

    \b
    Examples:
      dray rerun @last
      dray rerun k3f9x2abqd -c gpu1 --tag why=check
      dray rerun resnet-a -- --lr 0.01
    """  # noqa: D301
    from dray.workspace.repeating import Repetition

    with desk.workspace() as ws:
        run = desk.find(ws, word)
        ws.target(fields["compute"] or run.record.compute)  # before anybody is asked for a secret
        sources = dict.fromkeys(run.record.spec.secrets) | secret_values.sources(secret_words)
        secrets = secret_values.collect(sources, may_ask=not yes)
        wish = Repetition(args=ctx.meta[_ARGS], tags=dict(tags), env=dict(env), secrets=secrets, **fields)

        return start_and_follow(lambda on: run.repeat(wish, on), voice, detach=detach, wants_json=wants_json)
