"""Amounts of storage as people write them: 500MB, 50GB, 1.5TiB."""

from __future__ import annotations

import re

from dray.core.errors import UsageError, printable

_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}


def parse_size(text: str) -> int:
    """Bytes in `text`: "500MB", "40 GB", "1.5TB", "2GiB", "1000000"."""
    found = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([kmgt]i?)?b?\s*", text, re.IGNORECASE | re.ASCII)
    if found is None:
        raise UsageError(
            f"`{printable(text[:40])}` is not a size", why="sizes look like 500MB, 50GB or 1.5TiB"
        )
    return int(float(found[1]) * _UNITS[(found[2] or "").upper()])
