"""What a symbolic link of the code folder points to once the folder lies somewhere else."""

from __future__ import annotations

import itertools
import os


def stored_target(root: str, path: str, target: str) -> str:
    """The target to store for the link at `path` below `root` (a real path).

    A link that stays inside is relative, so that it still does in a copy; one that leads out is absolute.
    """
    folder = os.path.join(root, os.path.dirname(path))
    steps = target.split("/")
    climbs_back = any(
        step == ".." and before not in ("..", ".", "") for before, step in itertools.pairwise(steps)
    )
    # `a/../b` is not `b` where `a` is a link itself; only then the links on the way have to be followed.
    full = os.path.join(folder, target)
    full = os.path.realpath(full) if climbs_back else os.path.normpath(full)
    inside = full == root or full.startswith(root.rstrip(os.sep) + os.sep)
    if not inside:
        return full
    return os.path.relpath(full, folder) if os.path.isabs(target) else target
