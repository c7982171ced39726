"""One exit code for each way to end."""

from __future__ import annotations

import pytest

from dray.cli.endings import exit_code
from dray.core.states import ENDED, ReasonKind, RunState

CASES = [
    (RunState.COMPLETED, "done", 0, None, 0),
    (RunState.FAILED, "exit-code", 3, None, 3),
    (RunState.FAILED, "signal", None, 11, 139),
    (RunState.FAILED, "out-of-memory", None, 9, 137),
    (RunState.FAILED, "out-of-memory", None, None, 137),
    (RunState.FAILED, "timeout", None, 15, 124),
    (RunState.FAILED, "cannot-start", None, None, 125),
    (RunState.FAILED, "environment-failed", None, None, 125),
    (RunState.FAILED, "staging-failed", None, None, 125),
    (RunState.FAILED, "image-failed", None, None, 125),
    (RunState.FAILED, "container-failed", None, None, 125),
    (RunState.FAILED, "no-engine", None, None, 125),
    (RunState.FAILED, "engine-elsewhere", None, None, 125),
    (RunState.FAILED, "no-gpu-in-containers", None, None, 125),
    (RunState.FAILED, "gpu-required", None, None, 125),
    (RunState.FAILED, "gpu-not-used", 0, None, 1),
    (RunState.FAILED, "idle", None, 15, 124),
    (RunState.FAILED, "queue-failed", None, None, 1),
    (RunState.FAILED, "not-started", None, None, 125),
    (RunState.FAILED, "runner-killed", None, 9, 137),
    (RunState.FAILED, "guard-killed", None, None, 1),
    (RunState.CANCELED, "cancelled", None, 15, 143),
    (RunState.CANCELED, "cancelled", None, 9, 137),
    (RunState.CANCELED, "cancelled", 0, None, 143),
    (RunState.CANCELED, "cancelled", 7, None, 7),
    (RunState.CANCELED, "cancelled", None, None, 143),
    (RunState.LOST, "host-rebooted", None, None, 1),
    (RunState.LOST, "vanished", None, None, 1),
]


@pytest.mark.parametrize(("state", "kind", "code", "by_signal", "expected"), CASES)
def test_each_way_to_end_has_its_code(
    state: RunState, kind: str, code: int | None, by_signal: int | None, expected: int
) -> None:
    assert exit_code(state, {"kind": kind, "text": "..."}, code, by_signal) == expected


def test_every_reason_has_a_case() -> None:
    assert {kind for _, kind, *_ in CASES} == {str(kind) for kind in ReasonKind}


@pytest.mark.parametrize("state", sorted(ENDED - {RunState.COMPLETED}))
@pytest.mark.parametrize("kind", [*ReasonKind, "a-kind-of-a-newer-dray"])
def test_no_run_that_did_not_complete_ends_with_0(state: RunState, kind: str) -> None:
    assert exit_code(state, {"kind": str(kind)}, 0, None) != 0
    assert exit_code(state, None, None, None) != 0
