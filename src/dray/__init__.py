"""dray: name a machine once, then send any training script to it with one command.

In a script: `dray.log(loss=0.3, step=7)`. Around scripts: `dray.Workspace().submit("train.py")`.
Everything is imported on first use, so that `import dray` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = (
    False  # type checkers know this name; importing `typing` for it would cost 5 ms of every start
)
if TYPE_CHECKING:
    from typing import Any

    from dray.core.errors import DrayError
    from dray.core.spec import Environment
    from dray.tracking import log, log_image, log_params, log_table, tag
    from dray.workspace import Run, Workspace

__version__ = "0.1.0"
__all__ = [
    "DrayError",
    "Environment",
    "Run",
    "Workspace",
    "__version__",
    "log",
    "log_image",
    "log_params",
    "log_table",
    "tag",
]

_HOMES = {
    "DrayError": "dray.core.errors",
    "Environment": "dray.core.spec",
    "Run": "dray.workspace",
    "Workspace": "dray.workspace",
    "log": "dray.tracking",
    "log_image": "dray.tracking",
    "log_params": "dray.tracking",
    "log_table": "dray.tracking",
    "tag": "dray.tracking",
}


def __getattr__(name: str) -> Any:
    """Import `name` from where it lives, once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dray' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
