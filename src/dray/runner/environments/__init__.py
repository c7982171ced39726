"""Which Python a run gets on this machine, and the building of an environment that is not there yet.

Begin with `building.Builder.provide`. An environment is named by what it contains (`place`), built once at its final path under a lock
(`waiting`), by uv or conda (`uv`, `conda`), from what was frozen at the first time (`frozen`), and complete only when its marker says
so. A run uses it through a layer of its own (`overlay`).
"""

from __future__ import annotations


class BuildFailed(Exception):
    """What the script needs could not be made; the text is for the user."""

    kind = "environment-failed"
    """The reason's."""


class Stopped(Exception):
    """The run was cancelled meanwhile."""
