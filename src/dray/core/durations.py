"""Lengths of time as people write and read them: 90s, 10m, 4h, 2d."""

from __future__ import annotations

import re

from dray.core.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds in `text`: "90", "90s", "1.5h", "1h30m"."""
    pieces = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if pieces and "".join(n + u for n, u in pieces) == text:
        return sum(float(n) * _UNITS[u] for n, u in pieces)
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    raise UsageError(f"`{text}` is not a duration", why="durations look like 90s, 10m, 4h, 2d or 1h30m")


def show_duration(seconds: float | None) -> str:
    """Two figures that matter: 0.04s, 0.3s, 12s, 3m20s, 4h05m, 2d03h."""
    if seconds is None:
        return "-"
    if 0 < seconds < 0.095:
        return f"{max(seconds, 0.01):.2f}s"
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def show_bytes(count: float) -> str:
    """12 bytes, 0.3 MB, 41 GB: decimal units, as disks are sold."""
    if count < 1000:
        return "1 byte" if int(count) == 1 else f"{int(count)} bytes"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5:
            return f"{count:.1f} {unit}" if count < 99.5 else f"{count:.0f} {unit}"
    return f"{count / 1000:.1f} TB"
