"""Names of runs: ten letters and digits, easy to read out, the first one a letter."""

from __future__ import annotations

import re
import secrets

_LETTERS = "abcdefghjkmnpqrstvwxyz"  # without i, l, o, u: read as digits, or spelling words
_ALL = _LETTERS + "23456789"
LENGTH = 10
PATTERN = re.compile(rf"[{_LETTERS}][{_ALL}]{{{LENGTH - 1}}}")


def new_run_id() -> str:
    """A fresh id. 48 bits: two of a million runs are equal once in 500 histories, and mkdir decides then."""
    return secrets.choice(_LETTERS) + "".join(secrets.choice(_ALL) for _ in range(LENGTH - 1))
