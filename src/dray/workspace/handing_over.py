"""Brings a run to its machine: once or never, and it is known which, wherever this is cut."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, LinkLost, NotStarted
from dray.core.gpus import VISIBLE
from dray.core.interfaces import Target
from dray.core.spec import RunSpec
from dray.core.states import RunState
from dray.hosts import Connection, WayBarred
from dray.runner.processes import MARK
from dray.workspace.along import Along
from dray.workspace.events import Event, Progress, Said

if TYPE_CHECKING:
    from dray.snapshot import Snapshot
    from dray.workspace.facade import Workspace
    from dray.workspace.run import Run


_VAIN_TRIES = 3


def hand_over(
    workspace: Workspace,
    target: Target,
    spec: RunSpec,
    snapshot: Snapshot,
    connection: Connection,
    secrets: Mapping[str, str],
    tell: Callable[[Event], None],
    beside: Mapping[str, Any] | None = None,
    files: Mapping[str, Path] | None = None,
) -> Run:
    """Write the new run into the history and bring it to its machine. `connection` is the run's when this returns.

    `beside` is what else the submit says of the environment, and no spec may hold: docs/design.md, "The wire"; `files` are
    contents that it names, by digest.
    """
    from dray.workspace.run import Run

    store = workspace.store
    outer = os.environ.get(MARK)
    if outer and target.is_here:
        tell(Said(f"it is a part of run {outer}, which submits it, and ends with it"))
        if (spec.gpus or {}).get("count") != 0 and os.environ.get(VISIBLE) not in (None, "", "-1"):
            tell(Said(f"GPUs that {outer} holds it will not get: --gpus 0 for one of the two"))
    # First the mark, then the run: who sees the run without it takes it for one that nobody brings there any more.
    with store.submitting(spec.id):
        store.create_run(spec)
        along = Along(workspace.home, target, spec, files or {}, lambda text: tell(Said(text)))
        handing = _HandingOver(workspace, target, spec, snapshot, tell, beside or {}, along)
        trouble = handing.over(connection, secrets)
    record = store.run(spec.id)
    if trouble is None:
        return Run(workspace, record, handing.connection)
    handing.connection.close()
    return Run(workspace, record, interrupted=isinstance(trouble, KeyboardInterrupt))


class _HandingOver:
    """One run on its way. The caller holds the history's `submitting` mark meanwhile."""

    def __init__(
        self,
        workspace: Workspace,
        target: Target,
        spec: RunSpec,
        snapshot: Snapshot,
        tell: Callable[[Event], None],
        beside: Mapping[str, Any],
        along: Along,
    ) -> None:
        self._workspace = workspace
        self._store = workspace.store
        self._target = target
        self._spec = spec
        self._snapshot = snapshot
        self._tell = tell
        self._beside = beside
        self._along = along

    def over(self, connection: Connection, secrets: Mapping[str, str]) -> BaseException | None:
        """Bring spec and code there. Returns what went wrong too late to stop the run; raises NotStarted otherwise.

        A connection that is cut while the code is sent is replaced, and the sending goes on; `connection` is the last one.
        """
        self.connection = connection
        try:
            header = self._insist(secrets)
        except WayBarred as trouble:
            self._never(trouble.what)
            why = f"{trouble.what}; {trouble.why}" if trouble.why else trouble.what
            raise NotStarted(f"run {self._spec.id} was not started", why=why, hint=trouble.hint) from trouble
        except (DrayError, KeyboardInterrupt) as trouble:
            if self._bury():
                why = (
                    "left before it was handed over"
                    if isinstance(trouble, KeyboardInterrupt)
                    else str(trouble)
                )
                raise NotStarted(f"run {self._spec.id} was not started", why=why) from trouble
            return trouble
        if not header.get("claimed"):
            text = str(header.get("text") or "the machine refused it")
            self._never(text)
            raise NotStarted(f"run {self._spec.id} was not started", why=text)
        return None

    def _insist(self, secrets: Mapping[str, str]) -> dict[str, Any]:
        """The machine's verdict, over as many connections as it takes while each brings some of the code there.

        To ask twice is harmless: a claim of the same run is the same claim.
        """
        vain, missing = 0, None
        while True:
            self._missing: int | None = None
            try:
                return self._ask(secrets)
            except LinkLost:
                if self._missing is None:
                    raise  # it was not the code that was on its way
                vain = 0 if missing is None or self._missing < missing else vain + 1
                missing = self._missing
                if vain == _VAIN_TRIES:
                    raise
                self._tell(Said(f"the connection to {self.connection.where} broke; going on with the code"))
            self.connection.close()
            self.connection = self._workspace.connect(self._spec.compute)

    def _ask(self, secrets: Mapping[str, str]) -> dict[str, Any]:
        """The machine's verdict on the claim."""
        request = {"op": "submit", "spec": self._spec.to_json(), "manifest": self._snapshot.manifest}
        request.update(self._along.request())
        self.connection.ask(
            {**request, **self._beside, "near": self._target.near(), "secrets": dict(secrets)}
        )
        header, _ = self.connection.receive()
        while "lacks" in header:  # twice, when what was kept there of a blob turned out to be none of it
            self._store.set_state(self._spec.id, RunState.STAGING)
            self._send_blobs(header["lacks"], header.get("partial") or {})
            header, _ = self.connection.receive()
        return header

    def _send_blobs(self, lacks: Sequence[str], partial: Mapping[str, int]) -> None:
        """The contents that the machine lacks."""
        from dray.snapshot import BlobStore
        from dray.workspace.sending import Sending

        kept = BlobStore(str(self._snapshot.home))
        sizes = {digest: size for _, digest, size, _ in self._snapshot.manifest["files"]}
        sizes |= self._along.sizes
        self._missing = sum(sizes.get(d, 0) for d in lacks) - sum(partial.get(d, 0) for d in lacks)
        Sending(
            self.connection,
            lambda digest: self._along.path_of(digest) or kept.path(digest),
            sizes,
            lambda done, total: self._tell(Progress("sending the code", done, total)),
            may_pack=not self._target.is_here,
        ).send(lacks, partial)

    def _bury(self) -> bool:
        """Make sure that the run was not and will not be started. False: it was, and goes on."""
        try:
            with self._workspace.connect(self._spec.compute) as connection:
                answer = connection.call({"op": "never", "run": self._spec.id, "spec": self._spec.to_json()})
        except DrayError as trouble:
            raise LinkLost(
                f"run {self._spec.id} may or may not have been started",
                why=trouble.what,
                hint="dray runs    (it finds out as soon as the machine answers)",
            ) from trouble
        if "never" not in answer:
            return False
        self._never("it never reached the machine")
        return True

    def _never(self, text: str) -> None:
        self._store.set_state(self._spec.id, RunState.FAILED, {"kind": "not-started", "text": text})
        self._store.mark_complete(self._spec.id)
