"""Hides the values of the run's secrets in everything that is written.

`DRAY_SECRETS` lists the names of the environment variables that hold them. They are read when the script first imports
dray and again when a stream is opened; a script that takes its token out of the environment later does not unmask it.
"""

from __future__ import annotations

import os
from json.encoder import encode_basestring_ascii
from typing import Iterator, Tuple

SHORTEST = 4  # a shorter "secret" would be found in every second word
_secrets: Tuple[str, ...] = ()


def learn() -> None:
    """Remember the secrets that the environment holds now, besides those known already."""
    global _secrets  # one list per process; a tuple, so that a reader in another thread sees a whole one
    found = set(_secrets)
    for name in os.environ.get("DRAY_SECRETS", "").split(","):
        value = os.environ.get(name.strip(), "") if name.strip() else ""
        if len(value) >= SHORTEST:
            found.update(form for form in _forms(value) if len(form) >= SHORTEST)
    # The longest first: a secret that is part of another must not leave the rest of it readable.
    _secrets = tuple(sorted(found, key=lambda v: (-len(v), v)))


def _forms(secret: str) -> Iterator[str]:
    """What it looks like when it is said whole or line by line, in a list that is shown as text, in an address, in base64.

    The runner's `mask.forms` says the same of the log; the two travel apart.
    """
    from base64 import b64encode, urlsafe_b64encode  # few runs have secrets
    from urllib.parse import quote

    # Scripts strip the newline that a secret read from a file ends with.
    for whole in {secret, secret.strip()}:
        raw = whole.encode("utf-8", "surrogateescape")
        yield from (whole, repr(whole)[1:-1], encode_basestring_ascii(whole)[1:-1])
        yield from (line for line in whole.splitlines() if len(line.strip()) >= SHORTEST)
        yield from (quote(raw, safe=""), b64encode(raw).decode(), urlsafe_b64encode(raw).decode())


def hide(text: str) -> str:
    """`text` with `***` in the place of each secret."""
    for secret in _secrets:
        if secret in text:
            text = text.replace(secret, "***")
    return text


learn()
