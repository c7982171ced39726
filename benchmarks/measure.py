"""What the benches share: the row of the table, a world of their own for dray, and how a command is timed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypedDict

BIN = Path(sys.executable).parent
DRAY = str(BIN / "dray")


class Row(TypedDict):
    """One line of docs/benchmarks.md. Numbers are seconds; what is not seconds comes as text."""

    what: str
    dray: float | str
    peers: dict[str, float | str]
    ratio: float | None
    goal: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class World:
    """A project folder and the variables of a shell in which dray has a home of its own."""

    project: Path
    python: str
    """What `python` is in that shell: no virtual environment's, so that nothing is installed for it."""
    env: Mapping[str, str]

    def write(self, name: str, text: str) -> Path:
        """Put a file into the project."""
        path = self.project / name
        path.write_text(text)
        return path


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A fresh DRAY_HOME, project and shell; all gone afterwards."""
    python: str = getattr(sys, "_base_executable", sys.executable)
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
        project, bin_folder = Path(folder, "project"), Path(folder, "bin")
        project.mkdir()
        bin_folder.mkdir()
        (bin_folder / "python").symlink_to(python)
        strange = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONUNBUFFERED", "DRAY_COMPUTE")
        env = {k: v for k, v in os.environ.items() if k not in strange}
        env |= {"DRAY_HOME": str(Path(folder, "home")), "PATH": f"{bin_folder}:{env['PATH']}"}
        yield World(project, str(bin_folder / "python"), env)


def timed(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
) -> float:
    """Seconds from start to end of one command, which must succeed."""
    with tempfile.TemporaryFile() as words:
        began = time.perf_counter()
        code = subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=words, check=False
        ).returncode
        took = time.perf_counter() - began
        if code:
            words.seek(0)
            said = words.read().decode(errors="replace")
            raise RuntimeError(f"{' '.join(command)} ended with code {code}:\n{said}")
    return took


def medians(
    commands: Mapping[str, Sequence[str]],
    times: int,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Median seconds of each command, taken in turns, so that a busy moment hits all alike. One warm-up each."""
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(times + 1):
        for name, command in commands.items():
            seconds = timed(command, cwd=cwd, env=env)
            if turn:
                taken[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of all lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def free_port() -> int:
    """A TCP port on loopback that nobody holds right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def ray_head(ray: str) -> Iterator[dict[str, str]]:
    """A warm ray head on loopback, ended with the processes that it started; yields the variables to reach it."""
    folder = tempfile.mkdtemp(prefix="ray")  # short: ray puts sockets below, and their paths are limited
    dashboard = free_port()
    address = f"http://127.0.0.1:{dashboard}"
    env = dict(os.environ) | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_API_SERVER_ADDRESS": address,
        "RAY_ADDRESS": address,
        "PATH": f"{Path(ray).parent}:{os.environ['PATH']}",
    }
    start = [ray, "start", "--head", "--block", "--node-ip-address=127.0.0.1", "--num-cpus=2"]
    start += [f"--port={free_port()}", f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1"]
    start += [f"--dashboard-agent-listen-port={free_port()}", f"--ray-client-server-port={free_port()}"]
    start += [f"--temp-dir={folder}", "--object-store-memory=100000000", "--disable-usage-stats"]
    without_address = {k: v for k, v in env.items() if k != "RAY_ADDRESS"}
    head = subprocess.Popen(start, env=without_address, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while subprocess.run([ray, "job", "list"], env=env, capture_output=True, check=False).returncode:
            if time.monotonic() > deadline or head.poll() is not None:
                raise RuntimeError("the ray head did not come up within two minutes")
        yield env
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
