"""Turns a run into one process: what it needs to be ready, its command line, its environment, where it starts.

`Launcher` is the interface; `ProcessLauncher` is a plain process on this machine. Another way to start a run (a container, srun) is
another class, chosen in `launcher_for`; who starts and guards the process does not change.
"""

from __future__ import annotations

import os
from typing import Any

from . import environment, processes, results
from .folder import RunFolder
from .mask import forms
from .queue.asked import Asked
from .queue.granted import Granted
from .work import Work


class Order:
    """What a submit brings beside the spec: things that must not be written down, and things at hand."""

    def __init__(
        self, spec: dict[str, Any], near: dict[str, Any], secrets: dict[str, str], travel: str, asked: Asked
    ) -> None:
        self.spec = spec
        self.blobs: str | None = near.get("blobs")
        self.uv: str | None = near.get("uv")
        self.secrets = secrets
        self.travel = travel
        self.asked = asked
        """What it asks of the machine's GPUs and cores, looked at before the claim."""
        self.granted = Granted()
        """The devices that the run holds, as soon as it may start."""

    def hidden(self) -> list[bytes]:
        """What must not be seen in the log: the secrets, in every form that they are likely to be printed in."""
        return [form for value in self.secrets.values() for form in forms(value)]


class Launcher:
    """One way to start a run. The runner asks in this order, each once."""

    def make_ready(self, work: Work) -> None:
        """Find or make what the script needs. Raises environment.BuildFailed, or Stopped when the end was asked for."""
        raise NotImplementedError

    def step(self, machines: dict[str, str]) -> dict[str, Any]:
        """The order to the guard; `machines` is the machine's own environment."""
        raise NotImplementedError

    def door(self, step: dict[str, Any]) -> dict[str, Any]:
        """How others get inside while the run lives (docs/design.md, "Into a live run"); `step` is the order that the guard got.

        `env` and `cwd` of a process that goes in, `hidden`: which of its variables are secrets. Where inside is not here, `into`: the
        words before a command (`into_tty` with a terminal), and `hosts`: the addresses of its ports.
        """
        return {"env": step["env"], "cwd": step["cwd"]}

    def sweep(self) -> None:
        """End what the run has started beside the guard's process tree. Called at every end; never raises."""


def launcher_for(order: Order, folder: RunFolder, number: int) -> Launcher:
    """The one that this run asks for."""
    if order.spec.get("container"):
        from .containers.launcher import ContainerLauncher

        return ContainerLauncher(order, folder, number)
    return ProcessLauncher(order, folder, number)


class ProcessLauncher(Launcher):
    """A process, as the user's own shell would start it."""

    def __init__(self, order: Order, folder: RunFolder, number: int) -> None:
        self.order = order
        self.spec = order.spec
        self.folder = folder
        self.number = number
        self.python: str | None = None
        """The run's interpreter, once it is ready; None when the command needs none."""

    def make_ready(self, work: Work) -> None:
        """Find the run's Python, or make its environment if there is one."""
        wanted = self.spec.get("environment")
        path = work.environ.get("PATH", os.defpath)
        if not wanted:
            self.python = self.spec.get("python") or environment.machine_python(path)
            if self.python:
                work.tell("environment", python=self.python, version=None, digest=None, built_s=None)
            return
        # A set-up such as `module load python/3.11` says what to build on.
        theirs = environment.python3(path) if self.spec.get("setup") else None
        builder = environment.Builder(work.machine, wanted, self.order.uv, work.run, work.environ, theirs)
        was_ready = builder.ready() is not None
        facts = dict(builder.provide(work.note, work.may_go_on))
        if was_ready:
            facts["built_s"] = None
        work.tell("environment", **facts)
        self.python = builder.python

    def argv(self) -> list[str]:
        """The command line."""
        command = [str(word) for word in self.spec["command"]]
        if not self.spec.get("script", True):
            return command
        script, *words = command
        # Else `-x.py` would be an option of the interpreter.
        named = "./" + script if script.startswith("-") else script
        if script.endswith(".py"):
            return [self.python or "python3", named, *words]
        if script.endswith(".sh"):
            return ["sh", named, *words]
        return [os.path.join(self.folder.code, script), *words]

    def env(self, machines: dict[str, str]) -> dict[str, str]:
        """The environment: the machine's, the environment's own, what the submit said, and what dray needs."""
        env = dict(machines)
        if self.spec.get("environment") and self.python:
            folder = os.path.dirname(os.path.dirname(self.python))
            env["VIRTUAL_ENV"] = folder
            env["PATH"] = os.path.join(folder, "bin") + ":" + env.get("PATH", os.defpath)
            env.pop("CONDA_PREFIX", None)
            env.pop("PYTHONHOME", None)
        env.update(self.spec.get("env") or {})
        if not self.spec.get("buffered"):
            env.setdefault("PYTHONUNBUFFERED", "1")
        theirs = env.get("PYTHONPATH")
        env["PYTHONPATH"] = theirs + ":" + self.order.travel if theirs else self.order.travel
        env["PWD"] = self.folder.code
        env[processes.MARK] = self.spec["id"]
        env["DRAY_ATTEMPT"] = str(self.number)
        env["DRAY_STREAMS"] = self.folder.streams(self.number)
        env["DRAY_OUTPUTS"] = os.path.join(self.folder.code, results.OUTPUTS)
        env["DRAY_EXPERIMENT"] = str(self.spec.get("experiment") or "")
        env.update(self.order.granted.variables(self.spec.get("env") or {}))
        env.pop("DRAY_SECRETS", None)
        if self.order.secrets:
            env["DRAY_SECRETS"] = ",".join(self.order.secrets)
            env.update(self.order.secrets)
        return env

    def door(self, step: dict[str, Any]) -> dict[str, Any]:
        """The same environment and folder; its ports are the machine's."""
        return {"env": step["env"], "cwd": step["cwd"], "hidden": sorted(self.order.secrets)}

    def step(self, machines: dict[str, str]) -> dict[str, Any]:
        """The order to the guard."""
        return {
            "step": "script",
            "argv": self.argv(),
            "env": self.env(machines),
            "cwd": self.folder.code,
            "log": os.path.join(self.folder.streams(self.number), "log.script"),
            "mask": [form.decode("utf-8", "surrogateescape") for form in self.order.hidden()],
        }
