"""Finds the file that says what a script needs. Apart from the reading: most submits look, and few find one."""

from __future__ import annotations

import os
from pathlib import Path

FILE_NAME = "conda_dependencies.yml"
FILE_NAMES = (FILE_NAME, "uv.lock", "pylock.toml", "pyproject.toml", "requirements.txt")
"""In one folder the first that is there counts."""


def find_environment_file(start: Path, top: Path) -> Path | None:
    """The nearest file that says what is needed, from the folder `start` up to the folder `top`."""
    here, last = Path(os.path.abspath(start)), Path(os.path.abspath(top))
    if not here.is_relative_to(last):
        here = last
    for folder in (here, *here.parents):
        for name in FILE_NAMES:
            if (folder / name).is_file() and _counts(folder / name):
                return folder / name
        if folder == last:
            break
    return None


def _counts(path: Path) -> bool:
    """A pyproject.toml may hold settings of tools only, and a uv.lock is nothing without the project it is for."""
    from dray.environments.projects import names_dependencies

    if path.name == "pyproject.toml":
        return names_dependencies(path)
    return path.name != "uv.lock" or (path.parent / "pyproject.toml").is_file()
