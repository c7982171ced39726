"""The computes of this user: one small file each, in every folder and every project the same.

    DRAY_HOME/computes/gpu1.compute    {"v":1,"kind":"vm","options":{...},"machine":"<id>","user":"ana","attached":t}
    DRAY_HOME/computes/gpu.compute     {"v":1,"alias":"gpu1"}
    DRAY_HOME/computes/default         gpu1

A secret is in none of them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, UnknownName, UsageError, printable

if TYPE_CHECKING:
    from dray.targets import VmOptions

LOCAL = "local"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_END = ".compute"


@dataclass(frozen=True, slots=True)
class Compute:
    """One attached machine, as it is written down."""

    name: str
    kind: str
    options: VmOptions
    machine: str | None = None
    """The machine's own id, as of the last look."""
    user: str | None = None
    """Who we are there."""
    attached: float = 0.0
    more: Mapping[str, Any] = field(default_factory=dict)
    """What a newer dray has written, kept as it came."""

    def to_json(self) -> dict[str, Any]:
        """For its file."""
        options = {
            name: value
            for name, value in asdict(self.options).items()
            if value is not None and value is not False
        }
        facts = {"machine": self.machine, "user": self.user, "attached": self.attached}
        return {**self.more, "v": 1, "kind": self.kind, "options": options, **facts}


class BrokenCompute(DrayError):
    """A compute's file cannot be read."""

    code = "broken-compute"

    def __init__(self, name: str, path: Path, why: str) -> None:
        super().__init__(
            f"the compute `{printable(name)}` cannot be read",
            why=f"{printable(str(path))}: {why}",
            hint=f"dray compute rm {printable(name)}, then attach it again; or mend the file",
        )


class Computes:
    """The folder of computes of one DRAY_HOME."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "computes"

    def names(self) -> list[str]:
        """Names and aliases of all that were attached."""
        try:
            found = [name.removesuffix(_END) for name in os.listdir(self._folder) if name.endswith(_END)]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if _NAME.fullmatch(name))

    def aliases(self) -> dict[str, str]:
        """Second name -> name."""
        found = {}
        for name in self.names():
            try:
                alias = self._read(name).get("alias")
            except BrokenCompute:
                continue  # one that cannot be read must not hide the others
            if isinstance(alias, str):
                found[name] = alias
        return found

    def broken(self) -> dict[str, str]:
        """Name -> why its file cannot be read."""
        found = {}
        for name in self.names():
            try:
                self.get(name)
            except BrokenCompute as trouble:
                found[name] = trouble.why or trouble.what
        return found

    def get(self, name: str) -> Compute | None:
        """The compute of that name, or that an alias of that name means; None when there is none."""
        for _ in range(8):  # an alias of an alias
            if not _NAME.fullmatch(name) or not (self._folder / f"{name}{_END}").exists():
                return None
            data = self._read(name)
            if "alias" not in data:
                return self._made(name, data)
            name = str(data["alias"])
        raise BrokenCompute(name, self._folder / f"{name}{_END}", "its aliases go round in circles")

    def all(self) -> list[Compute]:
        """All computes that can be read, without their second names."""
        left_out = {*self.aliases(), *self.broken()}
        return [found for name in self.names() if name not in left_out and (found := self.get(name))]

    def put(self, compute: Compute) -> None:
        """Write it down, whole or not at all."""
        check_name(compute.name)
        self._write(f"{compute.name}{_END}", json.dumps(compute.to_json(), indent=2) + "\n")

    def put_alias(self, alias: str, name: str) -> None:
        """Give a compute a second name."""
        check_name(alias)
        target = self.get(name)
        if target is None and name != LOCAL:
            raise UnknownName("compute", name, [LOCAL, *self.names()])
        there = self.get(alias)
        if there is not None and alias not in self.aliases():
            raise UsageError(f"`{printable(alias)}` is a compute of its own", hint=f"dray compute rm {alias}")
        if target is None:
            raise UsageError("`local` keeps its name", why="an alias names a machine that was attached")
        self._write(f"{alias}{_END}", json.dumps({"v": 1, "alias": target.name}) + "\n")

    def drop(self, name: str) -> None:
        """Forget a compute with its second names, or one second name."""
        if name not in self.aliases():
            for alias, meant in self.aliases().items():
                if meant == name:
                    (self._folder / f"{alias}{_END}").unlink(missing_ok=True)
        (self._folder / f"{name}{_END}").unlink(missing_ok=True)
        if self.default() == name:
            self.set_default(LOCAL)

    def default(self) -> str:
        """What a submit without `-c` uses, when DRAY_COMPUTE says nothing."""
        try:
            named = (self._folder / "default").read_text().strip()
        except (OSError, UnicodeDecodeError):
            return LOCAL
        return named or LOCAL

    def set_default(self, name: str) -> None:
        """Let a submit without `-c` go there."""
        if name != LOCAL and name not in self.names():
            raise UnknownName("compute", name, [LOCAL, *self.names()])
        self._write("default", name + "\n")

    def _made(self, name: str, data: Mapping[str, Any]) -> Compute:
        from dray.targets import KINDS, options_of

        path, kind = self._folder / f"{name}{_END}", data.get("kind")
        if data.get("v") != 1 or kind not in KINDS:
            raise BrokenCompute(name, path, f"a newer dray has written it (kind {printable(str(kind))})")
        known = {one.name for one in fields(options_of(kind))}
        options = data.get("options")
        try:
            made = options_of(kind)(
                **{key: value for key, value in dict(options or {}).items() if key in known}
            )
            made = made.checked(name)
        except (TypeError, ValueError) as trouble:
            raise BrokenCompute(name, path, str(trouble)) from None
        rest = {key: value for key, value in data.items() if key not in _OWN}
        return Compute(
            name, kind, made, data.get("machine"), data.get("user"), data.get("attached") or 0.0, rest
        )

    def _read(self, name: str) -> dict[str, Any]:
        path = self._folder / f"{name}{_END}"
        try:
            data = json.loads(path.read_bytes())
        except OSError as trouble:
            raise BrokenCompute(name, path, trouble.strerror or str(trouble)) from None
        except (ValueError, RecursionError) as trouble:
            raise BrokenCompute(name, path, f"it is not JSON ({trouble})") from None
        if not isinstance(data, dict):
            raise BrokenCompute(name, path, "it is not an object")
        return data

    def _write(self, name: str, text: str) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self._folder / f".{name}.{os.urandom(4).hex()}"
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        beside.replace(self._folder / name)


_OWN = ("v", "kind", "options", "machine", "user", "attached")


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a compute."""
    if name == LOCAL:
        raise UsageError("`local` is this machine, and always there")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"`{printable(name[:80])}` cannot name a compute",
            why="a name has 1 to 64 letters, digits, `.`, `_` or `-`, and begins with a letter or digit",
        )
