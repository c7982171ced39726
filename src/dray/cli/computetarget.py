"""`dray computetarget attach`: the old words for `dray attach`."""

from __future__ import annotations

import click

from dray.cli.attach import attach
from dray.cli.group import Section


@click.group("computetarget", cls=Section)
def computetarget() -> None:
    """Attach machines, in the words of old.

    \b
    Examples:
      dray computetarget attach remote --name my_vm --address A --username U --password-stdin
      dray computetarget attach remotedocker --name my_dsvm --address A --username U --password-stdin
    """  # noqa: D301


computetarget.add_command(attach)
