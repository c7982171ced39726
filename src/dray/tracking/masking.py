"""Hides the values of the run's secrets in everything that is written.

`DRAY_SECRETS` lists the names of the environment variables that hold them. They are read when the script first imports
dray and again when a stream is opened; a script that takes its token out of the environment later does not unmask it.
"""

from __future__ import annotations

import os
from json.encoder import encode_basestring_ascii
from typing import Tuple

SHORTEST = 4  # a shorter "secret" would be found in every second word
_secrets: Tuple[str, ...] = ()


def learn() -> None:
    """Remember the secrets that the environment holds now, besides those known already."""
    global _secrets  # one list per process; a tuple, so that a reader in another thread sees a whole one
    found = set(_secrets)
    for name in os.environ.get("DRAY_SECRETS", "").split(","):
        value = os.environ.get(name.strip(), "") if name.strip() else ""
        for form in (
            value,
            value.strip(),
        ):  # scripts strip the newline that a secret read from a file ends with
            if len(form) >= SHORTEST:
                # In a list or a dict that is shown as text, quotes and backslashes look different.
                found.update((form, repr(form)[1:-1], encode_basestring_ascii(form)[1:-1]))
    # The longest first: a secret that is part of another must not leave the rest of it readable.
    _secrets = tuple(sorted(found, key=lambda v: (-len(v), v)))


def hide(text: str) -> str:
    """`text` with `***` in the place of each secret."""
    for secret in _secrets:
        if secret in text:
            text = text.replace(secret, "***")
    return text


learn()
