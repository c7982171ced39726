"""The container engine of a compute, as its machine tells of it: for attach, `compute check` and `doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, printable

if TYPE_CHECKING:
    from dray.core.interfaces import Target
    from dray.hosts import Connection


class NoEngine(DrayError):
    """Containers cannot be started on a machine."""

    code = "no-engine"

    def __init__(self, name: str, text: str) -> None:
        super().__init__(
            f"no container can be started on `{printable(name)}`",
            why=printable(text),
            hint="dray doctor    (once that is mended, it says so; then attach again)",
        )


def look(connection: Connection, target: Target) -> dict[str, Any]:
    """What that machine's engine says of itself; where none answers, `trouble` says why."""
    wanted = target.container.engine if target.container else None
    request = {"op": "engine", "engine": wanted, "login": not target.is_here, "setup": target.setup}
    found: dict[str, Any] = connection.call(request)["engine"]
    return found


def ask_engine(connection: Connection, target: Target) -> dict[str, Any]:
    """The same. Raises NoEngine."""
    found = look(connection, target)
    if found.get("trouble"):
        raise NoEngine(target.name, str(found["trouble"]))
    return found


def engine_text(found: Mapping[str, Any]) -> str:
    """docker 28.1, rootless."""
    how = ", rootless" if found.get("rootless") else ", with remapped users" if found.get("remapped") else ""
    return printable(f"{found.get('kind')} {found.get('version')}{how}")


def engine_notes(found: Mapping[str, Any], name: str) -> list[str]:
    """Sentences for whoever attaches."""
    notes = [f"containers by {engine_text(found)}"]
    if found.get("gpus"):
        notes.append(f"GPUs get into them ({printable(str(found['gpus']))})")
    elif found.get("gpu_trouble"):
        notes.append(printable(str(found["gpu_trouble"])))
    return notes
