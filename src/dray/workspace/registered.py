"""Environments with a name and versions, kept in the workspace: `--env NAME` or `--env NAME:2`, from any folder.

One file for each version, written once and never changed: `<DRAY_HOME>/environments/NAME/2.json`. To register the same again gives the
version that is there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, UnknownName, UsageError, printable
from dray.core.spec import Environment

if TYPE_CHECKING:
    from dray.workspace.run import Run

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_WORD = re.compile(rf"(?P<name>{_NAME.pattern})(?:[:@](?P<version>\d+|latest))?")


@dataclass(frozen=True, slots=True)
class RegisteredEnvironment:
    """One version."""

    name: str
    version: int
    environment: Environment
    registered: float
    """When, in seconds since 1970."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data, as it is stored."""
        return {
            "name": self.name,
            "version": self.version,
            "environment": self.environment.to_json(),
            "registered": self.registered,
            "note": self.note,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RegisteredEnvironment:
        """Read what `to_json` gave."""
        environment = Environment.from_json(data["environment"])
        return cls(
            data["name"],
            int(data["version"]),
            environment,
            float(data["registered"]),
            str(data.get("note") or ""),
        )


class Registered:
    """All that are registered in one workspace: `ws.environments`."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "environments"

    def register(self, name: str, environment: Environment, note: str = "") -> RegisteredEnvironment:
        """Keep `environment` as the next version of `name`; the newest one if that is the same already."""
        if not _NAME.fullmatch(name) or name == "none":
            raise UsageError(
                f"`{printable(name[:80])}` cannot be the name of an environment",
                why="letters, digits, `.`, `_` and `-`, at most 80 of them; and `none` means none",
            )
        if environment.editable:
            raise UsageError(
                "an environment with editable projects cannot be registered",
                why=f"`{printable(environment.editable[0])}` is a folder of one code folder, and is nowhere else",
                hint="leave the `-e` lines out",
            )
        folder = self._folder / name
        while True:
            versions = self._versions(name)
            newest = self._read(name, versions[-1]) if versions else None
            if newest is not None and newest.environment.digest == environment.digest:
                return newest
            made = RegisteredEnvironment(
                name, (versions[-1] if versions else 0) + 1, environment, time.time(), note
            )
            folder.mkdir(parents=True, exist_ok=True)
            temporary = folder / f".{os.getpid()}.new"
            temporary.write_text(json.dumps(made.to_json(), indent=1) + "\n")
            try:
                os.link(temporary, folder / f"{made.version}.json")
            except FileExistsError:
                continue  # somebody else was faster: theirs may be the same
            finally:
                temporary.unlink()
            return made

    def register_run(self, name: str, run: Run, note: str = "") -> RegisteredEnvironment:
        """The environment of a run, as it was resolved, for the same platform."""
        from dray.environments.locks import python_of

        text, kind = run.lock()
        spec = run.record.spec.environment or Environment()
        python = python_of(text, exact=kind == "pylock") or spec.python
        locked = replace(
            spec,
            packages=(),
            conda=(),
            channels=(),
            lock=text,
            lock_kind=kind,
            python=python,
            source=f"run {run.id}",
        )
        return self.register(name, locked, note or f"as in run {run.id}")

    def names(self) -> list[str]:
        """All names, sorted."""
        try:
            found = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []
        return [name for name in found if _NAME.fullmatch(name) and self._versions(name)]

    def all(self) -> list[RegisteredEnvironment]:
        """The newest version of each."""
        found = (self._read(name, self._versions(name)[-1]) for name in self.names())
        return [one for one in found if one is not None]

    def versions(self, name: str) -> list[RegisteredEnvironment]:
        """All versions of one, the oldest first."""
        found = (self._read(name, version) for version in self._versions(name))
        return [one for one in found if one is not None]

    def find(self, word: str) -> RegisteredEnvironment | None:
        """`NAME` (its newest version) or `NAME:2`; None when no such name is registered."""
        match = _WORD.fullmatch(word)
        versions = self._versions(match["name"]) if match else []
        if match is None or not versions:
            return None
        wanted = match["version"]
        if wanted in (None, "latest"):
            return self._read(match["name"], versions[-1])
        if int(wanted) not in versions:
            raise UnknownName(
                f"version of the environment `{match['name']}`",
                wanted,
                list(map(str, versions)),
                hint=f"dray env show {match['name']}",
            )
        return self._read(match["name"], int(wanted))

    def get(self, word: str) -> RegisteredEnvironment:
        """The same; raises UnknownName when there is none."""
        found = self.find(word)
        if found is None:
            raise UnknownName("registered environment", word, self.names(), hint="dray env list")
        return found

    def remove(self, word: str) -> list[RegisteredEnvironment]:
        """Forget a name, or one version of it; what was forgotten. Runs that had it keep it."""
        one = self.get(word)
        if ":" not in word and "@" not in word:
            gone = self.versions(one.name)
            shutil.rmtree(self._folder / one.name)
            return gone
        (self._folder / one.name / f"{one.version}.json").unlink()
        return [one]

    def _versions(self, name: str) -> list[int]:
        try:
            names = os.listdir(self._folder / name)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(n[:-5]) for n in names if n.endswith(".json") and n[:-5].isdigit())

    def _read(self, name: str, version: int) -> RegisteredEnvironment | None:
        path = self._folder / name / f"{version}.json"
        try:
            return RegisteredEnvironment.from_json(json.loads(path.read_text()))
        except FileNotFoundError:
            return None  # removed meanwhile
        except (ValueError, KeyError, TypeError) as trouble:
            raise DrayError(
                f"cannot read `{printable(str(path))}`",
                why=f"it is damaged: {printable(str(trouble))}",
                hint=f"rm '{path}'",
            ) from trouble
