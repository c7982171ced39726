"""What a script prints: how fast much of it goes through, how soon a line is seen, what runner and guard cost meanwhile."""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import DRAY, Row, World, percentile, ray_head, timed, world

FLOOD = """\
import sys
line = "x" * 999
for _ in range(int(sys.argv[1]) // 1000):
    print(line)
"""
CLOCK = """\
import random, sys, time
for _ in range(int(sys.argv[1])):
    time.sleep(random.uniform(0.01, 0.05))
    print(time.time_ns(), flush=True)
"""
SILENT = """\
import os, pathlib, sys, time
draft = pathlib.Path(sys.argv[1] + ".new")
draft.write_text(str(os.getpid()))
draft.rename(sys.argv[1])
time.sleep(float(sys.argv[2]))
"""
TICKS = os.sysconf("SC_CLK_TCK")


def rows(quick: bool) -> list[Row]:
    """Throughput, latency, footprint."""
    return [*_flood(quick), *_latency(quick), *_footprint(quick)]


def _flood(quick: bool) -> list[Row]:
    """Both sides unbuffered, in turns; dray's output is read by this process, then written into a file as the other's."""
    size = 100_000_000 if quick else 1_000_000_000
    taken: dict[str, list[float]] = {"bare": [], "read": [], "file": []}
    for _ in range(1 if quick else 3):
        with world() as here:  # a new one each time, so that the disk holds few floods at once
            warm_up = here.write("nothing.py", "")
            timed([DRAY, "submit", "-c", "local", str(warm_up)], cwd=here.project, env=here.env)
            here.write("flood.py", FLOOD)
            for name, seconds in taken.items():
                os.sync()  # what one leaves for the disk to write must not slow the next
                seconds.append(_pour(here, name, size))
    bare = statistics.median(taken["bare"])
    table: list[Row] = []
    for name, where in (
        ("read", "followed through a pipe"),
        ("file", "followed into a file, the third on this disk"),
    ):
        dray = statistics.median(taken[name])
        table.append(
            Row(
                what=f"a script printing {size // 1_000_000} MB in lines of 1000 bytes, unbuffered, {where}",
                dray=dray,
                peers={"script > file": bare},
                ratio=dray / bare,
                goal="at most 1.3 x `script > file`",
                met=dray / bare <= 1.3,
            )
        )
    return table


def _pour(here: World, name: str, size: int) -> float:
    """Seconds until all that the script prints has arrived, and no byte less."""
    start = [here.python] if name == "bare" else [DRAY, "submit", "-c", "local"]
    command, env = [*start, "flood.py", str(size)], {**here.env, "PYTHONUNBUFFERED": "1"}
    if name == "read":
        began = time.perf_counter()
        with subprocess.Popen(
            command, cwd=here.project, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as client:
            assert client.stdout is not None
            pieces = iter(functools.partial(os.read, client.stdout.fileno(), 1 << 20), b"")
            arrived = sum(map(len, pieces))
        seconds = time.perf_counter() - began
    else:
        with tempfile.TemporaryFile(dir=here.project.parent) as sink:
            seconds = timed(command, cwd=here.project, env=env, stdout=sink)
            arrived = sink.seek(0, os.SEEK_END)
    if arrived != size // 1000 * 1000:
        raise RuntimeError(f"{name}: {arrived} bytes of {size} arrived")
    return seconds


def _latency(quick: bool) -> list[Row]:
    """From `print` in the script to the same line at the client."""
    lines = 100 if quick else 500
    with world() as here:
        script = here.write("clock.py", CLOCK)
        command = [DRAY, "submit", "-c", "local", script.name, str(lines)]
        seen = _delays(command, here, dict(here.env), lines)
        beside: list[float] = []
        if ray := peers.tool("ray"):
            with ray_head(ray) as address:
                follow = [ray, "job", "submit", "--", here.python, str(script), str(lines)]
                beside = _delays(follow, here, address, lines)
    table: list[Row] = []
    for name, share, goal in (("median", 0.5, 0.050), ("p99", 0.99, 0.200)):
        found = percentile(seen, share)
        ray_found: dict[str, float | str] = {"ray job submit": percentile(beside, share)} if beside else {}
        table.append(
            Row(
                what=f"from print in the script to print at the client, {name}",
                dray=found,
                peers=ray_found,
                ratio=found / percentile(beside, share) if beside else None,
                goal=f"at most {goal * 1000:g} ms",
                met=found <= goal,
            )
        )
    return table


def _delays(command: list[str], here: World, env: dict[str, str], lines: int) -> list[float]:
    """Seconds that each line took; lines that are no clock (a peer's own words) are passed over."""
    delays = []
    with subprocess.Popen(
        command, cwd=here.project, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as client:
        assert client.stdout is not None
        for line in client.stdout:
            now = time.time_ns()
            if line.strip().isdigit():
                delays.append((now - int(line)) / 1e9)
    if len(delays) != lines:
        raise RuntimeError(f"{command[0]} passed on {len(delays)} of {lines} lines")
    return delays


def _footprint(quick: bool) -> list[Row]:
    """Memory and CPU of all that stands beside the script, while nobody follows: the runner, and what it has started."""
    watched_s = 5.0 if quick else 30.0
    with world() as here:
        script = here.write("silent.py", SILENT)
        said = here.project.parent / "pid"
        command = [DRAY, "submit", "-c", "local", "--detach", script.name, str(said), str(watched_s + 30)]
        submitted = subprocess.run(
            command, cwd=here.project, env=here.env, capture_output=True, text=True, check=True
        )
        run = submitted.stdout.strip()
        try:
            pids = _beside(_appears(said))
            time.sleep(1)  # what happens once at the start is not what it costs beside a long run
            before, began = _cpu(pids), time.monotonic()
            time.sleep(watched_s)
            share = (_cpu(pids) - before) / (time.monotonic() - began)
            memory = sum(_pss(pid) for pid in pids)
        finally:
            cancel = [DRAY, "cancel", run, "--grace", "1s"]
            subprocess.run(cancel, env=here.env, capture_output=True, check=True)
    what = "runner, guard and what else is beside a silent script"
    return [
        Row(
            what=f"{what}: memory (PSS)",
            dray=f"{memory / 1e6:.1f} MB",
            peers={},
            ratio=None,
            goal="at most 25 MB",
            met=memory <= 25e6,
        ),
        Row(
            what=f"{what}: share of a core",
            dray=f"{share:.2%}",
            peers={},
            ratio=None,
            goal="at most 0.5 %",
            met=share <= 0.005,
        ),
    ]


def _appears(path: Path) -> int:
    """The process id that the script writes down when it runs."""
    deadline = time.monotonic() + 30
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError("the silent script did not start within 30 s")
        time.sleep(0.01)
    return int(path.read_text())


def _beside(pid: int) -> list[int]:
    """The runner, which is the parent of the script's parent, with its children: the guard, and who watches GPUs."""
    runner = _parent(_parent(pid))
    return [runner, *map(int, Path(f"/proc/{runner}/task/{runner}/children").read_text().split())]


def _parent(pid: int) -> int:
    """Parent's process id; a name in `stat` may hold spaces, so it is read from behind the last bracket."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    if parent <= 1:
        raise RuntimeError(f"process {pid} has no parent: the runner or the guard is gone")
    return parent


def _cpu(pids: list[int]) -> float:
    """Seconds of processor time used so far, by all together."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS


def _pss(pid: int) -> int:
    """Bytes of memory, shared pages counted by their share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this kernel does not tell PSS")
