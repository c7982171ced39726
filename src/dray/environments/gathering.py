"""What has been read so far of an environment's files, and where: each package once, and what becomes of it all at the end.

Read `Gathering.environment` first: there it is decided whether conda is needed at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from dray.core.spec import Environment
from dray.environments.channels import is_own
from dray.environments.conda import MatchSpec
from dray.environments.errors import PackageTwice, Place, UnsupportedRequirement
from dray.environments.index import Index
from dray.environments.retired import check_package, check_python

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wish:
    """What may be said about the reading of a file."""

    top: Path | None = None
    """The code folder; editable projects have to be inside. None: the folder of the file."""
    extras: tuple[str, ...] = ()
    """Of a pyproject.toml."""
    groups: tuple[str, ...] = ()
    """Of a pyproject.toml."""
    upgrade_retired: bool = False
    """Take the successor of what does not exist any more, instead of refusing."""


@dataclass(frozen=True, slots=True)
class Found:
    """An environment, and what must not be stored with it."""

    environment: Environment
    credentials: dict[str, str] = field(default_factory=dict)
    """Address without credentials -> `user:password`. Travels as secrets do."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""


class Gathering:
    """What all files together say."""

    def __init__(self, wish: Wish, top: Path) -> None:
        self.wish = wish
        self.top = top
        self.index = Index(travels=top)
        self.python: str | None = None
        self._requirements: list[str] = []
        self._conda: list[tuple[MatchSpec, Place]] = []
        self._channels: list[str] = []
        self._editable: list[str] = []
        self._hashed: dict[str, tuple[str, ...]] = {}
        self._places: dict[str, tuple[Place, bool]] = {}
        self._notes: list[str] = []

    def channel(self, channel: str) -> None:
        """One more channel of conda, after those before."""
        if channel not in self._channels:
            self._channels.append(channel)

    def requirement(
        self, name: str, requirement: str, place: Place, hashes: Iterable[str] = (), *, again: bool = False
    ) -> None:
        """One package as pip writes it; `again`: another file may have said the same before."""
        if again and requirement in self._requirements:
            return
        self.once(name, place, conditional=" ; " in requirement or again)
        requirement = self._heard(*check_package(name, requirement, place, self.wish.upgrade_retired))
        self._requirements.append(requirement)
        self._hashed[requirement] = tuple(sorted(hashes))

    def conda(self, spec: MatchSpec, place: Place) -> None:
        """One package as conda writes it."""
        if spec.name == "python":
            self.once("python", place, conditional=False)
            self.python = spec.python()
        elif spec.name != "pip":
            self.once(spec.on_the_index, place, conditional=False)
        self._conda.append((spec, place))

    def editable(self, folder: Path) -> None:
        """A project whose code is used where it lies."""
        inside = folder.relative_to(self.top).as_posix()
        if inside not in self._editable:
            self._editable.append(inside)

    def once(self, name: str, place: Place, *, conditional: bool) -> None:
        """Two lines for one package are fine when both say under which condition they hold."""
        before = self._places.get(name)
        if before is not None and not (conditional and before[1]):
            raise PackageTwice(name, before[0], place)
        self._places[name] = (place, conditional)

    def environment(self, source: Path) -> Found:
        """All of it, normalised."""
        needs_conda = any(spec.requirement is None for spec, _ in self._conda) or any(
            is_own(channel)
            for channel in (*self._channels, *(s.channel for s, _ in self._conda if s.channel))
        )
        if not needs_conda:
            for spec, place in self._conda:
                if spec.name not in ("python", "pip") and spec.requirement is not None:
                    taken = check_package(
                        spec.on_the_index, spec.requirement, place, self.wish.upgrade_retired
                    )
                    self._requirements.append(self._heard(*taken))
            self.python = self._heard(
                *check_python(self.python, self._python_place(source), self.wish.upgrade_retired)
            )
        made = Environment(
            packages=tuple(sorted(self._requirements)),
            python=self.python,
            source=str(source),
            editable=tuple(sorted(self._editable)),
            index=self.index.to_json(),
        )
        if needs_conda:
            specs = {spec.text for spec, _ in self._conda}
            if self._requirements and not any(spec.name == "python" for spec, _ in self._conda):
                specs.add("python")  # pip's part is installed with it
            made = replace(made, conda=tuple(sorted(specs)), channels=tuple(self._channels))
        elif any(self._hashed.values()):
            made = self._locked(made, source)
        return Found(made, dict(self.index.credentials), tuple(self._notes))

    def _locked(self, made: Environment, source: Path) -> Environment:
        """Lines with hashes are a lock: all of them together, exactly as they are."""
        for requirement, hashes in self._hashed.items():
            if not hashes:
                raise UnsupportedRequirement(
                    self._places.get(requirement.partition("=")[0], (Place(source), False))[0],
                    requirement,
                    "other lines of the file have hashes, and then all must",
                )
        lines = [
            " ".join([line, *(f"--hash={h}" for h in self._hashed[line])]) for line in sorted(self._hashed)
        ]
        return replace(made, packages=(), lock="\n".join(lines) + "\n", lock_kind="requirements")

    def _python_place(self, source: Path) -> Place:
        return self._places.get("python", (Place(source), False))[0]

    def _heard(self, value: T, note: str | None) -> T:
        if note:
            self._notes.append(note)
        return value
