"""What the end of a run means for the shell: one exit code for each way to end, and a headline."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from dray.core.durations import show_duration
from dray.core.states import ReasonKind, RunState

if TYPE_CHECKING:
    from dray.workspace import Run

FAILED = 1
LINK_LOST = 75
TIMED_OUT = 124
NOT_STARTED = 125
LEFT = 130
_BY_SIGNAL = 128
_NEVER_STARTED = {
    ReasonKind.CANNOT_START,
    ReasonKind.ENVIRONMENT_FAILED,
    ReasonKind.IMAGE_FAILED,
    ReasonKind.CONTAINER_FAILED,
    ReasonKind.NO_ENGINE,
    ReasonKind.ENGINE_ELSEWHERE,
    ReasonKind.NO_GPU_IN_CONTAINERS,
    ReasonKind.STAGING_FAILED,
    ReasonKind.GPU_REQUIRED,
    ReasonKind.NOT_STARTED,
}


def exit_code(state: RunState, reason: dict[str, Any] | None, code: int | None, by_signal: int | None) -> int:
    """The code with which a command that waited for a run ends; meant for `set -e` and `&&`.

    Never 0 unless the run completed: a canceled script that tidies up and leaves with 0 has not done its work.
    """
    kind = (reason or {}).get("kind")
    if state is RunState.COMPLETED:
        return code or 0
    if state is RunState.CANCELED:
        return code or _BY_SIGNAL + (by_signal or signal.SIGTERM)
    if kind in (ReasonKind.TIMEOUT, ReasonKind.IDLE):
        return TIMED_OUT
    if kind in _NEVER_STARTED:
        return NOT_STARTED
    if by_signal:
        return _BY_SIGNAL + by_signal
    if kind == ReasonKind.OUT_OF_MEMORY:
        return _BY_SIGNAL + signal.SIGKILL
    return code or FAILED


def exit_code_of(run: Run) -> int:
    """The same, of a run that has ended."""
    record = run.record
    return exit_code(RunState(record.status), record.reason, record.exit_code, record.signal)


def headline(run: Run) -> str:
    """failed: exit code 3, after 12s."""
    record = run.record
    text = str((record.reason or {}).get("text") or "")
    said = f": {text}" if text and record.status != RunState.COMPLETED else ""
    after = f" after {show_duration(record.duration_s)}" if record.duration_s is not None else ""
    return f"{record.status}{said}{',' if said and after else ''}{after}"
