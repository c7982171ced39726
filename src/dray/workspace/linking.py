"""Follows a run over as many connections as it takes: a link that breaks is taken up again at the byte.

A machine on a network may be away for a while; how long it is waited for says its Host (`patience_s`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dray.core.durations import show_duration
from dray.core.errors import DrayError, LinkLost
from dray.hosts import Connection, HostUnreachable
from dray.workspace.events import Event, Said

if TYPE_CHECKING:
    from dray.workspace.following import Follower

_VAIN_TRIES = 3
_HOLDS_S = 5.0
_PAUSES_S = (0.0, 0.2, 0.5, 1.0, 2.0, 3.0)  # then 5 s each


class Patience:
    """How often and how long a link that breaks is taken up again."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._broke_at: float | None = None
        self._back_at: float | None = None
        self._tries = 0

    def lost(self, lost: DrayError) -> bool:
        """It broke, or could not be made. Waits; True when that is news. Raises LinkLost when it has been vain for too long."""
        now = time.monotonic()
        if self._back_at is not None and now - self._back_at > _HOLDS_S:
            self._broke_at, self._tries = None, 0
        is_news = self._broke_at is None
        self._broke_at = now if self._broke_at is None else self._broke_at
        self._back_at = None
        self._tries += 1
        if self._tries >= _VAIN_TRIES and now - self._broke_at >= self._patience_s:
            if isinstance(lost, LinkLost):
                raise lost
            raise LinkLost(lost.what, why=lost.why, hint=lost.hint) from lost
        time.sleep(_PAUSES_S[self._tries] if self._tries < len(_PAUSES_S) else 5.0)
        return is_news

    def back(self) -> str | None:
        """Something came. For how long nothing did, if that is news."""
        if self._broke_at is None or self._back_at is not None:
            return None
        self._back_at = time.monotonic()
        return f"back after {show_duration(self._back_at - self._broke_at)}"


def linked(
    follower: Follower, connect: Callable[[], Connection], patience_s: float, *, wait: bool
) -> Iterator[Event]:
    """The follower's events. Raises LinkLost when nothing has come for so long, or three times in a row without patience."""
    broke_at: float | None = None
    tries = 0
    while True:
        before = dict(follower.cursor)
        try:
            connection = connect()
            try:
                for event in follower.events(connection, wait=wait):
                    if broke_at is not None:
                        yield Said(f"back after {show_duration(time.monotonic() - broke_at)}")
                        broke_at, tries = None, 0
                    yield event
                return
            finally:
                connection.close()
        except (LinkLost, HostUnreachable) as lost:
            if follower.cursor != before:
                broke_at, tries = None, 0
            now = time.monotonic()
            first = broke_at is None
            broke_at = now if broke_at is None else broke_at
            tries += 1
            if not wait and patience_s:
                raise
            if tries >= _VAIN_TRIES and now - broke_at >= patience_s:
                if isinstance(lost, LinkLost):
                    raise
                raise LinkLost(lost.what, why=lost.why, hint=lost.hint) from lost
            if first:
                yield Said(f"{lost.what}; the run goes on, and so does this as soon as the link is back")
        time.sleep(_PAUSES_S[tries] if tries < len(_PAUSES_S) else 5.0)
