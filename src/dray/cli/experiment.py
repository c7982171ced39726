"""`dray experiment ...`: the words of an older habit."""

from __future__ import annotations

import click

from dray.cli.group import Section
from dray.cli.prepare import prepare
from dray.cli.submit import submit


@click.group("experiment", cls=Section)
def experiment() -> None:
    """Work with experiments.

    \b
    Example:
      dray experiment submit --experiment digits train.py
    """  # noqa: D301


experiment.add_command(submit)
experiment.add_command(prepare)
