"""The world of the GPU bench: dray's command line in a folder of its own, programs, and what the driver says of the GPU."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.programs import CPU_BUILD, programs

ROOT = Path(__file__).parent.parent.parent


class Bench:
    """One person with one project on the machine with the GPU."""

    def __init__(self, folder: Path, python: str, *, fake: bool) -> None:
        self.folder, self.python, self.fake = folder, python, fake
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        for name, text in programs(fake=fake).items():
            (self.project / name).write_text(text)
        hidden = folder / "cpu" / "torch"
        hidden.mkdir(parents=True)
        for name in ("version.py", "__init__.py"):
            (hidden / name).write_text(CPU_BUILD)
        leases = folder / "leases"
        leases.mkdir()
        leases.chmod(0o1777)
        self.env = {
            k: v
            for k, v in os.environ.items()
            if k not in ("CUDA_VISIBLE_DEVICES", "DRAY_HOME", "DRAY_COMPUTE")
        }
        self.env |= {
            "DRAY_HOME": str(folder / "home"),
            "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"),
            "DRAY_LEASES": str(leases),
        }
        if fake:
            from tests.gpu.fake import FakeNvml

            driver = FakeNvml(folder / "driver")
            driver.gpu()
            driver.says("reap 1")
            self.env |= driver.environ()
        os.environ.update({name: value for name, value in self.env.items() if name.startswith("DRAY_")})

    # -- dray

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """`dray WORDS` in the project."""
        settings: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            **options,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "dray", *words],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            **settings,
        )

    def dray(self, *words: str) -> tuple[int, str, str]:
        """The same to its end: code, stdout, stderr."""
        process = self.start(*words)
        out, err = process.communicate(timeout=900)
        return process.returncode, out, err

    def submit(self, *words: str) -> tuple[str, str]:
        """Submit and follow to the end with the bench's Python: (run id, log)."""
        code, out, err = self.dray("submit", "--python", self.python, *words)
        found = re.search(r"^dray: run (\w+)", err, re.MULTILINE)
        if not found:
            raise RuntimeError(f"no run began ({code}): {err}")
        return found[1], out

    def detached(self, *words: str) -> str:
        """Submit and leave."""
        code, out, err = self.dray("submit", "-d", "--python", self.python, *words)
        if code:
            raise RuntimeError(err)
        return out.strip()

    def show(self, run: str) -> dict[str, Any]:
        """`dray show --json`."""
        document: dict[str, Any] = json.loads(self.dray("show", run, "--json")[1])
        return document

    def verdict(self, *words: str) -> tuple[str, dict[str, Any]]:
        """The run's verdict, and its whole document."""
        run, _ = self.submit(*words)
        document = self.show(run)
        return document["gpu"]["verdict"], document

    def ended(self, run: str) -> dict[str, Any]:
        """Wait for its end."""
        self.dray("follow", run)
        return self.show(run)

    # -- processes and the GPU

    def people(self, run: str) -> tuple[int, int, list[int]]:
        """(runner, guard, further children of the runner: its sampler)."""
        script = wait_for(lambda: self.show(run)["status"] == "running" and marked(run))[0]
        guard = script
        while parent_of(guard) != 1 and run.encode() in environ(guard):
            guard = parent_of(guard)
        runner = parent_of(guard)
        others = [pid for pid in children(runner) if pid != guard]
        return runner, guard, others

    def alone(self, script: str, *words: str) -> subprocess.Popen[str]:
        """A program without dray."""
        argv = [self.python, str(self.project / script), *words]
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, text=True)

    def on_gpu(self) -> dict[int, int | None]:
        """Who is on GPU 0: pid -> bytes."""
        from dray.runner.gpu.devices import devices

        return {one.pid: one.memory for one in devices().devices[0].processes}


def wait_for(fact: Callable[[], Any], limit_s: float = 60.0) -> Any:
    """The first true answer."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        answer = fact()
        if answer:
            return answer
        time.sleep(0.02)
    raise RuntimeError("waited in vain")


def environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def marked(run: str) -> list[int]:
    """The run's own processes."""
    mark = f"DRAY_RUN_ID={run}".encode()
    return sorted(int(p) for p in os.listdir("/proc") if p.isdigit() and mark in environ(int(p)).split(b"\0"))


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 1


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def pss_mb(pid: int) -> float:
    """Memory that is this process's, and its part of what it shares."""
    line = next(
        line for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:")
    )
    return int(line.split()[1]) / 1000


def cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def kill(*pids: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
