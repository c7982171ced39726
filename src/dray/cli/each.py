"""Does one thing to each of several runs: a failure of one keeps none of the others waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dray.cli.desk import find
from dray.cli.trouble import say_error
from dray.core.errors import DrayError

if TYPE_CHECKING:
    from dray.workspace import Run, Workspace


def for_each(
    ws: Workspace, words: Sequence[str], do: Callable[[Run], dict[str, Any]]
) -> tuple[int, list[dict[str, Any]]]:
    """Look all of `words` up first, so that a misspelt one stops everything; then `do` each.

    Returns the first failure's exit code, or 0, and what `do` gave.
    """
    runs = {run.id: run for run in [find(ws, word) for word in words]}
    code, done = 0, []
    for run in runs.values():
        try:
            done.append(do(run))
        except DrayError as error:
            say_error(error)
            code = code or error.exit_code
    return code, done
