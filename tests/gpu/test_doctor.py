"""What `dray doctor` finds about GPUs: broken machines by their facts, and a real call through the driver's stand-in."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from dray.runner.gpu.asking import within
from dray.workspace.finding import Finding
from dray.workspace.gpu_findings import findings
from tests.gpu.fake import GIB, FakeNvml
from tests.gpu.machines import Machine

A100: dict[str, Any] = {
    "index": 0,
    "uuid": "GPU-a",
    "name": "NVIDIA A100",
    "compute_capability": "8.0",
    "memory_total": 80 * GIB,
    "memory_free": 79 * GIB + GIB // 2,
    "mig": None,
    "processes": [],
    "persistence": True,
    "ecc": [0, 0],
    "slowed": 0,
}


def _find(
    *devices: dict[str, Any], why: str | None = None, code: int | None = None, **facts: Any
) -> list[Finding]:
    gpus = {"driver": "570.86.15", "cuda": "12.8", "devices": list(devices), "why": why, "code": code}
    gpus["has_hardware"] = bool(devices) or facts.pop("has_hardware", False)
    known = {
        "gpus": gpus,
        "user": "ana",
        "files": [],
        "modules": ["nvidia"],
        "cards": len(devices),
        "libcuda": True,
    }
    return findings("gpu1", {**known, **facts})


def _worst(found: list[Finding]) -> Finding:
    return next(f for level in ("bad", "warn", "ok") for f in found if f.level == level)


def test_a_healthy_gpu_is_told_with_its_facts() -> None:
    found = _find(A100)

    assert {finding.level for finding in found} == {"ok"}
    assert any("name: NVIDIA A100" in finding.detail for finding in found)
    assert any("570.86.15, runs CUDA up to 12.8" in finding.detail for finding in found)


_SHUT = {"path": "/dev/nvidia0", "open": False, "mode": "crw-rw----", "group": "video"}


@pytest.mark.parametrize(
    ("facts", "evidence", "hint"),
    [
        ({"why": "no driver", "code": 12, "has_hardware": True}, "no driver", "ubuntu-drivers install"),
        (
            {"why": "not loaded", "code": 9, "has_hardware": True, "modules": []},
            "not loaded",
            "sudo modprobe nvidia",
        ),
        (
            {"why": "not loaded", "code": 9, "has_hardware": True, "modules": ["nouveau"]},
            "nouveau",
            "blacklist nouveau",
        ),
        ({"why": "mismatch", "code": 18, "has_hardware": True, "kernel": "535.54"}, "535.54", "sudo reboot"),
        (
            {"why": "shut", "code": 4, "has_hardware": True, "files": [_SHUT]},
            "/dev/nvidia0 crw-rw---- video",
            "usermod -aG video ana",
        ),
        (
            {"why": "no driver", "code": 12, "has_hardware": True, "container": True},
            "no driver",
            "--gpus all",
        ),
    ],
)
def test_a_driver_that_cannot_be_used_is_mended(facts: dict[str, Any], evidence: str, hint: str) -> None:
    (finding,) = _find(**facts)

    assert finding.level == "bad"
    assert evidence in finding.detail
    assert hint in str(finding.hint)


def test_a_machine_without_gpus_is_well() -> None:
    (finding,) = _find(why="there is no NVIDIA driver on this machine", code=12)

    assert (finding.level, finding.hint) == ("ok", None)


@pytest.mark.parametrize(
    ("device", "facts", "evidence", "hint"),
    [
        ({"trouble": "the GPU has fallen off the bus"}, {}, "fallen off", "--gpu-reset -i 0"),
        ({"ecc": [3, 2]}, {}, "2 uncorrected memory errors", "ROW_REMAPPER"),
        ({"persistence": False}, {}, "persistence is off", "nvidia-smi -pm 1"),
        ({"mig": []}, {}, "no part was made", "mig -lgip"),
        ({"slowed": 0x40, "temperature": 96}, {}, "at 96 C", "TEMPERATURE"),
        ({"memory_free": 40 * GIB}, {}, "by nobody who can be seen", "fuser -v /dev/nvidia0"),
        (
            {"processes": [{"pid": 77, "user": "eva", "memory": GIB}], "memory_free": GIB},
            {},
            "eva (pid 77",
            "ps -o",
        ),
        ({}, {"cards": 2}, "2 cards on the bus, and the driver has 1", "xid"),
        ({}, {"libcuda": False}, "libcuda.so.1 is not found", "libnvidia-compute"),
        ({}, {"files": [{**_SHUT, "open": True}]}, "/dev/nvidia-uvm is missing", "nvidia-modprobe"),
    ],
)
def test_a_sick_gpu_is_named_with_what_mends_it(
    device: dict[str, Any], facts: dict[str, Any], evidence: str, hint: str
) -> None:
    finding = _worst(_find({**A100, **device}, **facts))

    assert finding.level in ("bad", "warn")
    assert evidence in finding.detail
    assert hint in str(finding.hint)


@pytest.mark.parametrize(
    ("framework", "level", "evidence"),
    [
        ({"name": "torch", "version": "2.9.0+cpu", "cuda": None}, "warn", "was built without CUDA"),
        ({"name": "torch", "version": "2.11.0", "cuda": "13.0"}, "bad", "needs driver 580"),
        ({"name": "torch", "version": "2.9.0", "cuda": "12.8"}, "ok", "built with CUDA 12.8"),
        (
            {"name": "torch", "version": "2.9.0", "cuda": "12.8", "archs": ["sm_90"]},
            "bad",
            "has no code for NVIDIA A100",
        ),
        ({"name": "jax", "version": "0.7", "cuda": "?"}, "ok", "built with CUDA"),
    ],
)
def test_the_builds_that_runs_would_meet_are_judged(
    framework: dict[str, Any], level: str, evidence: str
) -> None:
    found = _find(A100, python={"path": "/usr/bin/python3", "frameworks": [framework]})

    finding = next(f for f in found if f.what == f"{framework['name']} of gpu1")
    assert finding.level == level
    assert evidence in finding.detail


def test_a_clock_that_is_off_is_told() -> None:
    assert "42.0 s behind" in findings("gpu1", {}, -42.0)[0].detail
    assert not any(finding.what.startswith("clock") for finding in findings("gpu1", {}, 0.3))


def test_nonsense_for_an_answer_is_survived() -> None:
    assert findings("gpu1", {"gpus": 7, "files": None, "python": []})


def test_a_question_that_hangs_or_crashes_is_given_up() -> None:
    begun = time.monotonic()

    def hang() -> dict[str, Any]:
        time.sleep(60)
        return {}

    def crash() -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    assert within(0.5, hang) is None
    assert within(5, crash) is None
    assert within(5, lambda: {"a": 1}) == {"a": 1}
    assert time.monotonic() - begun < 10


def test_doctor_asks_the_driver_of_one_compute(world: Machine, driver: FakeNvml) -> None:
    driver.gpu(ecc="0 5")
    driver.gpu("GPU-lost")
    driver.says("1.error * 15")

    said = world.dray("doctor", "-c", "local")
    unknown = world.dray("doctor", "-c", "locla")

    assert said.code == 1
    text = said.out.decode()
    assert "570.86.15, runs CUDA up to 12.8" in text
    assert "5 uncorrected memory errors" in text
    assert "fallen off the bus" in text
    assert "dray's Python" not in text
    assert unknown.code == 2 and "dray doctor -c local" in unknown.err


def test_doctor_gives_up_on_a_driver_that_hangs(world: Machine, driver: FakeNvml) -> None:
    driver.gpu()
    driver.says("hang nvmlDeviceGetCount_v2 300")

    said = world.dray("doctor", "-c", "local", env={"DRAY_TEST": "1"}, timeout=60)

    assert "the driver did not answer" in said.out.decode()
