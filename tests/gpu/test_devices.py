"""GPUs as the driver tells of them, and as it does not."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from dray.runner.gpu.devices import devices
from dray.runner.gpu.nvml import Nvml, NvmlError
from tests.gpu.fake import A100, GIB, K80, FakeNvml


def test_each_gpu_is_told_with_the_five_facts_of_old(driver: FakeNvml) -> None:
    driver.gpu()
    driver.k80()

    seen = devices()

    assert [device.uuid for device in seen.devices] == [A100, K80]
    old = seen.devices[1]
    assert (old.index, old.name, old.compute_capability, old.clock) == (1, "Tesla K80", (3, 7), 823)
    assert old.pci_bus_id == "06c3:00:00.0"
    assert (old.memory_total, old.memory_free) == (int(11.17 * GIB), int(11.17 * GIB) - int(0.06 * GIB))
    assert (seen.why, seen.driver, seen.cuda) == (None, "570.86.15", (12, 8))


def test_who_is_on_a_gpu_is_told_with_its_owner(driver: FakeNvml) -> None:
    driver.gpu()
    with subprocess.Popen(["sleep", "30"]) as somebody:
        driver.says(f"0.process {somebody.pid} {3 * GIB}", "0.graphics 999999 -1")
        on_it = {process.pid: process for process in devices().devices[0].processes}
        somebody.kill()

    assert on_it[somebody.pid] == (somebody.pid, os.getuid(), 3 * GIB, "compute")
    assert on_it[999999] == (999999, None, None, "graphics")


def test_a_gpu_that_is_cut_up_tells_its_parts(driver: FakeNvml) -> None:
    driver.gpu()
    driver.says(
        f"0.mig MIG-1 {10 * GIB} {GIB} NVIDIA A100 MIG 1g.10gb",
        f"0.mig MIG-2 {20 * GIB} 0 NVIDIA A100 MIG 2g.20gb",
    )
    driver.gpu("GPU-whole")
    driver.gpu("GPU-empty", mig_mode="1")

    cut, whole, empty = devices().devices

    assert [(part.uuid, part.name, part.memory_free) for part in cut.mig or ()] == [
        ("MIG-1", "NVIDIA A100 MIG 1g.10gb", 9 * GIB),
        ("MIG-2", "NVIDIA A100 MIG 2g.20gb", 20 * GIB),
    ]
    assert whole.mig is None
    assert empty.mig == ()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (9, "the NVIDIA driver is not loaded"),
        (4, "permission denied"),
        (18, "the driver's kernel module and its library have different versions"),
        (13, "the driver is too old for this question"),
        (12345, "the driver's error 12345"),
    ],
)
def test_a_driver_that_does_not_work_says_why(driver: FakeNvml, code: int, says: str) -> None:
    driver.gpu()
    driver.says(f"init {code}")

    seen = devices()

    assert seen.devices == ()
    assert (seen.why, seen.code) == (says, code)


def test_a_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.runner.gpu.nvml.LIBRARY", "libnvidia-ml-of-nobody.so.1")

    seen = devices()

    assert seen.devices == ()
    assert "driver" in str(seen.why)


def test_a_lost_gpu_hides_no_other(driver: FakeNvml) -> None:
    driver.gpu("GPU-lost")
    driver.gpu("GPU-well")
    driver.says("0.error nvmlDeviceGetMemoryInfo_v2 15", "0.error nvmlDeviceGetMemoryInfo 15")
    driver.gpu("GPU-gone")
    driver.says("2.error * 15")

    lost, well, gone = devices().devices

    assert (lost.uuid, lost.trouble) == ("GPU-lost", "the GPU has fallen off the bus or is otherwise lost")
    assert (well.uuid, well.trouble) == ("GPU-well", None)
    assert (gone.uuid, gone.trouble) == ("", "the GPU has fallen off the bus or is otherwise lost")


def test_an_older_library_is_asked_in_its_own_words(driver: FakeNvml) -> None:
    driver.gpu()
    driver.says("0.process 77 4096", "missing nvmlDeviceGetMemoryInfo_v2")
    driver.says("missing nvmlDeviceGetComputeRunningProcesses_v3")

    device = devices().devices[0]

    assert (device.memory_total, device.memory_free) == (80 * GIB, 80 * GIB - GIB // 2)
    assert [(process.pid, process.memory) for process in device.processes] == [(77, 4096)]


def test_a_fact_that_the_driver_does_not_give_is_none_and_never_a_number(driver: FakeNvml) -> None:
    driver.gpu(capability="", max_clock="", memory="")

    device = devices().devices[0]

    assert (device.compute_capability, device.clock, device.memory_total, device.trouble) == (
        None,
        None,
        None,
        None,
    )


def test_shares_are_those_since_the_last_look_and_nonsense_is_left_out(driver: FakeNvml) -> None:
    driver.gpu()
    library = Nvml()
    handle = library.device(0)

    assert library.shares(handle, 0) == []
    driver.says("0.share 7 1000 40", "0.share 8 2000 90", "0.share 9 3000 25000", "0.share 0 3500 10")
    assert library.shares(handle, 0) == [(7, 1000, 40), (8, 2000, 90)]
    assert library.shares(handle, 1000) == [(8, 2000, 90)]
    assert library.shares(handle, 3500) == []

    library.close()


def test_a_list_that_grows_while_it_is_read_is_read_whole(driver: FakeNvml) -> None:
    driver.gpu()
    driver.says(*(f"0.process {pid} 1" for pid in range(1000, 1300)))
    library = Nvml()

    assert len(library.processes(library.device(0))) == 300

    library.close()


def test_the_books_of_the_driver_are_read(driver: FakeNvml) -> None:
    driver.gpu(accounting="1")
    driver.says("0.account 42 37 1048576 5000", "0.peak 100 10", "0.peak 200 70")
    library = Nvml()
    handle = library.device(0)

    assert library.accounts(handle)
    assert library.account(handle, 42) == (37, 1048576, 5000)
    with pytest.raises(NvmlError) as caught:
        library.account(handle, 43)
    assert caught.value.code == 6
    assert library.peaks(handle, 100) == [(200, 70)]

    library.close()


def test_a_look_is_quick(driver: FakeNvml) -> None:
    for number in range(8):
        driver.gpu(f"GPU-{number}")
    begun = time.monotonic()

    assert len(devices().devices) == 8

    assert time.monotonic() - begun < 2
