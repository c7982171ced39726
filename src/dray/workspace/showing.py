"""Shows a log on this program's own stdout, which takes text and may be a terminal, a file or a notebook."""

from __future__ import annotations

import codecs
import sys

from dray.core.escapes import EscapeFilter


class Shown:
    """One log, as it comes. `finish` it."""

    def __init__(self) -> None:
        # A letter may come in two pieces.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._filter = EscapeFilter() if sys.stdout.isatty() else None

    def write(self, data: bytes) -> None:
        """Show it now."""
        self._put(self._filter.feed(data) if self._filter else data)

    def finish(self) -> None:
        """Show what was held back. Colours that the log left on end here."""
        self._put(self._filter.finish() if self._filter else b"", final=True)
        if self._filter and self._filter.coloured:
            sys.stdout.write("\x1b[0m")
            sys.stdout.flush()

    def _put(self, data: bytes, *, final: bool = False) -> None:
        sys.stdout.write(self._decoder.decode(data, final))
        sys.stdout.flush()
