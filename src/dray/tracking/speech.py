"""Says a thing to the user once, on stderr, and never stands in the script's way while doing so."""

from __future__ import annotations

import sys
from typing import Hashable, Set

_MOST = 40  # a script that invents a new mistake in every step gets tired of us before its log does
_said: Set[Hashable] = set()


def say_once(key: Hashable, sentence: str) -> None:
    """Print `sentence`, unless something was said under `key` before in this process."""
    if key in _said or len(_said) >= _MOST:
        return
    _said.add(key)
    try:
        sys.stderr.write("dray: " + sentence + "\n")
        sys.stderr.flush()
    except Exception:  # stderr may be closed, gone, or anything the script put there
        pass
