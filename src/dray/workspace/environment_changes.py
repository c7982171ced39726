"""What makes one environment another than the one before: the lines that changed its digest."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dray.core.spec import Environment

_PINNED = re.compile(r'^name = "([^"]+)"\nversion = "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Change:
    """One line that is there now and was not, or the other way round."""

    part: str
    """packages, python, conda, channels, lock, editable, index."""
    before: str | None
    after: str | None

    def __str__(self) -> str:
        """`+ numpy==2`, `- numpy==1`, `python: 3.11 -> 3.12`."""
        if self.before is not None and self.after is not None:
            return f"{self.part}: {self.before} -> {self.after}"
        sign, text = ("+", self.after) if self.before is None else ("-", self.before)
        named = "" if self.part in ("packages", "conda", "lock") else f"{self.part}: "
        return f"{sign} {named}{text}"

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"part": self.part, "before": self.before, "after": self.after}


def changes(before: Environment, after: Environment) -> list[Change]:
    """What differs between the two, part by part; nothing when their digests are the same."""
    if before.digest == after.digest:
        return []
    found: list[Change] = []
    if before.python != after.python:
        found.append(Change("python", before.python or "any", after.python or "any"))
    for part in ("packages", "conda", "editable"):
        found += _lines(part, getattr(before, part), getattr(after, part))
    if before.channels != after.channels:
        found += [
            Change("channels", ", ".join(before.channels) or "none", ", ".join(after.channels) or "none")
        ]
    for name in sorted({*before.index, *after.index}):
        was, now = before.index.get(name), after.index.get(name)
        if was != now:
            found.append(Change(name.replace("_", "-"), _shown(was), _shown(now)))
    if before.lock != after.lock or before.lock_kind != after.lock_kind:
        inside = _lines("lock", locked(before), locked(after))
        found += inside or [
            Change("lock", before.lock_kind or "none", f"{after.lock_kind or 'none'}, another text")
        ]
    return found


def locked(environment: Environment) -> list[str]:
    """The packages that a lock names, exactly."""
    text = environment.lock or ""
    pinned = [f"{name}=={version}" for name, version in _PINNED.findall(text)]
    lines = [line.partition(" --hash")[0] for line in text.splitlines() if line and not line.startswith("#")]
    return pinned or (lines if environment.lock_kind == "requirements" else [])


def _lines(part: str, before: Iterable[str], after: Iterable[str]) -> list[Change]:
    was, now = list(before), list(after)
    gone = [Change(part, line, None) for line in was if line not in now]
    return gone + [Change(part, None, line) for line in now if line not in was]


def _shown(value: Any) -> str:
    return "none" if not value else value if isinstance(value, str) else ", ".join(map(str, value))
