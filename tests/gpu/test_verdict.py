"""The verdict as a function: facts and telemetry in, one word and its reason out. Users.md calls these the seeded cases."""

from __future__ import annotations

from typing import Any

import pytest

from dray.gpu.verdict import of_run
from dray.runner.gpu.verdict import Seen, covered, judge

A100 = {
    "index": 0,
    "uuid": "GPU-a",
    "name": "NVIDIA A100",
    "compute_capability": "8.0",
    "memory_total": 80 << 30,
}
K80 = {
    "index": 0,
    "uuid": "GPU-k",
    "name": "Tesla K80",
    "compute_capability": "3.7",
    "memory_total": 11 << 30,
}
QUIET: dict[str, Any] = {"gpu": "GPU-a", "own_s": 0.0, "context": False, "first_use_s": None}
CUDA = {"name": "torch", "version": "2.9.0+cu128", "cuda": "12.8"}
CPU = {"name": "torch", "version": "2.9.0+cpu", "cuda": None}


def _machine(*devices: dict[str, Any], **facts: Any) -> dict[str, Any]:
    known = {"driver": "570.86.15", "cuda": "12.8", "why": None, "has_hardware": bool(devices)}
    return {**known, "devices": list(devices), **facts}


def _verdict(*frameworks: dict[str, Any], **facts: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "machine": _machine(A100),
        "requested": 1,
        "held": None,
        "hidden_by": None,
        "frameworks": list(frameworks),
        "usage": {"gpus": [QUIET]},
        "trouble": None,
        "duration_s": 3600.0,
    }
    return judge(Seen(**{**known, **facts}))


_USED = {
    **QUIET,
    "own_s": 1800.0,
    "context": True,
    "first_use_s": 2.0,
    "mean_share": 50.0,
    "peak_share": 99.0,
    "peak_memory": 7,
}
_OPENED = {**QUIET, "context": True}
_EMPTY = "CUDA_VISIBLE_DEVICES is empty"


@pytest.mark.parametrize(
    ("expected", "frameworks", "facts"),
    [
        ("USED", [CUDA], {"usage": {"gpus": [_USED]}}),
        ("USED", [], {"usage": {"gpus": [{**_OPENED, "own_s": None, "accounted": 3}]}}),
        ("VISIBLE-NOT-USED", [CUDA], {"usage": {"gpus": [_OPENED]}}),
        ("VISIBLE-NOT-USED", [], {}),
        ("CPU-BUILD", [CPU], {}),
        ("DRIVER-TOO-OLD", [CUDA], {"machine": _machine(A100, cuda="11.4", driver="470.42.01")}),
        ("NOT-VISIBLE", [CUDA], {"held": [], "hidden_by": _EMPTY}),
        ("NOT-VISIBLE", [CPU], {"held": [], "hidden_by": _EMPTY}),
        ("NOT-VISIBLE", [], {"machine": _machine(why="the NVIDIA driver is not loaded", has_hardware=True)}),
        ("NOT-VISIBLE", [], {"machine": _machine({**A100, "trouble": "the GPU has fallen off the bus"})}),
        ("ARCH-UNSUPPORTED", [CUDA], {"machine": _machine(K80), "usage": {"gpus": [_OPENED]}}),
        ("ARCH-UNSUPPORTED", [{**CUDA, "archs": ["sm_90", "compute_90"]}], {}),
        ("NO-GPU", [CUDA], {"machine": _machine(why="there is no NVIDIA driver on this machine")}),
        ("NOT-REQUESTED", [CUDA], {"requested": 0, "held": []}),
        ("NOT-MEASURABLE", [CUDA], {"usage": None, "trouble": "the driver did not answer in time"}),
        ("NOT-MEASURABLE", [], {"machine": None, "usage": None}),
        ("NOT-MEASURABLE", [CUDA], {"usage": {"gpus": [{**_OPENED, "own_s": None}]}}),
        ("NOT-MEASURABLE", [], {"usage": {"gpus": [{**QUIET, "unseen": True}]}}),
        ("NOT-MEASURABLE", [], {"machine": _machine({**A100, "vendor": "amd"})}),
    ],
)
def test_each_case_has_its_word(
    expected: str, frameworks: list[dict[str, Any]], facts: dict[str, Any]
) -> None:
    found = _verdict(*frameworks, **facts)

    assert found["verdict"] == expected
    assert (found["reason"] is None) == (expected == "USED")


def test_a_driver_runs_all_builds_of_its_major_version() -> None:
    newer_minor = {**CUDA, "cuda": "12.9"}

    found = _verdict(newer_minor, machine=_machine(A100, cuda="12.2"))

    assert found["verdict"] == "VISIBLE-NOT-USED"


def test_one_build_that_can_use_the_gpu_is_enough() -> None:
    jax_cpu = {"name": "jax", "version": "0.4", "cuda": None}

    assert _verdict(CPU, jax_cpu)["verdict"] == "CPU-BUILD"
    assert _verdict(CUDA, jax_cpu)["verdict"] == "VISIBLE-NOT-USED"


def test_the_reason_names_what_is_wrong_with_versions() -> None:
    found = _verdict(CUDA, machine=_machine(A100, cuda="11.4", driver="470.42.01"))

    assert (
        found["reason"]
        == "torch 2.9.0+cu128 was built with CUDA 12.8, and driver 470.42.01 runs CUDA up to 11.4"
    )


@pytest.mark.parametrize(
    ("archs", "capability", "fits"),
    [
        (["sm_80"], (8, 0), True),
        (["sm_80"], (8, 6), True),
        (["sm_86"], (8, 0), False),
        (["sm_80"], (9, 0), False),
        (["compute_80"], (12, 0), True),
        (["sm_90a"], (9, 0), True),
        (["sm_120"], (12, 0), True),
        (["nonsense", "sm_", ""], (8, 0), False),
    ],
)
def test_code_runs_on_newer_gpus_of_its_major_version(
    archs: list[str], capability: tuple[int, int], fits: bool
) -> None:
    assert covered(archs, capability) is fits


def test_held_and_used_hours_are_told_apart() -> None:
    found = _verdict(usage={"gpus": [_USED]})

    assert (found["held_gpu_h"], found["used_gpu_h"]) == (1.0, 0.5)
    assert (found["mean_utilisation"], found["peak_utilisation"], found["peak_memory"]) == (50.0, 99.0, 7)


def test_what_is_not_measurable_is_never_a_number() -> None:
    found = _verdict(usage={"gpus": [{**_OPENED, "own_s": None}]})

    assert [
        found[name] for name in ("used_gpu_h", "peak_memory", "mean_utilisation", "energy_j", "first_use_s")
    ] == [None] * 5


def test_a_run_whose_runner_was_killed_is_judged_by_its_samples() -> None:
    end = {"state": "failed", "started": 1.0}
    machine = {"driver": "570", "cuda": "12.8", "devices": [A100]}

    def told(*rows: dict[str, Any]) -> Any:
        return of_run(end, machine, [{"gpus": [row]} for row in rows], "gpu1")

    assert told({"own_util_max": 40.0, "own_memory": 9}).verdict == "USED"
    assert told({"own_util_max": 0.0}, {"own_util_max": None}).verdict == "NOT-MEASURABLE"
    assert told({"own_util_max": "much", "own_memory": []}).verdict == "NOT-MEASURABLE"


def test_a_run_of_an_older_version_has_no_verdict() -> None:
    assert of_run({"state": "completed", "started": 1.0}, None) is None
    assert of_run(None, None) is None
