"""What can be held, as the driver tells it, and by which variables a program sees it."""

from __future__ import annotations

import os

import pytest

from dray.runner.queue import granted
from dray.runner.queue.granted import Granted
from dray.runner.queue.machine_units import look
from dray.runner.queue.wants import Impossible, Unit, check, of_spec
from tests.gpu.fake import A100, GIB, K80, FakeNvml

A = Unit("GPU-a", "NVIDIA A100", 0, 80 * GIB)
B = Unit("GPU-b", "NVIDIA A100", 1, 80 * GIB)
AMD = Unit("GPU-c", "AMD Instinct MI300X", 2, 192 * GIB, vendor="amd")


def test_parts_of_a_gpu_are_held_by_themselves(driver: FakeNvml) -> None:
    driver.gpu()
    driver.says(
        f"0.mig MIG-p0 {10 * GIB} 0 NVIDIA A100 MIG 1g.10gb",
        f"0.mig MIG-p1 {20 * GIB} 0 NVIDIA A100 MIG 2g.20gb",
    )
    driver.k80()
    units = look().units

    assert [(unit.label, unit.uuid) for unit in units] == [("0/0", "MIG-p0"), ("0/1", "MIG-p1"), ("1", K80)]
    assert of_spec({"gpus": {"ids": ["0/1"]}}, units).ids == ("MIG-p1",)
    held = granted.of(("MIG-p1",), units, {"gpus": {"count": 1, "numbers": True}})
    assert held.variables({})["CUDA_VISIBLE_DEVICES"] == "MIG-p1"  # a part has no number that CUDA knows


def test_a_lost_gpu_is_nobodys_and_says_why(driver: FakeNvml) -> None:
    driver.gpu()
    driver.k80()
    driver.says("0.error * 15")
    units = look().units

    assert [unit.trouble is None for unit in units] == [False, True]
    for asked in ({"count": 2}, {"ids": ["0"]}):
        with pytest.raises(Impossible, match="lost|the machine has"):
            check(of_spec({"gpus": asked}, units), units, 8)
    assert of_spec({"gpus": {"count": None}}, units).gpus == 1


def test_who_draws_is_in_nobodys_way_and_who_computes_is(driver: FakeNvml) -> None:
    driver.gpu()
    driver.says(f"0.graphics {os.getpid()} {GIB}")
    assert look().units[0].users == ()
    driver.used(0, os.getpid(), 10)
    assert look().units[0].users == ((os.getpid(), os.getuid()),)


def test_how_busy_a_gpu_is_is_asked_only_when_somebody_wants_to_know(driver: FakeNvml) -> None:
    driver.gpu(util="37")
    assert (look().units[0].busy, look(busy=True).units[0].busy) == (None, 37)
    assert look().units[0].uuid == A100


def test_amd_s_variables_name_what_is_held_and_then_count_from_zero() -> None:
    assert Granted((AMD,), (A,)).variables({}) == {
        "ROCR_VISIBLE_DEVICES": "GPU-c",
        "HIP_VISIBLE_DEVICES": "0",
        "CUDA_VISIBLE_DEVICES": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_nothing_is_hidden_where_nothing_was_said_and_nothing_is_there() -> None:
    for spec, units, hides in (
        ({}, (A,), False),
        ({"gpus": {"count": 0, "default": "gpu1"}}, (), False),
        ({"gpus": {"count": 0, "default": "gpu1"}}, (A,), True),
        ({"gpus": {"count": 0}}, (), True),
    ):
        said = granted.of((), units, spec).variables({})
        assert (said.get("CUDA_VISIBLE_DEVICES") == "-1") is hides


def test_a_users_own_variable_only_takes_away() -> None:
    held = Granted((A,), (B,))
    for own, seen in (
        ("", None),
        ("-1", None),
        ("0", None),
        ("GPU-a", None),
        ("7", None),
        ("1", "GPU-a"),
        ("0,1", "GPU-a"),
    ):
        assert held.variables({"CUDA_VISIBLE_DEVICES": own}).get("CUDA_VISIBLE_DEVICES") == seen
    assert (
        Granted((), (A, B), hides=True).variables({"CUDA_VISIBLE_DEVICES": "0"})["CUDA_VISIBLE_DEVICES"]
        == "-1"
    )
