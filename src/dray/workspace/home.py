"""Where the history lives on this client: DRAY_HOME, else the platform's data folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dray.workspace.errors import NoHome


def default_home() -> Path:
    """Never `~/.dray`: a folder of that name marks a project."""
    named = os.environ.get("DRAY_HOME")
    try:
        if named:
            return Path(named).expanduser().absolute()
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dray"
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "dray"
    except RuntimeError:  # pathlib's word for it
        raise NoHome from None
