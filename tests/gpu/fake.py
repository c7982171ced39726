"""NVML as the tests have it: a library of our own (`fake_nvml.c`) that says what a file says, and that file.

Set `environ()` where dray's runner is started; from then on every line that is said changes what the driver answers.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

GIB = 1 << 30
A100 = "GPU-a1000000-0000-4000-8000-000000000000"
K80 = "GPU-0b800000-0000-4000-8000-000000000000"


@cache
def library() -> Path:
    """Built once for a test process."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    folder = Path(tempfile.mkdtemp(prefix="dray-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = folder / "libfakenvml.so"
    source = Path(__file__).with_name("fake_nvml.c")
    words = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        str(built),
        str(source),
    ]
    subprocess.run(words, check=True)
    return built


class FakeNvml:
    """A driver and its GPUs. `says` appends; what is appended holds from the next call on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "nvml.txt"
        self.file.touch()
        self.file.chmod(0o666)  # scripts of other users act their part
        self.count = 0
        self.says("driver 570.86.15", "cuda 12080", "count 0")

    def environ(self) -> dict[str, str]:
        """What has to stand in the environment of whoever asks the driver."""
        leases = str(self.file.with_name("leases"))  # the GPUs are this test's alone, so is the queue
        return {"DRAY_NVML": str(library()), "DRAY_FAKE_NVML": str(self.file), "DRAY_LEASES": leases}

    def says(self, *lines: str) -> None:
        with self.file.open("a") as file:
            file.write("".join(line + "\n" for line in lines))

    def gpu(self, uuid: str = A100, name: str = "NVIDIA A100-SXM4-80GB", **facts: str) -> int:
        """One more GPU, idle; its index. `facts` are further lines, such as `util="50"`."""
        index, self.count = self.count, self.count + 1
        known = {
            "uuid": uuid,
            "name": name,
            "pci": f"0 {index + 7:x} 0",
            "capability": "8 0",
            "memory": f"{80 * GIB} {GIB // 2}",
            "max_clock": "1410",
            "clock": "1095",
            "util": "0",
            "power": "62000",
            "energy": "1000000",
            "temperature": "31",
            "slowed": "1",
            "persistence": "1",
            "ecc": "0 0",
            "accounting": "0",
        }
        self.says(*(f"{index}.{key} {value}" for key, value in (known | facts).items() if value))
        self.says(f"count {self.count}")
        return index

    def k80(self) -> int:
        """The card that old logs speak of."""
        memory = f"{int(11.17 * GIB)} {int(0.06 * GIB)}"
        facts = {"pci": "6c3 0 0", "capability": "3 7", "memory": memory, "max_clock": "823"}
        return self.gpu(K80, "Tesla K80", **facts)

    def used(self, index: int, pid: int, percent: int, memory: int = GIB) -> None:
        """`pid` holds memory there, and has had that share of the GPU until now."""
        self.says(
            f"{index}.process {pid} {memory}", f"{index}.share {pid} {time.time_ns() // 1000} {percent}"
        )
