"""Removes dray from this machine: all runs that have ended, environments, blobs, the runner itself. Never with a live run."""

from __future__ import annotations

import os

from . import logout, visit
from .files import remove_tree
from .folder import RUN_ID, RunFolder
from .machine import Machine

# `python` is one that uv brought for us; it may be the one that runs this.
_SHARED = ("runner", "python", "id")


def alive(machine: Machine) -> list[str]:
    """Runs that live, or of which nobody knows better here."""
    names = [name for name in sorted(os.listdir(machine.runs)) if RUN_ID.match(name)]
    folders = [RunFolder(machine, name) for name in names]
    return [folder.id for folder in folders if folder.tombstone() is None and visit.settle(folder)]


def purge(machine: Machine) -> list[str]:
    """Remove all that dray has put here; what stays, because it is another machine's or nobody's we know."""
    logout.undo(machine)
    remove_tree(machine.folder)
    # Under one network home there may be folders of other machines: they share the runner and the id with us.
    others = [name for name in sorted(os.listdir(machine.root)) if name not in _SHARED]
    if not others:
        for name in _SHARED:
            remove_tree(os.path.join(machine.root, name))
        _remove_if_empty(machine.root)
        if os.path.basename(machine.root) == "machine":
            _remove_if_empty(os.path.dirname(machine.root))
    return others


def _remove_if_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        return  # something of the user's is in it
