"""What there is for containers on this machine: its engine, and whether GPUs get into them. For attach and doctor; starts nothing."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Dict

from .. import login
from ..environments.pythons import find_program
from . import engines, gpus
from .engines import ContainerFailed, Engine, Facts

_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-cli", "nvidia-container-toolkit")
_CDI = ("/etc/cdi", "/var/run/cdi", "/run/cdi")


def login_environment(setup: str | None) -> Dict[str, str]:
    """What a run would find here: the variables of the user's login shell; those of this process where it gives none."""
    import subprocess

    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        shell = login.LoginShell(folder, setup)
        step = shell.step({})
        try:
            subprocess.run(
                step["argv"],
                executable=step["program"],
                env=step["env"],
                cwd=step["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=login.LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return login.own_environment()
        return shell.environment() or login.own_environment()


def look(wanted: str | None, environ: Dict[str, str]) -> Dict[str, Any]:
    """For the answer to a client: the engine's kind, version, ways; or `trouble`, with its `code`."""
    try:
        engine, facts = engines.first_that_answers(engines.find(wanted, environ), meet)
    except ContainerFailed as trouble:
        return {"trouble": str(trouble), "code": trouble.kind}
    found = {
        "kind": engine.kind,
        "program": engine.program,
        "version": facts.version,
        "rootless": facts.is_rootless,
        "remapped": facts.is_remapped,
        "limits_memory": facts.limits_memory,
        "gpus": None,
        "gpu_trouble": None,
    }
    toolkit = toolkit_of(engine)
    if toolkit.is_anything:
        try:
            found["gpus"] = gpus.way(engine.kind, facts, toolkit)
        except ContainerFailed as trouble:
            found["gpu_trouble"] = str(trouble)
    return found


def meet(engine: Engine) -> Facts:
    """Its facts. Raises ContainerFailed when it does not answer, or is somewhere else."""
    questions = engines.questions(engine.kind)
    return engines.met(engine, *engine.ask(*questions))


def toolkit_of(engine: Engine) -> gpus.Toolkit:
    """What this machine has for GPUs in containers."""
    from ..gpu.examine import has_gpu

    path = engine.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    is_there, trouble = has_gpu()
    cdi = [
        os.path.join(folder, name)
        for folder in _CDI
        for name in (os.listdir(folder) if os.path.isdir(folder) else ())
        if "nvidia" in name
    ]
    return gpus.Toolkit(
        has_gpu=is_there,
        ctk=find_program(["nvidia-ctk"], path),
        hook=find_program(list(_HOOKS), path),
        cdi_files=cdi,
        snap=os.path.realpath(engine.program).startswith("/snap/") or engine.program.startswith("/snap/"),
        driver_trouble=trouble,
    )
