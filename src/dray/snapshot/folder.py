"""Decides which folder a script belongs to: the code folder, all of which travels with the run."""

from __future__ import annotations

import os
from pathlib import Path

from dray.snapshot.errors import NoSuchFolder, NoSuchScript, ScriptOutside

_FOLDERS = (".dray", "aml_config", ".azureml")
_FILES = ("conda_dependencies.yml", "uv.lock", "pylock.toml", "pyproject.toml", "requirements.txt")


def find_code_folder(script: Path, cwd: Path, explicit: Path | None) -> Path:
    """The folder that travels: `explicit`, else the script's nearest parent up to `cwd` that marks a project, else `cwd`.

    `script` and `explicit` may be relative to `cwd`. Raises NoSuchScript, NoSuchFolder or ScriptOutside.
    """
    here = os.path.abspath(cwd)
    wanted = os.path.normpath(os.path.join(here, script))
    _require_script(str(script), wanted)
    if explicit is not None:
        folder = os.path.normpath(os.path.join(here, explicit))
        if not os.path.isdir(folder):
            raise NoSuchFolder(str(explicit), is_file=os.path.exists(folder))
    else:
        folder = _nearest_project(wanted, here)
    if path_within(Path(folder), script, cwd) is None:
        raise ScriptOutside(wanted, folder, os.path.dirname(wanted))
    return Path(folder)


def path_within(folder: Path, script: Path, cwd: Path) -> str | None:
    """The path of `script` below `folder`, with `/`; None when it lies outside."""
    wanted = os.path.normpath(os.path.join(os.path.abspath(cwd), script))
    return _below(os.path.abspath(folder), wanted)


def _require_script(given: str, wanted: str) -> None:
    if os.path.isfile(wanted):
        return
    parent = os.path.dirname(wanted)
    if os.path.exists(wanted):
        raise NoSuchScript(given, parent, (), is_folder=os.path.isdir(wanted))
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        raise NoSuchScript(given, parent, None) from None
    raise NoSuchScript(given, parent, names)


def _nearest_project(wanted: str, here: str) -> str:
    below = _below(here, wanted)
    steps = below.split("/")[:-1] if below is not None else []
    for depth in range(len(steps), 0, -1):
        parent = os.path.join(here, *steps[:depth])
        if any(os.path.isdir(os.path.join(parent, name)) for name in _FOLDERS):
            return parent
        if any(os.path.isfile(os.path.join(parent, name)) for name in _FILES):
            return parent
    return here


def _below(folder: str, path: str) -> str | None:
    """First as written, because a link inside the folder may lead out; then by where the parents really are,
    because one of the two may have been named through a link (`/home/ana` for `/data/home/ana`).
    """
    real_parent = os.path.realpath(os.path.dirname(path))
    for base, full in (
        (folder, path),
        (os.path.realpath(folder), os.path.join(real_parent, os.path.basename(path))),
    ):
        start = base if base.endswith(os.sep) else base + os.sep
        if full.startswith(start):
            return full[len(start) :].replace(os.sep, "/")
    return None
