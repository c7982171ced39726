"""Takes runs that are found on a machine into this history: another client's, or those of a history that was lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dray.core.spec import RunSpec
from dray.core.states import RunState
from dray.store import RunExists
from dray.workspace.run import Run

if TYPE_CHECKING:
    from dray.workspace.facade import Workspace


def adopt(workspace: Workspace, name: str) -> list[str]:
    """Take runs that are found on a machine, and that this history does not know, into it; their ids.

    Those that it knows from a compute that was forgotten since belong to this one now.
    """
    target = workspace.target(name)
    known = workspace.compute_names()
    with workspace.connect(target.name) as connection:
        rows = connection.call({"op": "list"})["runs"]
    taken = []
    for row in rows:
        spec = replace(RunSpec.from_json(row["spec"]), compute=target.name)
        try:
            workspace.store.create_run(spec)
        except RunExists:
            record = workspace.store.run(spec.id)
            if record.imported is None and record.compute not in known:
                workspace.store.move(spec.id, target.name)
                taken.append(spec.id)
            continue
        run = Run(workspace, workspace.store.run(spec.id))
        run.refresh()
        if run.status is not RunState.CREATED:
            taken.append(spec.id)
    return taken
