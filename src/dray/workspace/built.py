"""The environments that were built on a machine, and what can be done with them: docs/design.md, "The wire", `op: env`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from dray.core.errors import UnknownName
from dray.hosts import Connection
from dray.workspace.errors import BadAnswer

if TYPE_CHECKING:
    from dray.workspace.facade import Workspace


@dataclass(frozen=True, slots=True)
class BuiltEnvironment:
    """One environment on one machine. What the machine does not say is None."""

    name: str
    """Of its folder: digest, platform, Python. A unique beginning is enough to name it."""
    digest: str = ""
    platform: str | None = None
    python: str | None = None
    version: str | None = None
    kind: str | None = None
    """uv or conda."""
    packages: int | None = None
    bytes: int = 0
    built: float | None = None
    built_s: float | None = None
    used: float = 0.0
    complete: bool = False
    busy: bool = False
    """It is being built; `run` is who does."""
    frozen: bool = False
    """What was resolved is kept, and the same spec gets the same again."""
    run: str | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BuiltEnvironment:
        """From a frame of the machine's answer."""
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})

    @property
    def state(self) -> str:
        """In a word."""
        return "building" if self.busy else "ready" if self.complete else "unfinished"


@dataclass(frozen=True, slots=True)
class Inside:
    """What one of them holds."""

    built: BuiltEnvironment
    spec: Mapping[str, Any]
    installed: Sequence[tuple[str, str]]
    lock: str
    lock_kind: str | None


class BuiltEnvironments:
    """Those of one compute."""

    def __init__(self, workspace: Workspace, compute: str | None = None) -> None:
        self._workspace = workspace
        self.compute = workspace.target(compute).name

    def all(self) -> list[BuiltEnvironment]:
        """All, what was used last first."""
        found = []
        with self._connect() as connection:
            connection.ask({"op": "env", "list": True})
            while "done" not in (header := connection.receive()[0]):
                if "environment" in header:
                    found.append(BuiltEnvironment.from_json(header["environment"]))
        return sorted(found, key=lambda one: -one.used)

    def show(self, name: str) -> Inside:
        """One of them from the inside. Raises UnknownName."""
        self.named(name)
        with self._connect() as connection:
            connection.ask({"op": "env", "show": name})
            header, body = connection.receive()
        said = header.get("environment")
        if not isinstance(said, dict):
            raise BadAnswer(self.compute, name, "no environment came when one was asked for")
        installed = [(str(row[0]), str(row[1])) for row in said.get("installed") or ()]
        text = body.decode("utf-8", "replace")
        return Inside(
            BuiltEnvironment.from_json(said), said.get("spec") or {}, installed, text, said.get("lock_kind")
        )

    def named(self, beginning: str) -> list[BuiltEnvironment]:
        """All whose names begin so. Raises UnknownName when there is none."""
        known = self.all()
        found = [one for one in known if one.name.startswith(beginning)] if beginning else []
        if not found:
            kind = f"environment on `{self.compute}`"
            raise UnknownName(
                kind, beginning, [one.name[:12] for one in known], hint=f"dray env list -c {self.compute}"
            )
        return found

    def unused(self, older_than_s: float) -> list[BuiltEnvironment]:
        """Those that were last used longer ago, and those that were never finished."""
        limit = time.time() - older_than_s
        return [one for one in self.all() if not one.busy and (one.used < limit or not one.complete)]

    def remove(self, names: Iterable[str], *, frozen: bool = False) -> tuple[list[str], dict[str, str]]:
        """`(gone, {kept: why})`. With `frozen` what was resolved is forgotten, too."""
        gone: list[str] = []
        kept: dict[str, str] = {}
        with self._connect() as connection:
            connection.ask({"op": "env", "remove": list(names), "frozen": frozen})
            while "done" not in (header := connection.receive()[0]):
                gone += [str(row[1]) for row in header.get("gone") or ()]
                kept.update({str(row[1]): str(row[2]) for row in header.get("kept") or ()})
        return gone, kept

    def _connect(self) -> Connection:
        return self._workspace.connect(self.compute)
