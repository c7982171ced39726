"""The states of a run and the reasons for its end.

created -> staging -> preparing -> queued -> running -> finalizing -> completed | failed | canceled | lost
Any active state may go to any ended one. An ended state never changes.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands. `created` and `staging` are the client's words, the rest the machine's."""

    CREATED = "created"
    STAGING = "staging"
    PREPARING = "preparing"
    QUEUED = "queued"
    RUNNING = "running"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    LOST = "lost"

    @property
    def is_ended(self) -> bool:
        """Nothing will happen to the run any more."""
        return self in ENDED


ENDED = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELED, RunState.LOST})
ACTIVE = frozenset(RunState) - ENDED


class ReasonKind(StrEnum):
    """Why a run ended. docs/design.md, "The end", says what each means."""

    DONE = "done"
    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out-of-memory"
    TIMEOUT = "timeout"
    CANNOT_START = "cannot-start"
    ENVIRONMENT_FAILED = "environment-failed"
    IMAGE_FAILED = "image-failed"
    CONTAINER_FAILED = "container-failed"
    NO_ENGINE = "no-engine"
    ENGINE_ELSEWHERE = "engine-elsewhere"
    NO_GPU_IN_CONTAINERS = "no-gpu-in-containers"
    STAGING_FAILED = "staging-failed"
    GPU_REQUIRED = "gpu-required"
    GPU_NOT_USED = "gpu-not-used"
    IDLE = "idle"
    NOT_STARTED = "not-started"
    RUNNER_KILLED = "runner-killed"
    GUARD_KILLED = "guard-killed"
    QUEUE_FAILED = "queue-failed"
    CANCELLED = "cancelled"
    HOST_REBOOTED = "host-rebooted"
    VANISHED = "vanished"
