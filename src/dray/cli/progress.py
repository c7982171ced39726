"""Shows what takes longer than a second: a bar on a terminal, now and then a line everywhere else."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

from dray.cli.voice import Voice
from dray.core.durations import show_duration
from dray.core.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from dray.workspace import Event

PATIENCE_S = 1.0
_LINES_AT_S = (1.0, 5.0, 15.0, 30.0, 60.0)  # then every minute


class Activity:
    """What dray is waiting for. `begin` or `advance` it, `rest` before anything else is written; `begin` goes on."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._what = ""
        self._began = 0.0
        self._done = 0
        self._total = 0
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, what: str) -> None:
        """Something of unknown length began."""
        self.advance(what, 0, 0)

    def advance(self, what: str, done: int, total: int) -> None:
        """`done` of `total` is done of what began when it was first named."""
        if self._voice.quiet:
            return
        with self._lock:
            if what != self._what:
                self._began = time.monotonic()
            self._what, self._done, self._total = what, done, total
        if self._thread is None:
            self._woken.clear()
            show = self._draw if self._voice.on_terminal else self._tell
            self._thread = threading.Thread(target=show, daemon=True)
            self._thread.start()

    def hear(self, event: Event) -> None:
        """The callback for what takes long: shows progress, says sentences."""
        from dray.workspace import Progress, Said

        if isinstance(event, Progress):
            self.advance(printable(event.what), event.done, event.total or 0)
        elif isinstance(event, Said):
            self.rest()
            self._voice.say(event.text)

    def rest(self) -> None:
        """Nothing is shown any more when this returns. Costs nothing when nothing was."""
        if self._thread is not None:
            self._woken.set()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.rest()

    def _now(self) -> tuple[str, int, int]:
        with self._lock:
            return self._what, self._done, self._total

    def _tell(self) -> None:
        """Without a terminal: a line after a second, then ever less often."""
        since = time.monotonic()
        lines_at = list(_LINES_AT_S)
        while not self._woken.wait(lines_at[0] - (time.monotonic() - since)):
            what, done, total = self._now()
            share = f" {100 * done // total}%" if total else ""
            self._voice.say(f"{what}{share} ({show_duration(time.monotonic() - self._began)})")
            lines_at = lines_at[1:] or [lines_at[0] + 60.0]

    def _draw(self) -> None:
        """On a terminal: a bar after a second."""
        if self._woken.wait(PATIENCE_S):
            return
        bar = _bar()
        # Before it is shown: its first picture has a name too.
        task = bar.add_task(self._now()[0], total=None)
        with bar:
            while True:
                what, done, total = self._now()
                bar.update(task, description=what, completed=done, total=total or None)
                if self._woken.wait(0.1):
                    return


def _bar() -> RichProgress:
    """rich costs more than all of dray: it is imported when somebody has waited for a second."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    pieces: list[Any] = [
        SpinnerColumn(),
        # What is done may be named by another machine: never as markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    ]
    return Progress(*pieces, console=Console(stderr=True), transient=True)
