"""Opens the workspace for a command, and looks a run up as fresh as can be had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dray.cli.progress import Activity
from dray.cli.times import ago
from dray.cli.voice import Voice
from dray.core.errors import DrayError

if TYPE_CHECKING:
    from dray.workspace import Run, Workspace


@contextmanager
def workspace() -> Iterator[Workspace]:
    """The user's workspace, closed at the end."""
    # Here and not at the top: `dray submit --help` needs no history.
    from dray.workspace import Workspace

    opened = Workspace()
    try:
        yield opened
    finally:
        opened.close()


def fresh(run: Run, voice: Voice) -> Run:
    """Ask the machine for what is new. A machine that does not answer is a remark, not an error."""
    try:
        with Activity(voice) as activity:
            activity.begin(f"asking {run.record.compute}")
            run.refresh()
    except DrayError as error:
        voice.warn(error.what, f"this is what was known {ago(run.record.as_of)}")
        return run
    if run.record.unreachable:
        voice.warn(
            f"`{run.record.compute}` could not be asked", f"this is what was known {ago(run.record.as_of)}"
        )
    return run
