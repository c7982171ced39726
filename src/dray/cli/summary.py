"""The last words about a followed run: how it ended, what it reached, what it left."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dray.cli.endings import headline
from dray.cli.facts import show_number
from dray.cli.voice import Voice
from dray.core.durations import show_bytes
from dray.core.states import ReasonKind, RunState

if TYPE_CHECKING:
    from dray.workspace import Run

FEW_METRICS, FEW_FILES = 6, 5


def close(run: Run, voice: Voice, told: Collection[str] = ()) -> None:
    """Say it on stderr; with -q only when the run has not completed. What was `told` is not repeated."""
    text = f"{run.id} {headline(run)}"
    if run.status is RunState.COMPLETED:
        voice.say(text, *_results(run, voice, told), state=run.status)
    elif voice.quiet:
        voice.warn(text, state=run.status)
    else:
        voice.warn(text, *_build_log(run), *_results(run, voice, told), state=run.status)


def _results(run: Run, voice: Voice, told: Collection[str]) -> list[str]:
    few_metrics, few_files = (10**9, 10**9) if voice.verbose else (FEW_METRICS, FEW_FILES)
    return [
        *_metrics(run, few_metrics),
        *_outputs(run, few_files),
        *gpu_lines(run),
        *(sentence for sentence in run.explain() if sentence not in told),
        f"more: dray show {run.id}",
    ]


def _metrics(run: Run, few: int) -> list[str]:
    latest = run.latest()
    if not latest:
        return []
    shown = [f"{name} {show_number(value)}" for name, (value, _) in list(latest.items())[:few]]
    more = f" and {len(latest) - few} more" if len(latest) > few else ""
    return [f"metrics: {', '.join(shown)}{more}"]


def gpu_lines(run: Run) -> list[str]:
    """Whether it used a GPU. Nothing where there is none and none was wanted."""
    told = run.gpu
    return told.lines() if told and told.is_news else []


def _outputs(run: Run, few: int) -> list[str]:
    """From the end that the machine wrote: asking again could fail, and the run is over."""
    files = run.outputs.known()
    count = ((run.record.end or {}).get("outputs") or {}).get("count") or len(files)
    if not files:
        return []
    shown = [f"{path} ({show_bytes(size)})" for path, size in files[:few]]
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return [f"outputs: {', '.join(shown)}{more}", f"fetch them: dray outputs {run.id} --to DIR"]


def _build_log(run: Run) -> list[str]:
    """Its lines were shown as they came; here is where they stand."""
    if (run.reason or {}).get("kind") != ReasonKind.ENVIRONMENT_FAILED:
        return []
    return [f"the build's log: dray logs {run.id} --stream environment"]
