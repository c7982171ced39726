"""Makes a machine a compute: reaches it, asks who it is, finds its Python, and writes it down. Safe to repeat.

Read `attach` first. What is written down has been seen to work; what has not worked leaves nothing behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, UnknownName, UsageError, printable
from dray.hosts import (
    HostKeyUnknown,
    HostPythonMissing,
    HostPythonTooOld,
    LoginRefused,
    Question,
    WayBarred,
)
from dray.targets import HERE, far_target, near_target
from dray.workspace import registry_logins
from dray.workspace.computes import LOCAL, Compute, check_name
from dray.workspace.engines import ask_engine, engine_notes
from dray.workspace.host_python import BY_UV, NoHostPython, bring_python, find_python
from dray.workspace.login_secrets import LoginSecrets
from dray.workspace.registry_logins import RegistryLogins

if TYPE_CHECKING:
    from dray.targets import VmOptions, VmTarget
    from dray.workspace.facade import Workspace

_LINGERING = "for runs to outlive your logins, an administrator has to type there: loginctl enable-linger"
ACCEPT_NEW = "DRAY_ACCEPT_NEW"


@dataclass(frozen=True, slots=True)
class Login:
    """What only the person who attaches knows."""

    password: str | None = None
    passphrase: str | None = None
    accept_new: bool = False
    """Trust a host key that was never seen, without asking."""
    keep: bool = True
    """Keep what was typed or given, for the next time."""
    registry: str | None = None
    """The password of `registry_logins`."""
    registry_logins: tuple[str, ...] = ()
    """USER@REGISTRY: those that were named now."""


@dataclass(slots=True)
class Attached:
    """What came of it."""

    compute: Compute
    machine: Mapping[str, Any]
    was_there: bool = False
    """It had been attached just so before."""
    same_as: list[str] = field(default_factory=list)
    """Other names of the same machine."""
    notes: list[str] = field(default_factory=list)


def attach(
    workspace: Workspace, name: str, kind: str, options: VmOptions, login: Login | None = None
) -> Attached:
    """Reach the machine, and let `name` mean it from now on."""
    check_name(name)
    options = _with_key(options.checked(name))
    there = workspace.computes.get(name)
    if name in workspace.computes.aliases() and there is not None:
        raise UsageError(f"`{name}` is a second name of `{there.name}`", hint=f"dray compute rm {name}")
    wanted = {"needs_person": False, "host_python": options.host_python}
    if there is not None and there.kind != kind:
        raise UsageError(
            f"`{name}` is attached already, as {there.kind}",
            why="its runs would be looked for where they are not",
            hint=f"dray attach {kind} OTHER-NAME ...",
        )
    if there is not None and there.options.host_python and options.host_python in (None, BY_UV):
        wanted["host_python"] = there.options.host_python  # found, or brought, the last time
        options = replace(options, host_python=there.options.host_python)
    if there is not None and options.default_gpus is None:
        options = replace(options, default_gpus=there.options.default_gpus)  # found the last time
    if there is not None and replace(there.options, needs_person=False) != replace(options, **wanted):  # type: ignore[arg-type]
        raise UsageError(
            f"`{name}` is attached already, as {there.options.address or there.kind}",
            why="attaching it in another way would leave its runs without a machine",
            hint=f"dray compute update {name} ..., or another name",
        )
    try:
        compute = Compute(name, kind, options)
        logins = RegistryLogins(workspace, login or Login(), asks_again=False)
        if kind in HERE:
            found = _here(workspace, compute, was_there=there is not None)
        else:
            found = _reach(workspace, compute, login or Login(), was_there=there is not None)
        found.notes += logins.keep()
        return found
    except (WayBarred, NoHostPython) as trouble:
        if there is None:
            _hint_for_new(trouble, name, kind, options)
        raise


def _hint_for_new(trouble: DrayError, name: str, kind: str, options: VmOptions) -> None:
    """The usual hints speak of a compute that is attached; this one is not yet."""
    import shlex

    said = [(one.name, getattr(options, one.name)) for one in fields(options) if "help" in one.metadata]
    words = [word for key, value in said if value for word in (f"--{key.replace('_', '-')}", str(value))]
    again = printable(shlex.join(["dray", "attach", kind, name, *words]))
    if isinstance(trouble, HostKeyUnknown):
        trouble.hint = f"{again} --accept-new    (compare the fingerprint first)"
    elif isinstance(trouble, LoginRefused):
        trouble.hint = f"{again} --password-stdin, or --identity-file KEY; on a terminal dray asks"
    elif isinstance(trouble, (HostPythonMissing, HostPythonTooOld)):
        trouble.hint = f"{again} --host-python /path/to/python3"
    elif isinstance(trouble, NoHostPython):
        trouble.hint = f"{again} --host-python uv    (it brings one, into dray's folder there)"


def update(
    workspace: Workspace, name: str, changes: Mapping[str, Any], login: Login | None = None
) -> Attached:
    """Change how a compute is reached, in place. Its runs stay readable; it has to be the same machine."""
    there = named(workspace, name)
    options = replace(there.options, **changes)
    made = replace(there, options=_with_key(options.checked(there.name)))
    if made.options.folder != there.options.folder and _has_runs(workspace, there.name):
        raise UsageError(
            f"the folder of `{there.name}` cannot be changed", why="runs of the history lie there",
            hint=f"dray attach vm OTHER-NAME --address {there.options.address} --folder {made.options.folder}",
        )  # fmt: skip
    logins = RegistryLogins(workspace, login or Login(), asks_again=True)
    if there.kind in HERE:
        found = _here(workspace, made, was_there=True)
        found.notes += [*logins.keep(), *registry_logins.forget(workspace, there)]
        return found
    if made.options.identity_file != there.options.identity_file:
        workspace.attached_target(there).host.hang_up()  # over a kept connection no key would be tried
    found = _reach(workspace, made, login or Login(), was_there=True, write=False)
    if there.machine and found.compute.machine != there.machine and _has_runs(workspace, there.name):
        raise UsageError(
            f"{made.options.address} is another machine than `{there.name}` was",
            why="its runs would be looked for where they are not",
            hint=f"dray attach vm OTHER-NAME --address {made.options.address}",
        )
    workspace.computes.put(found.compute)
    found.notes += [*logins.keep(), *registry_logins.forget(workspace, there)]
    return found


def _with_key(options: VmOptions) -> VmOptions:
    """With a key file that means the same in every folder. Refuses one that is not there."""
    if not options.identity_file:
        return options
    path = os.path.abspath(os.path.expanduser(options.identity_file))
    if not os.path.isfile(path):
        raise UsageError(f"there is no key file `{printable(options.identity_file)}`", hint="ls ~/.ssh")
    return replace(options, identity_file=path)


def named(workspace: Workspace, name: str) -> Compute:
    """The attached compute of that name. Raises UnknownName."""
    if name == LOCAL:
        raise UsageError("`local` is this machine: there is nothing to attach, change or remove")
    found = workspace.computes.get(name)
    if found is None:
        raise UnknownName("compute", name, [LOCAL, *workspace.computes.names()], hint="dray compute list")
    return found


class _Reaching:
    """One attempt to reach a machine for the first time, or in a new way; answers what the login asks."""

    def __init__(self, workspace: Workspace, compute: Compute, login: Login, *, is_new: bool) -> None:
        self._workspace = workspace
        self._is_new = is_new
        self._login = login
        self._secrets = LoginSecrets(workspace.home)
        self._said: set[str] = set()
        self._learned: dict[tuple[str, str], str] = {}
        """Secrets that were given or typed, by their question."""
        self._needed_person = False
        self._notes: list[str] = []
        self._target = self._target_of(compute)

    def reach(self, compute: Compute) -> tuple[Compute, dict[str, Any]]:
        """Who answers, and the compute as it is to be written down. Finds another Python where `python3` does not do."""
        says_how = self._login.password is not None or self._login.passphrase is not None
        if says_how or (self._is_new and compute.options.identity_file):
            self._target.host.hang_up()  # over a kept connection nothing would be asked, and a wrong secret believed
        if compute.options.host_python == BY_UV:
            python, version = bring_python(self._target.host, compute.options.folder)
            self._notes.append(f"uv brought Python {version}: {python}")
            compute = self._with_python(compute, python)
        try:
            machine = self._probe()
        except (HostPythonMissing, HostPythonTooOld):
            if compute.options.host_python is not None:
                raise
            python, version = find_python(self._target.host)
            self._notes.append(f"its `python3` does not do; found {python} ({version})")
            compute = self._with_python(compute, python)
            machine = self._probe()
        needs_person = compute.options.needs_person or self._needed_person
        gpus = compute.options.default_gpus
        if gpus is None:
            gpus = min(1, int(machine.get("gpu_units") or 0))
        compute = replace(
            compute,
            options=replace(compute.options, needs_person=needs_person, default_gpus=gpus),
            machine=str(machine["machine"]),
            user=str(machine["user"]),
            attached=compute.attached or time.time(),
        )
        return compute, machine

    def _with_python(self, compute: Compute, python: str) -> Compute:
        compute = replace(compute, options=replace(compute.options, host_python=python))
        self._target = self._target_of(compute)
        return compute

    def keep(self) -> list[str]:
        """Keep what was learned for the next time, if that is wanted; sentences about all that is worth telling."""
        if self._login.keep:
            for (kind, about), secret in self._learned.items():
                place = self._secrets.keep(kind, about, secret)
                self._notes.append(f"the {kind} for {printable(about)} is kept in {place}")
        return self._notes

    def _target_of(self, compute: Compute) -> VmTarget:
        from dray.hosts.ssh.host import Stored

        self._stored = Stored(self._secrets.look_up, self._asked)
        return far_target(compute.kind, compute.name, compute.options, self._workspace.home, self._answer)

    def _probe(self) -> dict[str, Any]:
        from dray.hosts import Connection

        target = self._target
        with Connection(target.host, target.root, target.python) as connection:
            machine: dict[str, Any] = connection.call({"op": "probe", "attach": True})["machine"]
            return machine

    def _answer(self, question: Question) -> str | None:
        if question.kind == "host-key":
            return self._about_key(question)
        # What is said now goes before what was kept: it may be there because the kept one is wrong.
        said = self._own(question)
        return self._stored(question) if said is None else self._remembered(question, said)

    def _asked(self, question: Question) -> str | None:
        answer = self._workspace.answers(question)
        self._needed_person = self._needed_person or (answer is not None and question.kind == "code")
        return None if answer is None else self._remembered(question, answer)

    def _remembered(self, question: Question, answer: str) -> str:
        if question.about and question.kind != "code":
            self._learned[question.kind, question.about] = answer
        return answer

    def _about_key(self, question: Question) -> str | None:
        accepts = self._login.accept_new or os.environ.get(ACCEPT_NEW, "") not in ("", "0")
        answer = "yes" if accepts else self._workspace.answers(question)
        if answer == "yes":
            from dray.hosts.ssh.words import fingerprint

            self._notes.append(f"its host key {' '.join(fingerprint(question))} was accepted, and is pinned")
        return answer

    def _own(self, question: Question) -> str | None:
        """What was said at attach, once, and only for this machine: a jump host has a name of its own."""
        host = self._target.host
        if question.kind in self._said:
            return None
        if question.kind == "passphrase":
            given, file = self._login.passphrase, host.options.identity_file
            fits = file is None or _same_file(question.about, file)
        elif question.kind == "password":
            given, config = self._login.password, host.config()
            fits = question.about == config.who or (not question.about and config.through is None)
        else:
            return None
        if given is None or not fits:
            return None
        self._said.add(question.kind)
        return given


def _here(workspace: Workspace, compute: Compute, *, was_there: bool) -> Attached:
    """The same for a kind that is this machine: there is nothing to log in to, but the engine has to answer."""
    from dray.hosts import Connection

    target = near_target(compute.name, compute.options, workspace.home)
    with Connection(target.host, target.root, target.python) as connection:
        machine = connection.call({"op": "probe"})["machine"]
        notes = engine_notes(ask_engine(connection, target), target.name)
    made = replace(
        compute,
        machine=str(machine["machine"]),
        user=str(machine["user"]),
        attached=compute.attached or time.time(),
    )
    workspace.computes.put(made)
    return Attached(made, machine, was_there, notes=notes)


def _reach(
    workspace: Workspace, compute: Compute, login: Login, *, was_there: bool, write: bool = True
) -> Attached:
    reaching = _Reaching(workspace, compute, login, is_new=not was_there)
    compute, machine = reaching.reach(compute)
    found = Attached(compute, machine, was_there, notes=[*reaching.keep(), *_about_logout(machine)])
    found.same_as = [one.name for one in same_machine(workspace, compute) if one.name != compute.name]
    if write:
        workspace.computes.put(compute)
    return found


def _about_logout(machine: Mapping[str, Any]) -> list[str]:
    """What to say where a login manager ends a user's processes."""
    logout = machine.get("logout")
    if not logout:
        return []
    if logout.get("lingers"):
        return ["it ends your processes at logout, but not those of dray: lingering is on for you"]
    return [f"it ends your processes at logout; {_LINGERING} {printable(str(machine['user']))}"]


def same_machine(workspace: Workspace, compute: Compute) -> list[Compute]:
    """All computes that lead to the same folder of the same user on the same machine."""
    if not compute.machine:
        return []
    return [
        one for one in workspace.computes.all() if one.machine == compute.machine and one.user == compute.user
    ]


def _has_runs(workspace: Workspace, name: str) -> bool:
    from dray.core.where import Compare, Field

    return workspace.store.count(where=Compare(Field("compute"), "=", name)) > 0


def _same_file(one: str, other: str) -> bool:
    return os.path.realpath(os.path.expanduser(one)) == os.path.realpath(os.path.expanduser(other))
