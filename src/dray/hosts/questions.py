"""What a login may ask of a person, and who answers: a stored secret, the person at the terminal, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Question:
    """One question of ssh's, understood as far as it can be."""

    kind: Literal["host-key", "password", "passphrase", "code"]
    """`code` is whatever else a machine may ask: a one-time password, a choice of a menu."""
    text: str
    """As ssh put it."""
    about: str
    """`user@host` that wants it, or the key file; empty when the question does not say."""


Answers: TypeAlias = Callable[[Question], str | None]
"""Gives the answer, or None where there is none."""


def nobody(question: Question) -> str | None:
    """Answers nothing."""
    return None
