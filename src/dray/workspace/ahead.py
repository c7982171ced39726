"""Starts this machine's runner before it is needed: it wakes up while the rest of dray is still being read.

Whoever starts it knows neither what will be submitted nor whether it can be; nothing happens on the machine before it is asked to.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from dray.core.errors import DrayError
from dray.hosts import Connection
from dray.targets.local import LocalTarget
from dray.workspace.home import default_home

if TYPE_CHECKING:
    from dray.core.interfaces import Target


class _Ahead:
    """A connection to this machine that nobody has used yet."""

    def __init__(self, without: Collection[str]) -> None:
        local = LocalTarget(default_home())
        self.root = local.root
        self.without = set(without)
        self.environ = dict(os.environ)
        self.connection = Connection(local.host, local.root, local.python, without=without)

    def fits(self, target: Target, without: Collection[str]) -> bool:
        """Whether a connection that was opened now would be the same."""
        same_place = target.is_here and target.root == self.root
        return same_place and set(without) == self.without and dict(os.environ) == self.environ


_waiting: list[_Ahead] = []


def start(compute: str | None, without: Collection[str]) -> None:
    """For a submit to `compute`; does nothing if that is not, or may not be, this machine. `without`: variables that stay here."""
    wanted = compute or os.environ.get("DRAY_COMPUTE") or "local"
    try:
        # Not asked of `Computes`, which is yet to be read: a chosen default is seldom, and costs the head start.
        if wanted == "local" and (compute or not (default_home() / "computes" / "default").exists()):
            _waiting.append(_Ahead(without))
    except (DrayError, OSError):
        return  # whoever needs it will meet the same, and tell


def take(target: Target, without: Collection[str]) -> Connection | None:
    """The connection that was opened ahead, if it is one to `target`."""
    while _waiting:
        ahead = _waiting.pop()
        if ahead.fits(target, without):
            return ahead.connection
        ahead.connection.close()
    return None
