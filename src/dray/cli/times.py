"""Points in time as people say them: 3m ago, 2026-01-31 14:05:09."""

from __future__ import annotations

import time

from dray.core.durations import show_duration


def ago(then: float | None, now: float | None = None) -> str:
    """How long ago `then` was, in one figure; "-" for never. A clock that was set back makes it "now"."""
    if then is None:
        return "-"
    seconds = (time.time() if now is None else now) - then
    if seconds < 1:
        return "now"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{int(seconds)}s ago"


def at(then: float | None) -> str:
    """The local date and time, and how long ago that was."""
    if then is None:
        return "-"
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(then))} ({ago(then)})"


def took(duration_s: float | None, started: float | None, ended: float | None) -> str:
    """How long something ran, up to now if it has not ended; "-" where nobody knows."""
    if duration_s is None and started is not None and ended is None:
        duration_s = time.time() - started
    return show_duration(duration_s)
