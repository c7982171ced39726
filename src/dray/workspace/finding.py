"""One thing that `dray doctor` looked at, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, the evidence, and the command that mends it."""

    level: Literal["ok", "warn", "bad"]
    what: str
    detail: str
    hint: str | None = None
