"""`dray logs`: the bytes of a run's log, all of them, the last lines, or live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import click

from dray.cli import desk
from dray.cli.options import one_run, voiced
from dray.cli.spout import Spout
from dray.cli.times import ago
from dray.cli.voice import Voice
from dray.core.errors import DrayError, UnknownName, UsageError
from dray.core.states import ReasonKind

if TYPE_CHECKING:
    from dray.workspace import Run

PREFIX = "log."
USUAL = ("script", "environment", "image")
ENOUGH = 1 << 20  # bytes; more than that is thinned to the lines that are wanted


@click.command("logs")
@one_run
@click.option("-f", "--follow", "live", is_flag=True, help="Go on until the run ends, or Ctrl-C.")
@click.option("--tail", "lines", metavar="N", type=click.IntRange(min=0), help="Only the last N lines.")
@click.option(
    "--stream",
    "name",
    metavar="NAME",
    default="script",
    show_default=True,
    help="Which log: script, environment, image.",
)
@voiced
def logs(word: str, live: bool, lines: int | None, name: str, voice: Voice) -> int:
    """Print what a run wrote, byte for byte.

    Ends with 0 whatever became of the run; `dray follow` ends with the script's code. `dray logs environment` is
    short for that log of the newest run.

    \b
    Example:
      dray logs @last --tail 20 -f
    """  # noqa: D301
    with desk.workspace() as ws:
        run, is_last = desk.find_or_last(ws, word, lambda run: _is_log(run, word), voice)
        stream = _stream(run, word if is_last else name)
        spout = Spout()
        try:
            if live:
                shown = _last_lines(run, stream, lines, spout, voice) if lines is not None else 0
                _pass_on(run, stream, spout, skip=shown)
            elif lines is None:
                for piece in _by_now(run, stream, voice):
                    spout.write(piece)
            elif run.record.complete:
                spout.write(run.tail(lines, stream))
            else:
                _last_lines(run, stream, lines, spout, voice)
        finally:
            spout.settle()
        never_began = (run.reason or {}).get("kind") == ReasonKind.ENVIRONMENT_FAILED
        if never_began and not spout.written and lines != 0:
            voice.say(f"nothing was printed; the build's log: dray logs {run.id} --stream environment")
    return 0


def _is_log(run: Run, word: str) -> bool:
    return word in USUAL or PREFIX + word in run.log_streams()


def _stream(run: Run, name: str) -> str:
    """The stream that `name` means; a wrong one lists those that are there."""
    wanted = name.removeprefix(PREFIX)
    # A log that has not begun yet, or that stayed empty, is not a mistake.
    if wanted not in (USUAL[:1] if run.ended else USUAL):
        known = [name.removeprefix(PREFIX) for name in run.log_streams() if name.startswith(PREFIX)]
        if wanted not in known:
            if wanted == USUAL[1] and (run.record.environment or {}).get("digest"):
                raise UsageError(
                    f"run {run.id} has built no environment", why="it was on the machine already"
                )
            raise UnknownName("log", name, known)
    return PREFIX + wanted


def _by_now(run: Run, stream: str, voice: Voice) -> Iterator[bytes]:
    """What there is by now. When the machine cannot be asked: what had come before."""
    try:
        yield from _pieces(run, stream, live=False)
    except UsageError:
        raise
    except DrayError as error:
        voice.warn(error.what, f"this is what had come {ago(run.record.as_of)}")


def _pass_on(run: Run, stream: str, spout: Spout, *, skip: int) -> None:
    """Write all from byte `skip` on, as it comes, up to the end of the run."""
    for piece in _pieces(run, stream, live=True):
        spout.write(piece[skip:])
        skip -= min(skip, len(piece))


def _last_lines(run: Run, stream: str, lines: int, spout: Spout, voice: Voice) -> int:
    """Write the last lines of what there is by now; how many bytes the log had then."""
    size, kept = 0, bytearray()
    for piece in _by_now(run, stream, voice):
        size += len(piece)
        kept += piece
        if len(kept) > ENOUGH:
            kept = kept[_last(kept, lines) :]
    spout.write(bytes(kept[_last(kept, lines) :]))
    return size


def _pieces(run: Run, stream: str, *, live: bool) -> Iterator[bytes]:
    from dray.workspace import Output

    # Closing the generator is leaving: it must happen now, not when memory is tidied up.
    with closing(run.follow(streams=(stream,), wait=live)) as events:  # type: ignore[type-var] # a generator
        for event in events:
            if isinstance(event, Output) and event.stream == stream:
                yield event.data


def _last(data: bytes | bytearray, lines: int) -> int:
    """Where the last `lines` lines of `data` begin."""
    at = len(data) if lines == 0 else len(data) - data.endswith(b"\n")
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + (lines > 0)
