"""Opens the workspace for a command, and looks a run up as fresh as can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dray.cli.facts import count_of
from dray.cli.options import LAST
from dray.cli.progress import Activity
from dray.cli.times import ago
from dray.cli.voice import Voice
from dray.core.errors import DrayError, UnknownName

if TYPE_CHECKING:
    from dray.hosts import Answers, Question
    from dray.workspace import Run, Workspace


FEW = 3


def _answer(question: Question) -> str | None:
    """For commands that do not expect to be asked anything, and may be all the same."""
    from dray.cli.answers import Person

    return Person()(question)


@contextmanager
def workspace() -> Iterator[Workspace]:
    """The user's workspace, closed at the end."""
    # Here and not at the top: `dray submit --help` needs no history.
    from dray.workspace import Workspace

    opened = Workspace()
    opened.answers = _answer
    try:
        yield opened
    finally:
        opened.close()


def person(activity: Activity) -> Answers:
    """Who is asked what a login wants to know; nothing is drawn meanwhile."""
    from dray.cli.answers import Person

    asked = Person()

    def answer(question: Question) -> str | None:
        activity.rest()
        return asked(question)

    return answer


def accepting(otherwise: Answers) -> Answers:
    """Trusts a host key that was never seen; everything else goes on to `otherwise`."""

    def answer(question: Question) -> str | None:
        return "yes" if question.kind == "host-key" else otherwise(question)

    return answer


def find(ws: Workspace, word: str) -> Run:
    """The run that `word` means."""
    try:
        return ws.run(word)
    except UnknownName as error:
        newest = ws.runs(limit=FEW, refresh_within_s=None)
        error.hint = "dray runs" if newest else "dray submit train.py"
        if newest and word.startswith("@"):
            count = count_of(len(ws.runs(refresh_within_s=None)), "run")
            error.why = f"the history has {count}, and {LAST} is the newest"
        elif newest and not error.near:
            error.why = f"the newest are {', '.join(f'`{run.name or run.id}`' for run in newest)}"
        raise


def find_or_last(ws: Workspace, word: str, has: Callable[[Run], bool], voice: Voice) -> tuple[Run, bool]:
    """The run that `word` means. When it means none, but something that the newest one `has`: that one, and True."""
    try:
        return find(ws, word), False
    except UnknownName:
        newest = ws.runs(limit=1, refresh_within_s=None)
        if not newest or not has(newest[0]):
            raise
    voice.say(f"of {newest[0].id} ({LAST})")
    return newest[0], True


def fresh(run: Run, voice: Voice) -> Run:
    """Ask the machine for what is new. A machine that does not answer is a remark, not an error."""
    try:
        with Activity(voice) as activity:
            activity.begin(f"asking {run.record.compute}")
            run.refresh()
    except DrayError as error:
        voice.warn(error.what, f"this is what was known {ago(run.record.as_of)}")
        return run
    if run.record.unreachable:
        voice.warn(
            f"`{run.record.compute}` could not be asked", f"this is what was known {ago(run.record.as_of)}"
        )
    return run
