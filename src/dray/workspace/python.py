"""Which Python a run on this machine gets when it brings no environment: the one that `python X` would use in this shell."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dray.core.errors import printable
from dray.workspace.errors import NoPython


def users_python(env: Mapping[str, str]) -> tuple[str, str]:
    """(path, where it was found). Never dray's own interpreter just because dray happens to run in it."""
    stale = ""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = env.get(variable)
        if prefix:
            for name in ("python", "python3"):
                found = os.path.join(prefix, "bin", name)
                if os.access(found, os.X_OK):
                    return found, variable + stale
            # A shell keeps the variable when the folder is deleted, and its user would look for the packages in vain.
            stale += f"; {variable} names {printable(prefix)}, where no Python is"
    import shutil

    path = env.get("PATH", os.defpath)
    for name in ("python", "python3"):
        on_path = shutil.which(name, path=path)
        if on_path:
            return os.path.abspath(on_path), "PATH" + stale
    raise NoPython(f"PATH ({path})")
