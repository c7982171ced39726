"""Turns a run into one process: what it needs to be ready, its command line, its environment, where it starts.

`Launcher` is the interface; `ProcessLauncher` is a plain process on this machine. Another way to start a run (a container, srun) is
another class, chosen in `launcher_for`; who starts and guards the process does not change.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Mapping

from . import bytecode, processes, results
from .environments import pythons
from .folder import RunFolder
from .mask import forms
from .queue.asked import Asked
from .queue.granted import Granted
from .work import Work

if TYPE_CHECKING:
    from .environments.provisions import Provisions


class Order:
    """What a submit brings beside the spec: things that must not be written down, and things at hand."""

    def __init__(self, said: Mapping[str, Any], travel: str, asked: Asked) -> None:
        """`said` is the submit's frame."""
        near = said.get("near") or {}
        self.spec: dict[str, Any] = said["spec"]
        self.blobs: str | None = near.get("blobs")
        self.secrets: dict[str, str] = said.get("secrets") or {}
        self.travel = travel
        self.asked = asked
        """What it asks of the machine's GPUs and cores, looked at before the claim."""
        self.granted = Granted()
        """The devices that the run holds, as soon as it may start."""
        self.logins: dict[str, list[str]] = said.get("logins") or {}
        """Registry -> user and password, for the pulling of its image."""
        self._said = said

    def provisions(self) -> Provisions | None:
        """What it brings along for the building of an environment, if it wants one."""
        if not self.spec.get("environment"):
            return None
        from .environments.provisions import Provisions

        return Provisions(self._said)

    def hidden(self) -> list[bytes]:
        """What must not be seen in the log: the secrets, in every form that they are likely to be printed in."""
        return [form for value in self.secrets.values() for form in forms(value)]


class Launcher:
    """One way to start a run. The runner asks in this order, each once."""

    def make_ready(self, work: Work) -> None:
        """Find or make what the script needs. Raises environments.BuildFailed, or Stopped when the end was asked for."""
        raise NotImplementedError

    def step(self, machines: dict[str, str]) -> dict[str, Any]:
        """The order to the guard; `machines` is the machine's own environment."""
        raise NotImplementedError

    def door(self, step: dict[str, Any]) -> dict[str, Any]:
        """How others get inside while the run lives (docs/design.md, "Into a live run"); `step` is the order that the guard got.

        `env` and `cwd` of a process that goes in, `hidden`: which of its variables are secrets. Where inside is not here, `into`: the
        words before a command (`into_tty` with a terminal), `inside`: those before a shell that passes signals on, if there is one, and
        `hosts`: the addresses of its ports.
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
        self.facts: dict[str, Any] = {}
        """Of its environment."""

    def make_ready(self, work: Work) -> None:
        """Find the run's Python, or make its environment if there is one."""
        wanted = self.spec.get("environment")
        path = work.environ.get("PATH", os.defpath)
        if not wanted:
            self.python = self.spec.get("python") or pythons.machine_python(path)
            if self.spec.get("python") and self.spec.get("login"):
                # On the client's own machine the client has looked.
                pythons.check(self.spec["python"], path)
            if self.python:
                work.tell("environment", python=self.python, version=None, digest=None, built_s=None)
            return
        # A set-up such as `module load python/3.11` says what to build on.
        theirs = pythons.python3(path) if self.spec.get("setup") else None
        from .environments.place import Place

        place = Place(work.machine, wanted, theirs)
        found = None if self.spec.get("refresh") else place.ready()
        if found is None:
            # Takes a while to load, and most runs find what they need.
            from .environments.building import Builder

            found = Builder(work, self.spec, self.order.provisions(), place).provide()
        else:
            found["built_s"] = None
        self.facts = found
        place.use(found)
        self._keep_lock(work, place.frozen())
        names = ("python", "version", "digest", "built_s", "name", "lock", "lock_kind")
        work.tell("environment", **{name: self.facts.get(name) for name in names})
        if not self.spec.get("prepare"):
            self._put_layer(work, wanted)

    def _keep_lock(self, work: Work, frozen: Mapping[str, Any]) -> None:
        """What was resolved goes with the run."""
        if frozen.get("digest") == self.facts.get("lock"):
            work.keep("lock.environment", str(frozen.get("text")).encode("utf-8", "surrogateescape"))

    def _put_layer(self, work: Work, wanted: dict[str, Any]) -> None:
        """The run's own layer on the environment."""
        from .environments import overlay

        uv = pythons.find_uv(work.environ)
        tools = os.path.join(work.machine.folder, "tools")
        folder = os.path.join(self.folder.path, overlay.FOLDER)
        layer = overlay.make(folder, self.facts, self.folder.code, wanted.get("editable") or (), uv, tools)
        self.python = layer or str(self.facts["python"])

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
        if self.facts and self.python:
            self._enter_environment(env, self.python)
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

    def _enter_environment(self, env: dict[str, str], python: str) -> None:
        """As its activation would."""
        own, shared = (os.path.dirname(os.path.dirname(p)) for p in (python, str(self.facts["python"])))
        for name in ("CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONHOME"):
            env.pop(name, None)
        env.update(self.facts.get("variables") or {})
        env["VIRTUAL_ENV"] = own
        if self.facts.get("kind") == "conda":
            env["CONDA_PREFIX"] = shared
        folders = [os.path.join(own, "bin")] + ([os.path.join(shared, "bin")] if own != shared else [])
        env["PATH"] = ":".join([*folders, env.get("PATH", os.defpath)])
        env.setdefault("PYTHONPYCACHEPREFIX", bytecode.folder(self.folder.machine))

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
