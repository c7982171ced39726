"""Asks machines what a cleaning up has to know: what is there, and what the runs there need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError
from dray.hosts import Connection
from dray.workspace.needs import Needs

if TYPE_CHECKING:
    from dray.workspace.facade import Workspace

Answer = tuple[dict[str, Any], bytes]


class Asking:
    """One conversation with the machine of a compute, opened when first needed; others are asked in passing."""

    def __init__(self, workspace: Workspace, compute: str) -> None:
        self.workspace = workspace
        self.compute = compute
        self._connection: Connection | None = None

    def __enter__(self) -> Asking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask for one answer."""
        return self._connected().call(request)

    def all(self, request: dict[str, Any]) -> Iterator[Answer]:
        """Ask for many answers, up to `done`."""
        yield from _all(self._connected(), request)

    def codes(self, compute: str, runs: Iterable[str]) -> dict[str, list[str]] | None:
        """Digests of the code of those runs, as far as their machine has them; None: it cannot be asked."""
        request = {"op": "gc", "codes": list(runs)}
        if not request["codes"]:
            return {}
        try:
            if compute == self.compute:
                return _digests(self.all(request))
            with self.workspace.connect(compute) as connection:
                return _digests(_all(connection, request))
        except DrayError:  # or the workspace does not have such a compute any more
            return None

    def needs(self, strangers: Iterable[str], leave_out: Collection[str] = ()) -> Needs:
        """What all runs of the history need; and `strangers`, run folders that a lost history knew: it may be made again."""
        needs = Needs(self.workspace.store, self.codes, leave_out)
        told = self.codes(self.compute, strangers) or {}
        needs.learn(digest for digests in told.values() for digest in digests)
        return needs

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self.workspace.connect(self.compute)
        return self._connection


def things(answers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the machine could do without, as far as its words make sense."""
    return [
        thing
        for answer in answers
        for thing in answer.get("things", ())
        if isinstance(thing, dict)
        and isinstance(thing.get("kind"), str)
        and isinstance(thing.get("name"), str)
        and isinstance(thing.get("bytes"), int)
        and isinstance(thing.get("used", 0.0), (int, float))
    ]


def _all(connection: Connection, request: dict[str, Any]) -> Iterator[Answer]:
    connection.ask(request)
    while True:
        answer, body = connection.receive()
        if "done" in answer:
            return
        yield answer, body


def _digests(answers: Iterable[Answer]) -> dict[str, list[str]]:
    return {
        str(answer["code"]): [body[at : at + 32].hex() for at in range(0, len(body), 32)]
        for answer, body in answers
        if "code" in answer
    }
