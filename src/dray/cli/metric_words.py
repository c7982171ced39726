"""Which runs and which metrics the words of `dray metrics` mean: they stand mixed, in any order.

A word that names a run is a run; one that names a metric of those runs, or is a pattern that some of them fit, is that. Without
a run the newest one is meant. `metrics.loss` means the metric, whatever runs are called, as in `dray runs --where`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from dray.cli import desk
from dray.cli.options import LAST
from dray.cli.voice import Voice
from dray.core.errors import UnknownName, UsageError, nearest, printable

if TYPE_CHECKING:
    from dray.workspace import Run, Workspace

_FAMILY = "metrics."


class Meant(NamedTuple):
    """What the words mean."""

    runs: list[Run]
    """Each once, in the order of the words; asked for what is new."""
    names: dict[str, list[str]]
    """Of each run, by id, those of its metrics that are wanted, in the order of the words."""
    patterns: list[str]
    """The words that name metrics; none: all are meant."""


def understand(ws: Workspace, words: Sequence[str], voice: Voice) -> Meant:
    """Tell runs from metrics. Raises UnknownName or UsageError for a word that is neither, or both."""
    found = {word: run for word in words if (run := _run(ws, word)) is not None}
    certain = {word: run for word, run in found.items() if word.startswith("@") or word in (run.id, run.name)}
    runs = _fresh(certain.values() or _newest(ws, *words), voice)
    metrics = _metrics_of(runs)
    # What might be the beginning of an id is the name of a metric first of all, if there is one.
    meant = {word: run for word, run in found.items() if word in certain or word not in metrics}
    if len(meant) > len(certain):
        runs = _fresh(meant.values(), voice)
        metrics = _metrics_of(runs)
    for word in words:
        if word in meant:
            _refuse_both(word, meant[word], runs if len(runs) > 1 else _newest(ws))
        elif not _fits(word, metrics):
            raise _unknown(ws, word, metrics, runs if meant else [])
    if words and not meant:
        voice.say(f"of {runs[0].id} ({LAST})")
    return as_of_now(Meant(runs, {}, [word for word in words if word not in meant]))


def as_of_now(meant: Meant) -> Meant:
    """The same with the metrics that the history has by now."""
    metrics = _metrics_of(meant.runs)
    wanted = [name for word in meant.patterns for name in _fits(word, metrics)] if meant.patterns else metrics
    return meant._replace(names={run.id: _of_run(run, wanted) for run in meant.runs})


def _run(ws: Workspace, word: str) -> Run | None:
    """The run that `word` means; None when it means none, or more than one."""
    try:
        return ws.run(word)
    except UsageError:
        return None


def _newest(ws: Workspace, *words: str) -> list[Run]:
    newest = ws.runs(limit=1, refresh_within_s=None)
    return newest or [
        desk.find(ws, words[0] if words else LAST)
    ]  # an empty history has words of its own for it


def _fresh(runs: Iterable[Run], voice: Voice) -> list[Run]:
    return [desk.fresh(run, voice) for run in {run.id: run for run in runs}.values()]


def _metrics_of(runs: Iterable[Run]) -> list[str]:
    """Names of all metrics of `runs`, those of the first one first."""
    return list(dict.fromkeys(name for run in runs for name in run.latest()))


def _of_run(run: Run, wanted: Iterable[str]) -> list[str]:
    there = run.latest()
    return [name for name in dict.fromkeys(wanted) if name in there]


def _fits(word: str, metrics: Sequence[str]) -> list[str]:
    """The metrics that `word` names: one, or those that fit the pattern in it."""
    for text in (word, word.removeprefix(_FAMILY)):
        if text in metrics:
            return [text]
    pattern = word.removeprefix(_FAMILY)
    return [name for name in metrics if fnmatchcase(name, pattern)] if _is_pattern(pattern) else []


def _is_pattern(word: str) -> bool:
    return any(char in "*?[" for char in word)


def _refuse_both(word: str, run: Run, others: Sequence[Run]) -> None:
    """A word that is the name of a run and of a metric that could have been meant is not guessed about."""
    if word == run.name and any(word in other.latest() for other in others):
        raise UsageError(
            f"`{printable(word)}` names a run and a metric",
            why=f"the run is {run.id}; the metric may be called `{_FAMILY}{printable(word)}`",
        )


def _unknown(ws: Workspace, word: str, metrics: Sequence[str], runs: Sequence[Run]) -> UsageError:
    """The error for a word that is neither; without a run among the words it may have been meant as one."""
    if _is_pattern(word):
        listed = ", ".join(f"`{printable(name)}`" for name in metrics[:12]) + " ..." * (len(metrics) > 12)
        why = f"known: {listed}" if metrics else "there is no metric yet"
        return UsageError(f"no metric fits `{printable(word)}`", why=why)
    metric = nearest(word, metrics)
    try:
        desk.find(ws, word)
    except UnknownName as no_run:
        if metric and no_run.near and not runs:
            both = UnknownName("run or metric", word, [])
            both.why = f"did you mean the metric `{printable(metric)}` or the run `{printable(no_run.near)}`?"
            return both
        if metric or (runs and not no_run.near):
            return UnknownName("metric", word, metrics)
        return no_run
    except UsageError as several_runs:
        return several_runs
    return UnknownName("metric", word, metrics)
