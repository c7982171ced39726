"""Where Python keeps what it compiles, for all environments of this user: they stay as they were built, and the second run starts sooner.

Below it lies the path of each source again, so what belongs to a folder can go with it.
"""

from __future__ import annotations

import os

from .files import remove_tree
from .machine import Machine


def folder(machine: Machine) -> str:
    """For PYTHONPYCACHEPREFIX."""
    return os.path.join(machine.folder, "bytecode")


def forget(machine: Machine, path: str) -> None:
    """The folder `path` is gone: what was compiled from it is of no use."""
    place = folder(machine) + os.path.abspath(path)
    try:
        remove_tree(place)
    except OSError:
        return  # it takes room, no more; whoever clears away comes by again
