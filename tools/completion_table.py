"""Writes src/dray/cli/completion_table.py: every command's options and arguments, so that completing imports none of them."""

from __future__ import annotations

from collections.abc import Iterator

import click

HEAD = '''\
"""Options and arguments of every command. Written by `./dev docs` from the commands; change it there.

A command's row: its options (names, kind of value, about), its arguments (kind, whether the last one repeats), and whether
options may follow arguments. `dray.cli.completing` knows the kinds.
"""

from __future__ import annotations

# fmt: off
TABLE: dict[str, tuple[tuple[tuple[tuple[str, ...], str, str], ...], tuple[tuple[str, bool], ...], bool]] = {
'''

KINDS = {
    "where": "where",
    "sort": "sort",
    "columns": "columns",
    "experiment": "experiment",
    "compute": "compute",
    "folder": "dirs",
    "destination": "dirs",
    "to": "dirs",
    "environment": "files",
    "tags": "tag",
    "tag gone": "tag-name",
    "tag words": "run-or-tag",
    "metrics words": "run-or-metric",
    "attach kind": "choice vm docker remotedocker",
    "computetarget attach kind": "choice vm docker remotedocker",
    "compute attach kind": "choice vm docker remotedocker",
    "compute show name": "compute",
    "compute check name": "compute",
    "compute update name": "compute",
    "compute rm name": "compute",
    "compute alias name": "compute",
    "compute default name": "compute",
    "ssh name": "compute",
    "adopt name": "compute",
    "rerun words": "any",
    "forward ports": "any",
    "identity_file": "files",
    "submit words": "files",
    "experiment submit words": "files",
    "logs name": "log",
}
"""By the parameter's name, or the command's and the parameter's."""


def page(commands: Iterator[tuple[str, click.Command]]) -> str:
    """The module's text; `commands` by the words that call them, without the program's own name."""
    rows = []
    for words, command in commands:
        if isinstance(command, click.Group) or command.hidden:
            continue
        options = [
            row(words, option)
            for option in command.params
            if isinstance(option, click.Option) and not option.hidden
        ]
        options.append('(("--help",), "", "Show what it does.")')
        arguments = [
            f'("{kind(words, one)}", {one.nargs == -1})'
            for one in command.params
            if isinstance(one, click.Argument)
        ]
        is_mixed = command.context_settings.get("allow_interspersed_args", True)
        rows.append(
            f'    "{words}": (\n        ({together(options, "," + chr(10) + " " * 9)}),\n'
            f"        ({together(arguments)}), {is_mixed},\n    ),\n"
        )
    return HEAD + "".join(rows) + "}\n"


def row(words: str, option: click.Option) -> str:
    """One option."""
    takes = not (option.is_flag or option.count)
    about = (option.help or "").partition(";")[0].partition(". ")[0].rstrip(".")
    names = together([f'"{name}"' for name in (*option.opts, *option.secondary_opts)])
    return f'(({names}), "{kind(words, option) if takes else ""}", {literal(about)})'


def kind(words: str, param: click.Parameter) -> str:
    """What its value is, as far as it can be completed."""
    if isinstance(param.type, click.Choice):
        return "choice " + " ".join(map(str, param.type.choices))
    for key in (f"{words} {param.name}", str(param.name)):
        if key in KINDS:
            return KINDS[key]
    return "run" if "RUN" in (param.metavar or "") else "any"


def literal(text: str) -> str:
    """In double quotes, as the formatter would have it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def together(items: list[str], between: str = ", ") -> str:
    """The inside of a tuple."""
    return between.join(items) + "," * (len(items) == 1)
