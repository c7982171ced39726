"""The tree of commands, each imported only when it is called for."""

from __future__ import annotations

import importlib
import os

import click
from click.exceptions import Exit

from dray.cli import commands
from dray.core.errors import UsageError, printable

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Lazy(click.Group):
    """`dray` itself: knows its commands from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All first words, in the order of the table."""
        return list(commands.top_level())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one that is wanted."""
        module = commands.top_level().get(cmd_name)
        if module is None:
            return None
        found: click.Command = getattr(importlib.import_module(f"dray.cli.{module}"), cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with "did you mean" for other tools' words."""
        if args[0] not in commands.top_level():
            raise unknown_command(args[0])
        return super().resolve_command(ctx, args)


def unknown_command(word: str) -> UsageError:
    """The error for a verb that is not there, naming the one that was meant."""
    what = f"there is no command `{printable(word)}`"
    if word.endswith((".py", ".sh")) or (os.sep in word and os.path.isfile(word)):
        return UsageError(
            what,
            why=f"did you mean `dray submit {printable(word)}`?",
            hint=f"dray submit {printable(word)}",
        )
    near = commands.meant(word)
    return UsageError(what, why=f"did you mean `dray {near}`?" if near else None, hint="dray --help")


root = Lazy(name=commands.NAME, context_settings=CONTEXT)


def run(words: list[str]) -> int:
    """Run `words`; commands return their exit code, or None for 0. Errors of every kind pass through."""
    if words[0].startswith("-"):
        raise UsageError(
            f"`{printable(words[0])}` stands before the command",
            why="options come after it, as in `dray runs --json`",
            hint="dray --help",
        )
    # Not `root.main()`: it would turn Ctrl-C, closed pipes and a full disk into click's own words and codes.
    try:
        with root.make_context(commands.NAME, words) as context:
            code = root.invoke(context)
    except Exit as left:  # --help
        return left.exit_code
    return code if isinstance(code, int) else 0
