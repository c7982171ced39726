"""Runs the same code again: from an old run to the RunSpec of a new one, which is handed over like any other.

Read `rerun` first. What is not said anew is as it was: code, environment, command, experiment, tags, variables, limits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dray.core.errors import UnknownName, UsageError, printable
from dray.core.gpus import Wish, wish_of
from dray.core.ids import new_run_id
from dray.core.interfaces import Target
from dray.core.spec import RunSpec
from dray.hosts import Connection
from dray.runner import gate
from dray.runner.machine import Machine
from dray.snapshot import summary
from dray.workspace.code import Code
from dray.workspace.errors import SecretMissing
from dray.workspace.events import Event, Said
from dray.workspace.handing_over import hand_over
from dray.workspace.python import users_python
from dray.workspace.registry_logins import passwords
from dray.workspace.submission import Submission, check_words, header, me

if TYPE_CHECKING:
    from dray.store import RunRecord
    from dray.workspace.facade import Workspace
    from dray.workspace.run import Run


@dataclass(frozen=True, slots=True)
class Repetition:
    """What may differ from the first run, as plain data; None: nothing."""

    args: tuple[str, ...] | None = None
    """In place of all words after the script or the program."""
    compute: str | None = None
    experiment: str | None = None
    name: str | None = None
    """A name is one run's: it is not passed on."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Beside the first run's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Beside the first run's."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Values for all the secrets that the first run had, and for further ones."""
    timeout_s: float | None = None
    gpus: Wish = field(default_factory=Wish)
    """In Python its fields are fields of the rerun: gpus, gpu_memory, share, cpus ..."""


def repetition(args: Sequence[str], fields: dict[str, Any]) -> Repetition:
    """A Repetition from the words of a Python caller: `timeout` in seconds, `args` also as a field."""
    said = dict(fields)
    if "timeout" in said:
        said["timeout_s"] = said.pop("timeout")
    said["gpus"] = wish_of(said)
    known = [name for name in Repetition.__dataclass_fields__ if name != "timeout_s"]
    unknown = set(said) - set(known) - {"timeout_s"}
    if unknown:
        raise UnknownName("rerun option", min(unknown), [*known, "timeout"])
    words = said.pop("args", None)
    words = args or words
    return Repetition(args=None if words is None else tuple(map(str, words)), **said)


def rerun(workspace: Workspace, run: Run, wish: Repetition, on: Callable[[Event], None] | None = None) -> Run:
    """Start `run` once more; returns when the new one has begun its life. Raises CodeGone, NoCode, SecretMissing."""
    tell: Callable[[Event], None] = on or (lambda event: None)
    first = run.record.spec
    target = workspace.target(wish.compute or first.compute)
    code = Code(workspace, run.record, tell)
    python, python_from = _python(workspace, run.record, first, target)
    spec = _spec(first, wish, target, python)
    workspace.store  # noqa: B018  # a history that cannot be written is better known before than after
    # What is found among the blobs is not cleared away before the new run names it.
    inside = gate.enter(str(workspace.home))
    try:
        return _started(workspace, code, spec, first, target, python_from, wish, tell)
    finally:
        gate.leave(inside)


def _started(
    workspace: Workspace,
    code: Code,
    spec: RunSpec,
    first: RunSpec,
    target: Target,
    python_from: str,
    wish: Repetition,
    tell: Callable[[Event], None],
) -> Run:
    snapshot = code.whole()
    connection = Connection(target.host, target.root, target.python, without=wish.secrets.keys())
    try:
        sent = f"{summary(snapshot.files, snapshot.bytes, ())}, as in {first.id}"
        for line in header(spec, python_from, sent):
            tell(Said(line))
        if first.python and first.script and not first.environment and spec.python is None:
            tell(Said(f"python: the machine's own; {first.id} had {first.python}"))
        beside = passwords(workspace, spec.container)
        return hand_over(workspace, target, spec, snapshot, connection, wish.secrets, tell, beside)
    except BaseException:
        connection.close()
        raise


def _spec(first: RunSpec, wish: Repetition, target: Target, python: str | None) -> RunSpec:
    """The new run, before anything is sent. Refuses words as a submit would."""
    secrets = (*first.secrets, *(name for name in wish.secrets if name not in first.secrets))
    for name in secrets:
        if name not in wish.secrets:
            raise SecretMissing(first.id, name)
    spec = replace(
        first,
        id=new_run_id(),
        token=os.urandom(12).hex(),
        experiment=wish.experiment or first.experiment,
        compute=target.name,
        command=first.command if wish.args is None else (*first.command[:1], *wish.args),
        name=wish.name,
        created=time.time(),
        submitted_by=me(),
        python=python,
        refresh=False,  # the same again, and not something newer
        # What becomes a secret now is no plain variable any more.
        env={k: v for k, v in first.env.items() if k not in wish.secrets} | dict(wish.env),
        secrets=secrets,
        tags={**first.tags, **wish.tags},
        gpus=_gpus(first, wish.gpus, target),
        cpus=wish.gpus.cpus or first.cpus,
        timeout_s=first.timeout_s if wish.timeout_s is None else wish.timeout_s,
        rerun_of=first.id,
    )
    check_words(
        Submission(
            command=spec.command,
            experiment=spec.experiment,
            name=spec.name,
            tags=spec.tags,
            env=spec.env,
            secrets=wish.secrets,
            timeout_s=spec.timeout_s,
            outputs=spec.outputs,
        )
    )
    return spec


def _gpus(first: RunSpec, wish: Wish, target: Target) -> Mapping[str, Any] | None:
    """What is said anew, else the first run's wish; what was a compute's default is that of this one."""
    if wish.is_silent and first.gpus is not None and not first.gpus.get("default"):
        return {**first.gpus, "numbers": True} if wish.gpu_ids == "index" else first.gpus
    return wish.asked(target.default_gpus, target.name)


def _python(
    workspace: Workspace, record: RunRecord, first: RunSpec, target: Target
) -> tuple[str | None, str]:
    """(interpreter, where it was found): the first run's where it still is, else what a submit would choose."""
    if first.environment:
        return None, "environment"
    if first.container:
        return None, "image"
    is_same_machine = _is_same_machine(workspace, record, target)
    if is_same_machine and (first.python is None or os.access(first.python, os.X_OK) or not target.is_here):
        return first.python, first.id
    if not target.is_here:
        return None, "machine"
    try:
        python, where = users_python(os.environ)
    except UsageError:
        if first.script and first.command[0].endswith(".py"):
            raise
        return None, "PATH"
    if first.python:
        gone = "is not there any more" if is_same_machine else "was on another machine"
        where += f"; {printable(first.python)} of {first.id} {gone}"
    return python, where


def _is_same_machine(workspace: Workspace, record: RunRecord, target: Target) -> bool:
    """Whether `target` is where the run was. A history may hold runs of another machine that is called `local`, too."""
    root, was = workspace.readable_root(target.name), (record.host or {}).get("machine")
    if root is None or was is None:
        return target.name == record.compute
    return target.name == record.compute and Machine(root).id == was
