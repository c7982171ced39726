"""Follows one run for the commands `submit` and `follow`: its bytes, its states, its end.

Read `watch()`. It returns an exit code; leaving with Ctrl-C or losing the link is told here, because the run goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from dray.cli import endings, summary
from dray.cli.documents import write_json
from dray.cli.progress import Activity
from dray.cli.spout import Spout
from dray.cli.voice import Voice, pass_echo
from dray.core.errors import DrayError, UsageError, printable
from dray.core.states import RunState
from dray.workspace import Output, Progress, Said, StateChanged

if TYPE_CHECKING:
    from dray.workspace import Run

SCRIPT, ENVIRONMENT, IMAGE = "log.script", "log.environment", "log.image"
_WORTH_SAYING = {RunState.PREPARING, RunState.QUEUED, RunState.RUNNING}
_WAITING = {
    RunState.CREATED: "waiting for the machine",
    RunState.STAGING: "sending the code",
    RunState.PREPARING: "preparing the code and the environment",
    RunState.QUEUED: "waiting for a free place",
    RunState.FINALIZING: "collecting outputs",
}


def to_the_end(run: Run, voice: Voice, *, wants_json: bool) -> int:
    """Follow `run` with its log on stdout, or with one document there and the log on stderr; the exit code."""
    code = watch(run, voice, Spout(2 if wants_json else 1))
    if wants_json:
        write_json(run.to_json())
    return code


def watch(run: Run, voice: Voice, spout: Spout, *, may_close: bool = True) -> int:
    """Show `run` until it ends and sum it up, unless the caller does; the exit code."""
    try:
        with Activity(voice) as activity:
            told = _show_events(run, voice, spout, activity)
    except KeyboardInterrupt:
        spout.settle()
        pass_echo()
        voice.say(f"left; {run.id} goes on", *_way_back(run))
        return endings.LEFT
    except BrokenPipeError:
        voice.say(f"nobody reads the output any more; {run.id} goes on", *_way_back(run))
        raise
    except DrayError as error:
        if run.ended or isinstance(error, UsageError):
            raise
        from dray.cli.trouble import say_error

        # Whatever kept us from seeing more, the run itself is not touched by it.
        spout.settle()
        say_error(error)
        voice.say(f"{run.id} goes on", *_way_back(run))
        return endings.LINK_LOST if error.exit_code == endings.FAILED else error.exit_code
    spout.settle()
    if may_close:
        summary.close(run, voice, told)
    return endings.exit_code_of(run)


def _show_events(run: Run, voice: Voice, spout: Spout, activity: Activity) -> list[str]:
    """Draw events up to the last; what the machine had to say."""
    told = []
    aside = None if voice.quiet else Spout(2)
    is_over, waiting = run.ended, ""
    queue: Mapping[str, Any] = {}
    # Closing the generator is leaving: it must happen now, not when memory is tidied up.
    with closing(run.follow(streams=(SCRIPT, ENVIRONMENT, IMAGE))) as events:  # type: ignore[type-var] # a generator
        for event in events:
            if isinstance(event, Output):
                if event.stream == SCRIPT:
                    activity.rest()
                    spout.write(event.data)
                # Of an environment it is shown how far it is; its whole log can be had at any time.
                elif aside is not None and (voice.verbose or event.stream != ENVIRONMENT):
                    activity.rest()
                    aside.write(event.data)
                    if event.data.endswith(b"\n"):  # a build may be silent for long after a line
                        _wait(activity, waiting)
            elif isinstance(event, StateChanged):
                if is_over:  # what it went through is history, and no news
                    continue
                activity.rest()
                if event.state is RunState.QUEUED and event.more.get("place"):
                    waiting = _queued(event.more, voice, spout, queue)
                    queue = event.more
                else:
                    if event.state in _WORTH_SAYING or voice.verbose:
                        spout.settle()
                        voice.say(str(event.state), state=event.state)
                    waiting = _WAITING.get(event.state, "")
                _wait(activity, waiting)
            elif isinstance(event, Progress):
                if not is_over:
                    activity.hear(event)
            elif isinstance(event, Said):
                activity.rest()
                spout.settle()
                voice.say(event.text)
                told.append(printable(event.text))
                _wait(activity, waiting)
    return told


def _queued(now: Mapping[str, Any], voice: Voice, spout: Spout, before: Mapping[str, Any]) -> str:
    """Tell what a run waits for, once, and then what is new of it; returns what is shown meanwhile."""
    from dray.cli.queueing import holders_text, place_text, waiting_for

    place, holders = place_text(now), holders_text(now)
    spout.settle()
    if not before:
        voice.say(
            f"queued: {waiting_for(now)}", *([f"{place}; {holders}"] if holders else [place]), state="queued"
        )
    elif not voice.on_terminal and now["place"] != before["place"]:
        voice.say(f"queued: {place}", *([holders] if holders else []), state="queued")
    elif voice.on_terminal and holders != holders_text(before):
        voice.say(f"{place}; {holders}" if holders else place)
    return f"{waiting_for(now)}, {place}"


def _wait(activity: Activity, what: str) -> None:
    if what:
        activity.begin(what)


def _way_back(run: Run) -> tuple[str, str]:
    return f"return: dray follow {run.id}", f"stop:   dray cancel {run.id}"
