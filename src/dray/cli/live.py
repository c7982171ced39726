"""A few lines at the bottom of a terminal that are drawn again in place, without an alternate screen."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TextIO

from dray.cli.tables import columns, width_of

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Live:
    """Draws on `stream`, a terminal. What was drawn last stays when nobody draws any more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn: list[str] = []

    @property
    def room(self) -> tuple[int, int]:
        """Columns and lines that can be drawn now; asked anew each time, because windows are resized."""
        try:
            height = os.get_terminal_size(self._stream.fileno()).lines or 24
        except OSError:
            height = 24
        # The last column stays free: a full line would make some terminals go to the next one by themselves.
        return max((width_of(self._stream) or 80) - 1, 1), max(height - 1, 1)

    def draw(self, lines: Sequence[str], above: Sequence[str] = ()) -> None:
        """Put `lines` in the place of those before; `above` is left standing before them, for good.

        One write, which overwrites before it clears: there is no moment at which the lines are not there.
        """
        if list(lines) == self._drawn and not above:
            return
        width = self.room[0] + 1
        # In a window that was made narrower, the terminal has wrapped what stood there.
        up = sum(max(1, -(-_columns(line) // width)) for line in self._drawn)
        text = f"\x1b[{up}A\r" if up else "\r"
        text += "".join(f"{line}\x1b[K\n" for line in (*above, *lines))
        self._stream.write(text + "\x1b[J")
        self._stream.flush()
        self._drawn = list(lines)


def _columns(line: str) -> int:
    return columns(_COLOUR.sub("", line))
