"""The end of a run, as a document: which state, which reason, in words a person understands."""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import Any

from . import results
from .folder import RunFolder


class Story:
    """What was seen of one step's process: when it began, how it ended."""

    def __init__(self, step: str = "", ooms: int = 0) -> None:
        """Begins now; `ooms` is how often memory ran out on this machine so far."""
        self.step = step
        self.started = time.time()
        self.ended: float | None = None
        self.duration_s: float | None = None
        self.code: int | None = None
        self.signal: int | None = None
        self.errno: int | None = None
        self.oom = False
        self.more: dict[str, Any] = {}
        """What only a keeper knows: containers/keeper.py."""
        self._ooms = ooms
        self._clock = time.monotonic()

    def cannot(self, number: int) -> None:
        """The program could not be executed."""
        self.errno = number

    def ended_with(self, status: int, ooms: int) -> None:
        """`status` is what waitpid gave, `ooms` how often memory ran out on this machine by now."""
        self.ended = time.time()
        self.duration_s = round(time.monotonic() - self._clock, 3)
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
            self.oom = self.signal == signal.SIGKILL and ooms > self._ooms
        else:
            self.code = os.WEXITSTATUS(status)

    def kept(self, told: dict[str, Any] | None) -> None:
        """Its keeper has ended after it told this; None: it was killed before it could tell anything."""
        self.code, self.signal, self.oom = None, None, False
        if told is None:
            self.signal, self.more = int(signal.SIGKILL), {"unkept": True}
            return
        self.code, self.signal = told.get("code"), told.get("signal")
        self.oom = bool(told.get("oom"))
        self.more = {k: told[k] for k in ("refused", "missing", "gone", "limit") if told.get(k)}

    @property
    def is_over(self) -> bool:
        """The step's process has ended, or never was."""
        return self.ended is not None or self.errno is not None

    def exit(self) -> dict[str, Any]:
        """For a report."""
        return {
            "code": self.code,
            "signal": self.signal,
            "oom": self.oom,
            "started": None if "refused" in self.more or "missing" in self.more else self.started,
            "ended": self.ended,
            "duration_s": self.duration_s,
            **self.more,
        }


def reason(kind: str, text: str, **more: Any) -> dict[str, Any]:
    """A reason: its kind, a sentence, and facts."""
    return dict({"kind": kind, "text": text}, **more)


def document(
    state: str, why: dict[str, Any], seen: dict[str, Any] | None = None, by: str = "runner", **more: Any
) -> dict[str, Any]:
    """The whole end.json."""
    seen = seen or {}
    return dict(
        {
            "v": 1,
            "state": state,
            "reason": why,
            "code": seen.get("code"),
            "signal": seen.get("signal"),
            "started": seen.get("started"),
            "ended": seen.get("ended") or time.time(),
            "duration_s": seen.get("duration_s"),
            "by": by,
        },
        **more,
    )


def by_exit(seen: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """State and reason when nothing but the script itself decided."""
    kept = by_keeper(seen)
    if kept:
        return kept
    if seen.get("signal"):
        name = signal_name(seen["signal"])
        if seen.get("oom"):
            text = "out of memory: the kernel ended the script (%s)" % name
            return "failed", reason("out-of-memory", text, signal=seen["signal"])
        return "failed", reason("signal", "ended by %s" % name, signal=seen["signal"])
    if seen.get("code"):
        return "failed", reason("exit-code", "exit code %d" % seen["code"], code=seen["code"])
    return "completed", reason("done", "exit code 0")


def by_keeper(seen: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """What is to be said of a container alone; None when it ended as any script does."""
    if seen.get("missing"):
        text = "`%s` was not found in the image" % seen["missing"]
        return "failed", reason("cannot-start", text, errno=errno.ENOENT)
    if seen.get("refused"):
        return "failed", reason(
            "container-failed", "the container could not be started: %s" % seen["refused"]
        )
    if seen.get("gone"):
        text = "the container was removed, and nobody saw how the script ended"
        return "lost", reason("vanished", text)
    if seen.get("unkept"):
        text = "dray's keeper of the container was killed, and the container with it"
        return "failed", reason("guard-killed", text)
    if seen.get("oom"):
        limit = seen.get("limit")
        more = "the container's limit is %d MB" % (limit // 1000000) if limit else "the machine has no more"
        text = "out of memory: the kernel ended a process of the container (%s)" % more
        return "failed", reason("out-of-memory", text, signal=seen.get("signal"))
    return None


def cancelled(asked: dict[str, Any]) -> dict[str, Any]:
    """The reason when somebody asked for the end."""
    who = str(asked.get("by") or "somebody")
    return reason("cancelled", "cancelled by %s" % who, by=who)


def signal_name(number: int) -> str:
    """SIGKILL rather than 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def without_runner(story: Story, folder: RunFolder, number: int) -> dict[str, Any]:
    """The end that the guard writes, because the runner is dead."""
    if story.step != "script":
        text = "the runner was killed before the script was started"
        return document("failed", reason("not-started", text), by="guard")
    if story.errno is not None:
        text = "the command cannot be executed: %s" % os.strerror(story.errno)
        return document("failed", reason("cannot-start", text, errno=story.errno), by="guard")
    found = results.survey(folder)
    if story.ended is None:
        text = "dray's runner was killed; its guard ended the script"
        seen = {"started": story.started}
        return document("failed", reason("runner-killed", text), seen, by="guard", **found)
    from .files import read_json

    asked = read_json(folder.cancel_file)
    state, why = by_exit(story.exit())
    if asked and story.signal:
        state, why = "canceled", cancelled(asked)
    return document(state, why, story.exit(), by="guard", **found)
