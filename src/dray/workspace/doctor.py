"""What is wrong here, and how to mend it: the findings of `dray doctor` and `dray compute check`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from dray.core.durations import show_bytes
from dray.core.errors import DrayError, UnknownName, printable
from dray.workspace.finding import Finding
from dray.workspace.python import users_python

if TYPE_CHECKING:
    from dray.workspace.facade import Workspace

_LITTLE = 2_000_000_000


def examine(workspace: Workspace, compute: str | None = None) -> list[Finding]:
    """This client, then every compute; or that one alone."""
    if compute is not None:
        try:
            workspace.target(compute)
        except UnknownName:
            raise
        except DrayError:
            pass  # a finding
        return check_compute(workspace, compute)
    found = [_python(), _users_python(), _history(workspace), *_room(workspace), _git()]
    for name in workspace.compute_names():
        found += check_compute(workspace, name)
    return found


def check_compute(workspace: Workspace, name: str) -> list[Finding]:
    """Reachable, who, what is there, how much room."""
    try:
        name = workspace.target(name).name
        described = workspace.describe(name)
        machine = described["machine"]
    except DrayError as trouble:
        return [
            Finding(
                "bad",
                f"compute {name}",
                trouble.what + (f" ({trouble.why})" if trouble.why else ""),
                trouble.hint,
            )
        ]
    found = [
        Finding(
            "ok",
            f"compute {name}",
            f"{machine['user']}@{machine['host']}, {machine['os']}, Python {machine['python']}, {machine['cpus']} cores",
        )
    ]
    free = int(machine["disk_free"])
    if free < _LITTLE:
        found.append(
            Finding(
                "warn",
                f"disk of {name}",
                f"{show_bytes(free)} free below {machine['root']}",
                "dray gc" if name == "local" else f"dray gc -c {name}",
            )
        )
    else:
        found.append(Finding("ok", f"disk of {name}", f"{show_bytes(free)} free"))
    if machine.get("logout") and not machine["logout"].get("lingers"):
        found.append(
            Finding("warn", f"logout on {name}", "it ends your processes, runs too, when your last login ends",
                    f"on it, as an administrator: loginctl enable-linger {machine['user']}")
        )  # fmt: skip
    uv = machine["programs"].get("uv") or workspace.target(name).near().get("uv")
    if uv:
        found.append(Finding("ok", f"uv for {name}", str(uv)))
    else:
        found.append(
            Finding("ok", f"uv for {name}", "none there; dray brings it along with the first environment")
        )
    return [*found, *_engine(name, described.get("engine") or {}), *_gpus(workspace, name)]


def _gpus(workspace: Workspace, name: str) -> list[Finding]:
    """Its driver, its GPUs, what is built for them; and its clock, since the answer has it."""
    from dray.workspace.gpu_findings import findings

    target = workspace.target(name)
    python = None
    if target.is_here:
        try:
            python = users_python(os.environ)[0]
        except DrayError:
            python = None  # told by `_users_python`
    try:
        with workspace.connect(name) as connection:
            connection.call({"op": "ping"})  # whatever logging in took is over: the answer's way is short now
            asked = time.time()
            facts = connection.call({"op": "examine", "python": python})["gpu"]
    except DrayError as trouble:
        return [Finding("warn", f"GPUs of {name}", trouble.what, trouble.hint)]
    offset = float(facts["time"]) - asked
    return findings(name, facts, None if target.is_here else offset)


def _engine(name: str, said: Mapping[str, Any]) -> list[Finding]:
    """What there is to say of containers: nothing, where nobody has an engine or wants one."""
    if not said:
        return []
    from dray.workspace.engines import engine_text

    what = f"containers on {name}"
    if said.get("trouble"):
        # Where an engine is there and not for us, as for a user outside of its group, no run is lost by it.
        level: Literal["warn", "bad"] = "bad" if said.get("wanted") else "warn"
        return [Finding(level, what, printable(str(said["trouble"])))]
    found = [Finding("ok", what, engine_text(said))]
    if said.get("gpu_trouble"):
        found.append(Finding("warn", f"GPUs in containers on {name}", printable(str(said["gpu_trouble"]))))
    elif said.get("gpus"):
        found.append(Finding("ok", f"GPUs in containers on {name}", f"by {printable(str(said['gpus']))}"))
    return found


def _python() -> Finding:
    return Finding("ok", "dray's Python", f"{sys.executable} ({sys.version.split()[0]})")


def _users_python() -> Finding:
    try:
        path, source = users_python(os.environ)
        return Finding("ok", "Python of runs", f"{path} (from {source})")
    except DrayError as trouble:
        return Finding("warn", "Python of runs", trouble.what, trouble.hint)


def _history(workspace: Workspace) -> Finding:
    try:
        count = len(workspace.store.runs())
        strangers = workspace.strangers()
        if strangers:
            text = f"{strangers} run folders of this machine are not in it"
            return Finding("bad", "history", text, "dray rebuild")
        return Finding("ok", "history", f"{count} run{'s' * (count != 1)} in {workspace.home}")
    except DrayError as trouble:
        return Finding("bad", "history", trouble.what, trouble.hint)


def _room(workspace: Workspace) -> list[Finding]:
    """What there is to say of the disk below the history: nothing, while there is room."""
    import shutil

    try:
        free = shutil.disk_usage(workspace.home).free
    except OSError:
        return []  # there is no home yet, or `_history` has told what is wrong with it
    if free >= _LITTLE:
        return []
    return [Finding("warn", "disk of the history", f"{show_bytes(free)} free in {workspace.home}", "dray gc")]


def _git() -> Finding:
    import shutil

    path = shutil.which("git")
    if path:
        return Finding("ok", "git", path)
    return Finding("warn", "git", "not found: runs will not name their commit", "install git")
