"""The facade: submit, follow, look back, cancel, fetch. The SDK and the command line both stand on it.

Everything is imported on first use, because a CLI imports this room on each start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dray.workspace.events import Ended, Event, Output, Progress, Said, Served, StateChanged
    from dray.workspace.facade import Workspace
    from dray.workspace.finding import Finding
    from dray.workspace.logged import Image, Table
    from dray.workspace.outputs import Outputs
    from dray.workspace.run import Run
    from dray.workspace.submission import Plan, Submission

__all__ = [
    "Ended",
    "Event",
    "Finding",
    "Image",
    "Output",
    "Outputs",
    "Plan",
    "Progress",
    "Run",
    "Said",
    "Served",
    "StateChanged",
    "Submission",
    "Table",
    "Workspace",
]

_HOMES = {
    "finding": ("Finding",),
    "events": ("Ended", "Event", "Output", "Progress", "Said", "Served", "StateChanged"),
    "facade": ("Workspace",),
    "logged": ("Image", "Table"),
    "outputs": ("Outputs",),
    "run": ("Run",),
    "submission": ("Plan", "Submission"),
}


def __getattr__(name: str) -> Any:
    """Import `name` from the module that it lives in."""
    for module, names in _HOMES.items():
        if name in names:
            import importlib

            value = getattr(importlib.import_module(f"dray.workspace.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
