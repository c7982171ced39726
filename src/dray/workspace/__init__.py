"""The facade: submit, follow, look back, cancel, fetch. The SDK and the command line both stand on it."""

from dray.workspace.doctor import Finding
from dray.workspace.events import Ended, Event, Output, Progress, Said, StateChanged
from dray.workspace.facade import Workspace
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
    "StateChanged",
    "Submission",
    "Table",
    "Workspace",
]
