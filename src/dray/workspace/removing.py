"""Forgets a compute; removes what dray has put on its machine, if that is wanted. Never while a run is alive there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dray.core.errors import DrayError, UsageError, printable
from dray.core.states import RunState
from dray.targets import HERE
from dray.workspace import registry_logins
from dray.workspace.attaching import named, same_machine
from dray.workspace.login_secrets import PASSWORD, LoginSecrets

if TYPE_CHECKING:
    from dray.workspace.computes import Compute
    from dray.workspace.facade import Workspace

_GONE = {"kind": "vanished", "text": "its machine is gone for good"}


def remove(workspace: Workspace, name: str, *, purge: bool, gone: bool = False) -> list[str]:
    """Forget a compute here; with `purge` remove dray's folder there first. Returns sentences.

    `gone`: the machine will never answer again, and the runs that it had are lost.
    """
    if name in workspace.computes.aliases():
        workspace.computes.drop(name)
        return ["it was a second name"]
    if name in workspace.computes.broken():
        workspace.computes.drop(name)
        return ["its file could not be read; attach it again, and its runs are found: dray adopt NAME"]
    there = named(workspace, name)
    if there.kind in HERE:
        return _forget_here(workspace, there, purge=purge)
    told: list[str] = []
    if purge:
        told.append(_purged(workspace, there))
    elif gone:
        told += _lost(workspace, there)
    else:
        _refuse(
            _live(workspace, there),
            there.name,
            ", as far as is known",
            more=f"; gone for good? dray compute rm {there.name} --gone",
        )
    target = workspace.attached_target(there)
    target.host.hang_up()
    workspace.computes.drop(there.name)
    told += registry_logins.forget(workspace, there)
    secrets = LoginSecrets(workspace.home)
    who = target.host.config().who
    others = [one for one in workspace.computes.all() if one.kind not in HERE]
    if not any(workspace.attached_target(one).host.config().who == who for one in others):
        secrets.forget(PASSWORD, who)
    return told


def _purged(workspace: Workspace, there: Compute) -> str:
    others = [one.name for one in same_machine(workspace, there) if one.name != there.name]
    if others:
        raise UsageError(
            f"`{there.name}` is the same machine as `{others[0]}`",
            why="both share dray's folder there",
            hint=f"dray compute rm {others[0]}",
        )
    with workspace.connect(there.name) as connection:
        answer = connection.call({"op": "purge"})
    if "alive" in answer:
        _refuse([str(run) for run in answer["alive"]], there.name, "")
    return f"dray's folder on {there.options.address} is gone"


def _lost(workspace: Workspace, there: Compute) -> list[str]:
    """Its live runs are lost. Refuses a machine that answers."""
    try:
        with workspace.connect(there.name) as connection:
            connection.call({"op": "ping"})
    except DrayError:
        live = _live(workspace, there)
    else:
        raise UsageError(f"`{there.name}` answers: it is not gone", hint=f"dray compute rm {there.name}")
    for run_id in live:
        workspace.store.set_state(run_id, RunState.LOST, _GONE)
        workspace.store.mark_complete(run_id)
    return (
        [f"{len(live)} run{'s are' if len(live) != 1 else ' is'} lost with it: {' '.join(live)}"]
        if live
        else []
    )


def _live(workspace: Workspace, there: Compute) -> list[str]:
    return [run.id for run in workspace.store.runs(active=True) if run.compute == there.name]


def _refuse(live: Sequence[str], name: str, how_sure: str, more: str = "") -> None:
    if live:
        raise DrayError(
            f"{len(live)} run{'s are' if len(live) != 1 else ' is'} alive on `{name}`{how_sure}",
            why="nobody could follow or stop them any more",
            hint=f"dray cancel {printable(' '.join(live[:5]))}{more}",
        )


def _forget_here(workspace: Workspace, there: Compute, *, purge: bool) -> list[str]:
    if purge:
        raise UsageError(
            f"`{there.name}` is this machine: its folder is that of `local`",
            hint=f"dray compute rm {there.name}",
        )
    _refuse(_live(workspace, there), there.name, "")
    workspace.computes.drop(there.name)
    return registry_logins.forget(workspace, there)
