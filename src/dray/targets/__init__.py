"""The kinds of compute: each names its host, and how runs are started on it. Those that are attached are imported when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dray.targets.local import LocalTarget

if TYPE_CHECKING:
    from dray.targets.vm import VmOptions, VmTarget

__all__ = ["KINDS", "LocalTarget", "VmOptions", "VmTarget", "options_of"]

KINDS = {"vm": "A machine that you reach with ssh."}
"""What can be attached, each with the first line of its help."""

OLD_WORDS = {"remote": "vm", "remotevm": "vm", "ssh": "vm"}
"""What the same things were called elsewhere."""


def __getattr__(name: str) -> Any:
    """Import a kind of compute when somebody has one."""
    if name in ("VmOptions", "VmTarget"):
        from dray.targets import vm

        return getattr(vm, name)
    raise AttributeError(f"module 'dray.targets' has no attribute {name!r}")


def options_of(kind: str) -> type[VmOptions]:
    """The dataclass with the options of that kind."""
    from dray.targets.vm import VmOptions

    return {"vm": VmOptions}[kind]
