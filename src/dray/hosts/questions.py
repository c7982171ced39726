"""What a login may ask of a person, and who answers: a stored secret, the person at the terminal, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Question:
    """One question of ssh's, understood as far as it can be."""

    kind: Literal["host-key", "password", "passphrase", "code", "registry"]
    """`code` is whatever else a machine may ask: a one-time password, a choice of a menu. `registry` is dray's own: a registry's password."""
    text: str
    """As ssh put it."""
    about: str
    """`user@host` (or `user@registry`) that wants it, or the key file; empty when the question does not say."""


Answers: TypeAlias = Callable[[Question], str | None]
"""Gives the answer, or None where there is none."""


SECRET_VARIABLES = frozenset(("DRAY_PASSWORD", "DRAY_PASSPHRASE", "DRAY_REGISTRY_PASSWORD"))
"""Where a person may put secrets for dray itself: no process that dray starts sees them."""


def nobody(question: Question) -> str | None:
    """Answers nothing."""
    return None
