"""Where the history lies, found without the workspace: for what must be quick, or work when the workspace does not."""

from __future__ import annotations

import os


def home() -> str:
    """The same as `dray.workspace.home.default_home`."""
    named = os.environ.get("DRAY_HOME")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "dray")
