"""`dray runs --watch`: a line for each active run, kept up to date until the last one has ended.

Read `watch()`. On a terminal the lines are drawn in place; a run that has ended leaves its last line standing above them.
Everywhere else lines are added: at once when a state changes, now and then for what else has changed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from dray.cli import endings
from dray.cli.cells import cells, header, is_right
from dray.cli.facts import count_of, show_number
from dray.cli.live import Live
from dray.cli.progress import Activity
from dray.cli.tables import layout, shorten
from dray.cli.times import ago, took
from dray.cli.voice import Voice, paint_word, pass_echo
from dray.core.errors import UnknownName, printable
from dray.core.where_tree import Field
from dray.workspace.questions import fields_from, sort_of, tree_of
from dray.workspace.watching import EVERY_S, Watching

if TYPE_CHECKING:
    from dray.workspace import Run, Workspace

HEADERS = ("ID", "NAME", "COMPUTE", "STATUS", "TOOK", "STEP", "METRICS", "AS OF")
MAY_BE_EMPTY = ("NAME", "AS OF")
FEW_METRICS = 6
TOTALS = ("total_steps", "max_steps", "num_steps", "steps")
"""Parameters that say how many steps there will be."""
_NEWS_EVERY_S, _ANY_EVERY_S = 10.0, 60.0

Row = tuple[str, ...]


class Screen(Protocol):
    """Where the lines go."""

    def show(self, runs: Sequence[Run], ended: Sequence[Run]) -> None:
        """How the active runs stand now, and those that have ended since."""

    def warn(self, text: str) -> None:
        """A sentence that interrupts."""


class Table:
    """What is said of each run, as cells below headers."""

    def __init__(self, ws: Workspace, columns: str | None) -> None:
        self._ws = ws
        self._fields = fields_from(columns) if columns is not None else ()

    def of(self, runs: Sequence[Run]) -> tuple[Row, list[Row], list[str]]:
        """Headers, rows, and which columns are numbers."""
        if self._fields:
            values = self._ws.columns(runs, self._fields)
            right = [header(field) for field in self._fields if is_right(field, values)]
            heads = tuple(map(header, self._fields))
            return heads, [tuple(row) for row in cells(self._fields, values)], right
        ids = [run.id for run in runs]
        latest = self._ws.store.latest(ids)
        totals = self._ws.store.columns(ids, [Field("params", name) for name in TOTALS])
        rows = [_row(run, latest[run.id], totals[run.id]) for run in runs]
        told = [
            head
            for at, head in enumerate(HEADERS)
            if head not in MAY_BE_EMPTY or any(row[at] for row in rows)
        ]
        kept = [HEADERS.index(head) for head in told]
        return tuple(told), [tuple(row[at] for at in kept) for row in rows], ["TOOK", "STEP"]

    def last_line(self, run: Run) -> str:
        """How it ended, with what it reached."""
        pieces = [run.id, run.name or "", endings.headline(run), metrics_text(run.latest())]
        return printable("  ".join(piece for piece in pieces if piece))


class Drawn:
    """On a terminal: the table, drawn in place."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._live = Live(sys.stdout)
        self._above: list[str] = []

    def show(self, runs: Sequence[Run], ended: Sequence[Run]) -> None:
        """Draw it all anew."""
        width, height = self._live.room
        for run in ended:
            line = shorten(self._table.last_line(run), width)
            self._above.append(line.replace(str(run.status), paint_word(str(run.status)), 1))
        lines: list[str] = []
        if runs:
            some = runs[: max(height - 2, 1)]
            heads, rows, right = self._table.of(some)
            shown = [[printable(cell) for cell in row] for row in rows]
            lines = _fitting(heads, shown, right, width)
            if len(some) < len(runs):
                lines.append(f"and {len(runs) - len(some)} more"[:width])
        self._live.draw(lines, self._above)
        self._above = []

    def warn(self, text: str) -> None:
        """Leave the sentence standing above the table."""
        self._above.append(shorten(f"dray: {printable(text)}", self._live.room[0]))


class Told:
    """Everywhere else: a line for what is new."""

    def __init__(self, table: Table, voice: Voice) -> None:
        self._table = table
        self._voice = voice
        self._said: dict[str, tuple[float, str, Row]] = {}

    def show(self, runs: Sequence[Run], ended: Sequence[Run]) -> None:
        """Write a line for each run of which there is something to say."""
        now = time.monotonic()
        for run in ended:
            self._write(self._table.last_line(run))
        if not runs:
            return
        heads, rows, _ = self._table.of(runs)
        for run, row in zip(runs, rows, strict=True):
            told = tuple(cell for head, cell in zip(heads, row, strict=True) if head not in ("TOOK", "AS OF"))
            when, status, before = self._said.get(run.id, (-_ANY_EVERY_S, "", ()))
            patience = _NEWS_EVERY_S if told != before else _ANY_EVERY_S
            if status != run.status or now - when >= patience:
                self._said[run.id] = (now, str(run.status), told)
                self._write(
                    "  ".join(
                        _named(*pair) for pair in zip(heads, row, strict=True) if pair[1] not in ("", "-")
                    )
                )

    def warn(self, text: str) -> None:
        """Say it on stderr."""
        self._voice.warn(text)

    def _write(self, line: str) -> None:
        sys.stdout.write(printable(line) + "\n")
        sys.stdout.flush()


def watch(ws: Workspace, voice: Voice, *, limit: int, columns: str | None, **asked: Any) -> int:
    """Show active runs until none is left; the exit code."""
    tree = tree_of(asked["where"], asked["experiment"], asked["status"])
    order = sort_of(asked["sort"])
    table = Table(ws, columns)

    def active() -> list[Run]:
        from dray.workspace import Run

        return [Run(ws, record) for record in ws.store.runs(active=True, where=tree, sort=order)]

    with Activity(voice) as activity:
        activity.begin("asking the machines")
        ws.refresh()
    for warning in ws.warnings:
        voice.warn(warning)
    runs = active()
    if not runs:
        others = len(ws.store.runs(active=True))
        voice.say(f"no active run fits; {count_of(others, 'other')} active" if others else "no run is active")
        return 0
    on_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    screen: Screen = Drawn(table) if on_terminal else Told(table, voice)
    try:
        with _woken_by_resizing() as woken, Watching(ws) as watching:
            _show_until_all_ended(ws, active, limit, screen, watching, woken)
    except KeyboardInterrupt:
        pass_echo()
        left = len(active())
        voice.say(
            f"left; {count_of(left, 'run')} {'goes' if left == 1 else 'go'} on", "return: dray runs --watch"
        )
        return endings.LEFT
    voice.say("no run is active any more" if tree is None else "no active run fits any more")
    return 0


def metrics_text(latest: Mapping[str, tuple[float, int | None]]) -> str:
    """loss 0.21, acc 0.93."""
    shown = [f"{name} {show_number(value)}" for name, (value, _) in list(latest.items())[:FEW_METRICS]]
    more = f" and {len(latest) - FEW_METRICS} more" if len(latest) > FEW_METRICS else ""
    return ", ".join(shown) + more


def step_text(latest: Mapping[str, tuple[float, int | None]], totals: Mapping[Field, Any]) -> str:
    """30, or 30/100 30% where a parameter tells how many there will be."""
    steps = [step for _, step in latest.values() if step is not None]
    if not steps:
        return ""
    for name in TOTALS:
        total = totals.get(Field("params", name))
        if isinstance(total, int) and not isinstance(total, bool) and total >= max(steps) > 0:
            return f"{max(steps)}/{total} {100 * max(steps) // total}%"
    return str(max(steps))


def _row(run: Run, latest: Mapping[str, tuple[float, int | None]], totals: Mapping[Field, Any]) -> Row:
    record = run.record
    return (
        record.id, record.name or "", record.compute, str(record.status),
        took(record.duration_s, record.started, record.ended), step_text(latest, totals), metrics_text(latest),
        ago(record.as_of) if record.unreachable else "",
    )  # fmt: skip


def _named(head: str, cell: str) -> str:
    """A cell that has no header above it."""
    return {"STEP": "step ", "AS OF": "as of "}.get(head, "" if head in HEADERS else f"{head} ") + cell


def _fitting(heads: Row, rows: list[list[str]], right: Sequence[str], width: int) -> list[str]:
    """The table's lines, none wider than the terminal: one that wraps could not be drawn over."""
    soft = [head for head in heads if head not in ("ID", "STATUS", *right)]
    spare = ("COMPUTE", "NAME", "AS OF", "STEP", "TOOK") if "METRICS" in heads else ()

    def lines(paint: Callable[[str, str], str] | None) -> list[str]:
        return layout(heads, rows, right=right, soft=soft or [""], spare=spare, width=width, paint=paint)

    painted = lines(lambda head, text: paint_word(text) if head == "STATUS" else text)
    cut = [shorten(line, width) for line in lines(None)]
    return [line if len(plain) < width else plain for line, plain in zip(painted, cut, strict=True)]


def _show_until_all_ended(
    ws: Workspace,
    active: Callable[[], list[Run]],
    limit: int,
    screen: Screen,
    watching: Watching,
    woken: threading.Event,
) -> None:
    before: list[Run] = []
    troubles: dict[str, str] = {}
    while True:
        runs = active()
        watching.keep_fresh([run.record for run in runs])
        for compute, trouble in watching.troubles.items():
            if troubles.get(compute) != trouble:
                screen.warn(f"{compute}: {trouble}")
        troubles = watching.troubles
        there = {run.id for run in runs}
        screen.show(
            runs[:limit] if limit else runs, list(_ended(ws, [r for r in before if r.id not in there]))
        )
        if not runs:
            return
        # The first answers are here soon, and worth showing at once.
        woken.wait(EVERY_S if before else EVERY_S / 4)
        woken.clear()
        before = runs


def _ended(ws: Workspace, gone: Sequence[Run]) -> Iterator[Run]:
    """Those that have ended; a run may also be gone because it was removed, or fits no longer."""
    for run in gone:
        with suppress(UnknownName):
            now = ws.run(run.id)
            if now.ended:
                yield now


@contextmanager
def _woken_by_resizing() -> Iterator[threading.Event]:
    """An event that is set when the terminal gets another size."""
    woken = threading.Event()
    before = signal.signal(signal.SIGWINCH, lambda *_: woken.set())
    try:
        yield woken
    finally:
        signal.signal(signal.SIGWINCH, before)
