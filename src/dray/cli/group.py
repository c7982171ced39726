"""The tree of commands, each imported only when it is called for."""

from __future__ import annotations

import importlib
import os

import click
from click.exceptions import Exit

from dray.cli import commands
from dray.core.errors import UnknownName, UsageError, printable

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
        # A command that Python needs the word of itself has an underscore behind it.
        name = f"{cmd_name}_" if cmd_name == "import" else cmd_name
        found: click.Command = getattr(importlib.import_module(f"dray.cli.{module}"), name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with "did you mean" for other tools' words."""
        if args[0] not in commands.top_level():
            raise unknown_command(*args)
        return super().resolve_command(ctx, args)


class Section(click.Group):
    """A group of commands. Alone it shows its help and counts as a misuse, as `dray` alone does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Like click's, which has another answer to no words in every version."""
        if not args:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(UsageError.exit_code)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, which does not say what there is."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            raise UnknownName(f"`{commands.NAME} {ctx.info_name}` command", args[0], known)
        return super().resolve_command(ctx, args)


def unknown_command(word: str, *rest: str) -> UsageError:
    """The error for a verb that is not there, with the command that was meant."""
    import shlex

    what = f"there is no command `{printable(word)}`"
    if word.endswith((".py", ".sh")) or (os.sep in word and os.path.isfile(word)):
        near, rest = "submit", (word, *rest)
    else:
        near = commands.meant(word) or "--help"
    words = rest if near in commands.top_level() else ()  # `--version` and the like take none
    return UsageError(what, hint=printable(shlex.join([commands.NAME, *near.split(), *words])))


root = Lazy(name=commands.NAME, context_settings=CONTEXT)


def run(words: list[str]) -> int:
    """Run `words`; commands return their exit code, or None for 0. Errors of every kind pass through."""
    if words[0] in ("-v", "-version"):
        raise UsageError(f"`{words[0]}` alone means nothing", hint="dray --version")
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
