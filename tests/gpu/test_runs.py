"""Runs on a machine with GPUs, from submit to the last word: real processes, and a driver that says what the test wants."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from dray.runner.gpu import amd
from dray.runner.gpu.shown import visible
from tests.gpu.fake import A100, GIB, FakeNvml
from tests.workspace.worlds import World, wait_until

# What a program does on a GPU, told to the driver's stand-in by the program itself.
ACTS = """
import os, sys, time
def driver(*lines):
    with open(os.environ["DRAY_FAKE_NVML"], "a") as file:
        file.write("".join(line + "\\n" for line in lines))
def now():
    return time.time_ns() // 1000
me = os.getpid()
"""


def _gpu(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.show()["gpu"]
    return found


def test_a_run_that_computed_is_used_with_its_numbers(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write(
        "train.py",
        ACTS
        + f"""
driver(f"0.process {{me}} {11 * GIB}", "0.util 80")
time.sleep(0.4)
driver(f"0.share {{me}} {{now()}} 80", "0.energy 1003600")
time.sleep(1.2)
""",
    )

    said = world.dray("submit", "train.py")

    assert said.code == 0
    gpu = _gpu(world)
    assert gpu["verdict"] == "USED" and gpu["reason"] is None
    assert [device["uuid"] for device in gpu["devices"]] == [A100]
    assert gpu["peak_memory"] == 11 * GIB
    assert gpu["energy_j"] == pytest.approx(3.6)
    assert 0 < gpu["used_gpu_h"] < gpu["held_gpu_h"]
    assert gpu["peak_utilisation"] > 0
    for line in ("name: NVIDIA A100-SXM4-80GB", "major: 8 minor: 0 memoryClockRate (GHz) 1.41", "pciBusID 0000:07:00.0",
                 "Total memory: 80.00GiB", "Free memory: 79.50GiB", "gpu: USED: NVIDIA A100-SXM4-80GB, peak 11.00 GiB"):  # fmt: skip
        assert line in said.err


def test_a_short_multiplication_between_two_looks_is_use(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    # The process never shows among those that hold the GPU while somebody looks; only the driver's books know it.
    world.write(
        "short.py",
        ACTS
        + """
time.sleep(2.5)
driver(f"0.share {me} {now()} 20")
""",
    )

    world.dray("submit", "short.py")

    assert _gpu(world)["verdict"] == "USED"


def test_a_worker_of_a_worker_counts_as_the_run(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write(
        "spawn.py",
        ACTS
        + """
import subprocess
inner = "import os,time; open(os.environ['DRAY_FAKE_NVML'],'a').write('0.share %d %d 50\\\\n' % (os.getpid(), time.time_ns()//1000)); time.sleep(1.3)"
subprocess.run(["sh", "-c", f'{sys.executable} -c "$0"', inner], check=True)
""",
    )

    world.dray("submit", "spawn.py")

    assert _gpu(world)["verdict"] == "USED"


def test_a_bare_context_is_visible_and_not_used(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write("idle.py", ACTS + f'driver(f"0.process {{me}} {GIB // 2}")\ntime.sleep(0.5)')

    said = world.dray("submit", "idle.py")

    gpu = _gpu(world)
    assert (gpu["verdict"], gpu["reason"]) == (
        "VISIBLE-NOT-USED",
        "the run opened the GPU and computed nothing there",
    )
    assert gpu["peak_memory"] == GIB // 2
    assert "next: move the model" in said.err


def test_what_others_do_on_the_gpu_is_not_the_runs(world: World, driver: FakeNvml) -> None:
    driver.gpu(util="97")
    world.write(
        "nothing.py",
        f"""
import os, time
with open({str(driver.file)!r}, "a") as file:  # somebody else's process, as this test process is
    file.write("0.process {os.getpid()} {40 * GIB}\\n0.share {os.getpid()} %d 97\\n" % (time.time_ns() // 1000))
time.sleep(1)
""",
    )

    world.dray("submit", "nothing.py")

    gpu = _gpu(world)
    assert gpu["verdict"] == "VISIBLE-NOT-USED"
    assert gpu["reason"] == "no process of the run opened the GPU"
    assert gpu["peak_memory"] is None


def test_where_shares_are_not_told_the_only_user_of_an_idle_gpu_is_known_all_the_same(
    world: World, driver: FakeNvml
) -> None:
    driver.k80()  # its generation does not tell shares
    driver.says("0.error nvmlDeviceGetProcessUtilization 3")
    world.write(
        "train.py",
        ACTS
        + f"""
driver(f"0.process {{me}} {GIB}", "0.util 60")
time.sleep(1.5)
driver("0.util 0")
""",
    )

    world.dray("submit", "train.py")

    gpu = _gpu(world)
    assert (gpu["verdict"], gpu["by_device"]) == ("USED", True)


def test_where_shares_are_not_told_and_others_are_there_nothing_is_claimed(
    world: World, driver: FakeNvml
) -> None:
    driver.k80()
    driver.says("0.error nvmlDeviceGetProcessUtilization 3")
    world.write(
        "train.py",
        ACTS
        + f"""
driver(f"0.process {{me}} {GIB}", "0.process {os.getpid()} {GIB}", "0.util 60")
time.sleep(0.7)
""",
    )

    world.dray("submit", "train.py")

    gpu = _gpu(world)
    assert gpu["verdict"] == "NOT-MEASURABLE"
    assert gpu["used_gpu_h"] is None and gpu["mean_utilisation"] is None


def test_a_run_that_may_see_no_gpu_is_told_what_hides_them(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write("a.py", "print(1)")

    said = world.dray("submit", "-e", "CUDA_VISIBLE_DEVICES=", "a.py")

    gpu = _gpu(world)
    assert (gpu["verdict"], gpu["reason"]) == ("NOT-VISIBLE", "CUDA_VISIBLE_DEVICES is empty")
    assert "next: look for what sets CUDA_VISIBLE_DEVICES" in said.err


def test_a_run_that_asked_for_no_gpu_has_a_word_for_it(world: World, driver: FakeNvml) -> None:
    driver.gpu()

    said = world.dray("submit", "--gpus", "0", "--", "true")

    assert _gpu(world)["verdict"] == "NOT-REQUESTED"
    assert "gpu: NOT-REQUESTED" in said.err


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        (None, None),
        ("0", ["GPU-a"]),
        ("1,0", ["GPU-b", "GPU-a"]),
        ("1,7,0", ["GPU-b"]),
        ("GPU-b", ["GPU-b"]),
        ("GPU", []),
        ("MIG-1", ["MIG-1"]),
        ("-1", []),
        ("", []),
    ],
)
def test_cudas_variable_is_read_as_cuda_reads_it(told: str | None, seen: list[str] | None) -> None:
    machine = {"devices": [{"uuid": "GPU-a", "mig": [{"uuid": "MIG-1"}]}, {"uuid": "GPU-b"}]}

    found, why = visible(told, machine)

    assert found == seen
    assert (why is None) == (seen != [])


def test_only_the_gpus_that_a_run_sees_are_measured(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    driver.gpu("GPU-second")
    world.write(
        "a.py", ACTS + 'driver(f"1.process {me} 1048576", f"1.share {me} {now()} 30")\ntime.sleep(1.2)'
    )

    world.dray("submit", "--gpus", "GPU-second", "a.py")

    gpu = _gpu(world)
    assert gpu["verdict"] == "USED"
    assert [device["uuid"] for device in gpu["devices"]] == ["GPU-second"]


def _package(world: World, name: str, text: str) -> None:
    """A framework as its files look from outside, where the run's Python finds it."""
    path = world.project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_cpu_build_is_named(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    _package(
        world,
        "lib/torch/version.py",
        "__version__ = '2.9.0+cpu'\ncuda: str | None = None\nhip: str | None = None\n",
    )
    world.write("a.py", "print(1)")

    said = world.dray("submit", "-e", f"PYTHONPATH={world.project / 'lib'}", "a.py")

    assert _gpu(world)["verdict"] == "CPU-BUILD"
    assert "torch 2.9.0+cpu in the run's Python was built without CUDA" in said.err
    assert "next: name a GPU build of it for CUDA 12.8 or older" in said.err


def test_a_driver_too_old_for_the_build_is_named(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    _package(world, "lib/torch/version.py", "__version__ = '2.11.0+cu130'\ncuda: str | None = '13.0'\n")
    world.write("a.py", "print(1)")

    world.dray("submit", "-e", f"PYTHONPATH={world.project / 'lib'}", "a.py")

    assert _gpu(world)["verdict"] == "DRIVER-TOO-OLD"


def test_require_gpu_fails_before_user_code(world: World, driver: FakeNvml) -> None:
    driver.says("init 9")
    world.write("a.py", "print('user code')")

    said = world.dray("submit", "--require-gpu", "a.py")

    assert (said.code, said.out) == (125, b"")
    assert world.show()["reason"]["kind"] == "gpu-required"
    assert "the NVIDIA driver is not loaded" in said.err or "no NVIDIA driver" in said.err


_TORCH = """
__version__ = "2.9.0+cu128"
class _Version: cuda = "12.8"
version = _Version
class cuda:
    get_arch_list = staticmethod(lambda: ["sm_80", "sm_90"])
    is_available = staticmethod(lambda: {works})
    get_device_name = staticmethod(lambda index: "NVIDIA A100-SXM4-80GB")
    @staticmethod
    def init(): raise RuntimeError("CUDA driver initialization failed")
class _Side:
    def __matmul__(self, other): return self
    def sum(self): return 64.0 ** 3
def ones(shape, device): return _Side()
"""


def _torch(world: World, *, works: bool) -> str:
    _package(world, "lib/torch/version.py", "__version__ = '2.9.0+cu128'\ncuda: str | None = '12.8'\n")
    _package(world, "lib/torch/__init__.py", _TORCH.format(works=works))
    return f"PYTHONPATH={world.project / 'lib'}"


def test_require_gpu_climbs_the_ladder_in_the_runs_own_python(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write("a.py", ACTS + 'print("user code")\ndriver(f"0.share {me} {now()} 30")\ntime.sleep(1.2)')

    broken = world.dray("submit", "--require-gpu", "-e", _torch(world, works=False), "a.py")
    whole = world.dray("submit", "--require-gpu", "-e", _torch(world, works=True), "a.py")

    assert (broken.code, broken.out) == (125, b"")
    assert "NOT-VISIBLE: torch: CUDA driver initialization failed" in broken.err
    assert (whole.code, whole.out) == (0, b"user code\n")
    assert "torch 2.9.0+cu128 multiplied on NVIDIA A100-SXM4-80GB" in whole.err


def test_require_gpu_refuses_a_build_without_code_for_the_gpu(world: World, driver: FakeNvml) -> None:
    driver.gpu(capability="12 0")
    world.write("a.py", "print('user code')")

    said = world.dray("submit", "--require-gpu", "-e", _torch(world, works=True), "a.py")

    assert (said.code, said.out) == (125, b"")
    assert "ARCH-UNSUPPORTED: torch 2.9.0+cu128 (CUDA 12.8) has no code for" in said.err


def test_require_gpu_fails_a_run_that_ended_without_use(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write("a.py", "print('user code')")

    said = world.dray("submit", "--require-gpu", "a.py")

    assert (said.code, said.out) == (1, b"user code\n")
    assert world.show()["reason"]["kind"] == "gpu-not-used"


def test_an_idle_run_is_warned_and_then_stopped(world: World, driver: FakeNvml) -> None:
    driver.gpu()

    said = world.dray("submit", "--stop-if-idle", "2s", "--", "sleep", "60")

    assert said.code == 124
    assert world.show()["reason"]["kind"] == "idle"
    assert "no GPU use for" in said.err


def test_a_run_that_computes_is_not_idle(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write(
        "busy.py",
        ACTS
        + """
for _ in range(20):
    driver(f"0.share {me} {now()} 30")
    time.sleep(0.2)
""",
    )

    assert world.dray("submit", "--stop-if-idle", "2s", "busy.py").code == 0


def test_stop_if_idle_says_when_there_is_nothing_to_watch(world: World, driver: FakeNvml) -> None:
    assert world.dray("submit", "--stop-if-idle", "1s", "--", "sleep", "2").code == 0

    assert any("--stop-if-idle" in note for note in world.show()["notes"])


def test_a_driver_that_hangs_holds_up_nothing(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write("a.py", ACTS + 'driver("hang nvmlDeviceGetMemoryInfo_v2 60")\ntime.sleep(0.5)\nprint("done")')
    begun = time.monotonic()

    said = world.dray("submit", "a.py")

    assert (said.code, said.out) == (0, b"done\n")
    assert time.monotonic() - begun < 15
    assert (_gpu(world)["verdict"], _gpu(world)["reason"]) == (
        "NOT-MEASURABLE",
        "the driver did not answer in time",
    )


def test_a_gpu_lost_in_the_middle_ends_no_run(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write(
        "a.py",
        ACTS
        + 'driver(f"0.process {me} 1000")\ntime.sleep(0.5)\ndriver("0.error * 15")\ntime.sleep(0.7)\nprint("done")',
    )

    said = world.dray("submit", "a.py")

    assert (said.code, said.out) == (0, b"done\n")


def test_a_killed_sampler_costs_the_verdict_and_nothing_else(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write(
        "a.py",
        """
import os, signal
def stat(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
guard = os.getppid()
runner = int(stat(guard)[1])
with open(f"/proc/{runner}/task/{runner}/children") as file:
    others = [int(pid) for pid in file.read().split() if int(pid) != guard]
for pid in others:
    os.kill(pid, signal.SIGKILL)
print(len(others))
""",
    )

    said = world.dray("submit", "a.py")

    assert (said.code, said.out) == (0, b"1\n")
    assert _gpu(world)["verdict"] == "NOT-MEASURABLE"


def test_a_killed_runner_leaves_no_sampler_and_a_verdict_by_samples(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.write(
        "a.py",
        ACTS
        + """
import signal
def stat(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
driver(f"0.share {me} {now()} 30")
time.sleep(2.5)
os.kill(int(stat(os.getppid())[1]), signal.SIGKILL)
time.sleep(60)
""",
    )

    world.dray("submit", "a.py")

    assert world.show()["reason"]["kind"] == "runner-killed"
    assert _gpu(world)["verdict"] == "USED"
    wait_until(lambda: not _holders(world.home))


def _holders(home: Path) -> list[int]:
    """Processes that work below that folder."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and str(home).encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def test_runs_without_any_gpu_are_sampled_too(world: World, driver: FakeNvml) -> None:
    world.write("a.py", "import time\nbegun = time.time()\nwhile time.time() - begun < 1: pass")

    said = world.dray("submit", "a.py")

    gpu = _gpu(world)
    assert "gpu:" not in said.err
    assert gpu["verdict"] == "NO-GPU"
    assert 0.02 < gpu["run"]["cpu_s"] < 3
    assert gpu["run"]["peak_memory"] > 1 << 20
    assert gpu["run"]["received"] is None  # it has no network of its own


def test_a_secret_of_the_run_is_in_none_of_the_samples(world: World, driver: FakeNvml) -> None:
    driver.gpu()
    world.dray("submit", "--secret", "MY_TOKEN", "--", "sleep", "0.5", env={"MY_TOKEN": "wonderful-secret"})

    streams = list(world.home.rglob("telemetry.jsonl"))
    assert streams
    assert not any(b"wonderful-secret" in stream.read_bytes() for stream in streams)


AMD_SMI = """WARNING: User is missing the following required groups: render, video
[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0x1F2E3D4C5B6A7988"},
  "bus": {"bdf": "0000:0C:00.0"}, "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}}}]"""
ROCM_SMI = """{"card1": {"Card Series": "Instinct MI210", "PCI Bus": "0000:43:00.0", "Unique ID": "0xabc",
  "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "10000000"}, "system": {"Driver version": "6.8"}}"""


def test_amds_tools_are_read() -> None:
    (newer,) = amd.parse_amd_smi(AMD_SMI)
    (older,) = amd.parse_rocm_smi(ROCM_SMI)

    assert (newer.uuid, newer.name, newer.memory_total) == (
        "AMD-0x1F2E3D4C5B6A7988",
        "AMD Instinct MI300X",
        196592 << 20,
    )
    assert (older.index, older.name, older.memory_free) == (1, "Instinct MI210", 68702699520 - 10000000)
    assert amd.parse_amd_smi('{"gpu_data": [{"gpu": 3}]}')[0].index == 3
    assert amd.parse_amd_smi("no document") == amd.parse_rocm_smi("[]") == []
