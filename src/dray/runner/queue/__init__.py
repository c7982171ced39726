"""Who may start now: GPUs and cores of one machine, shared by all its users without a server.

`scheduler` is what a run asks; `turn` decides, and touches nothing; `desk` is the folder that everybody meets in.
"""

from __future__ import annotations

from .asked import Asked, Refused
from .desk import NoDesk
from .scheduler import Failed, Scheduler, Stopped, scheduler_for

__all__ = ["Asked", "Failed", "NoDesk", "Refused", "Scheduler", "Stopped", "scheduler_for"]
