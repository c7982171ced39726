"""Containers whose runs have ended: found by their label, and removed. Nothing else of the engine's is touched.

`end` is for one run, by what its folder says; `sweep` for all runs of this machine's folder.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List

from ..files import read_json
from ..folder import RUN_ID, RunFolder
from ..machine import Machine
from .engines import Engine

RUN, MACHINE = "dray.run", "dray.machine"
_REMOVE_S = 60.0
# What says where an engine is.
_VARIABLES = (
    "PATH",
    "HOME",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
)


def labels(machine: Machine, run: str) -> Dict[str, str]:
    """What a container of that run carries."""
    return {RUN: run, MACHINE: machine.id}


def trace(engine: Engine, run: str, login: str | None = None) -> Dict[str, Any]:
    """What it takes to end a run's container, as plain data; no secret is in it. `login`: the folder of its logins."""
    kept = {
        name: value
        for name, value in engine.environ.items()
        if name in _VARIABLES or name.startswith(("DOCKER_", "CONTAINER"))
    }
    found = {"engine": engine.program, "name": run, "env": kept}
    return {**found, "login": login} if login else found


def end(traced: Dict[str, Any]) -> None:
    """Remove that run's container, if it is there, and what it was pulled with. Never raises."""
    try:
        if traced.get("login"):
            from . import logins

            logins.remove(str(traced["login"]))
        env = {str(key): str(value) for key, value in dict(traced["env"]).items()}
        engine = Engine(str(traced["engine"]), env)
        # By its own label: the name alone may be somebody else's.
        (found,) = engine.ask(
            ["ps", "--all", "--quiet", "--no-trunc", "--filter", "label=%s=%s" % (RUN, traced["name"])]
        )
        ids = found.out.split()
        if ids:
            engine.ask(["rm", "--force", "--volumes", *ids], limit_s=_REMOVE_S)
    except (OSError, KeyError, TypeError, ValueError):
        return


def end_of(folder: RunFolder, number: int) -> None:
    """The same for a run that is found without its people."""
    traced = read_json(os.path.join(folder.attempt(number), "container.json"))
    if traced is not None:
        end(dict(traced, name=folder.id))


def sweep(engine: Engine, machine: Machine) -> List[str]:
    """Remove the containers of this machine's runs that nobody looks after any more; their runs."""
    form = (
        '{{.ID}} {{.Label "%s"}}' % RUN if engine.kind != "podman" else '{{.ID}} {{index .Labels "%s"}}' % RUN
    )
    (found,) = engine.ask(
        ["ps", "--all", "--no-trunc", "--filter", "label=%s=%s" % (MACHINE, machine.id), "--format", form]
    )
    gone = []
    for line in found.out.splitlines():
        container, _, run = line.partition(" ")
        if RUN_ID.match(run) and _is_over(RunFolder(machine, run)):
            engine.ask(["rm", "--force", "--volumes", container], limit_s=_REMOVE_S)
            gone.append(run)
    return gone


def _is_over(folder: RunFolder) -> bool:
    """Whether none of the run's people live: its folder is gone, or its lock free."""
    if not os.path.isdir(folder.path):
        return True
    lock = folder.try_lock()
    if lock is None:
        return False
    os.close(lock)
    return True
