"""What one `dray.log(loss=x, step=i)` costs a script, beside writing the same bytes bare and beside MLflow's client on SQLite.

`python benchmarks/bench_tracking.py [--quick]` prints a table; `rows` gives the same as data. Each figure is the median of
several processes' time per call, loop included; dray and the bare writes take turns within a process. MLflow is measured
with fewer calls, by the Python that DRAY_BENCH_PEERS names.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GOAL_S = 5e-6
GOAL_MLFLOW = 100

_DRAY = """
import json, os, random, sys, time
import dray
count, folder = int(sys.argv[1]), os.environ["DRAY_STREAMS"]
values = [random.random() for _ in range(count)]
dray.log(loss=0.5, step=0)
began = time.perf_counter()
for i, x in enumerate(values):
    dray.log(loss=x, step=i)
dray_s = time.perf_counter() - began
(stream,) = os.listdir(folder)
with open(os.path.join(folder, stream), "rb") as file:
    lines = file.readlines()[2:]
assert len(lines) == count
fd = os.open(os.path.join(folder, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
write = os.write
began = time.perf_counter()
for line in lines:
    write(fd, line)
bare_s = time.perf_counter() - began
print(json.dumps([dray_s / count, bare_s / count]))
"""

_MLFLOW = """
import json, random, sys, time
from mlflow.tracking import MlflowClient
count = int(sys.argv[1])
client = MlflowClient("sqlite:///" + sys.argv[2])
run = client.create_run(client.create_experiment("bench")).info.run_id
client.log_metric(run, "loss", 0.5, step=0)
values = [random.random() for _ in range(count)]
began = time.perf_counter()
for i, x in enumerate(values):
    client.log_metric(run, "loss", x, step=i)
print(json.dumps((time.perf_counter() - began) / count))
"""


def rows(quick: bool) -> list[dict[str, Any]]:
    """One row: what, dray (seconds a call), peers (name -> seconds a call), ratio, goal, met."""
    count, times = (20_000, 3) if quick else (100_000, 7)
    taken = [_dray(count) for _ in range(times)]
    dray, bare = (statistics.median(column) for column in zip(*taken, strict=True))
    python = os.environ.get("DRAY_BENCH_PEERS")
    mlflow = _mlflow(python, 50 if quick else 500) if python else "DRAY_BENCH_PEERS is not set"
    fast_enough = not isinstance(mlflow, float) or dray * GOAL_MLFLOW <= mlflow
    return [
        {
            "what": f"`dray.log(loss=x, step=i)`, each of {count:,}",
            "dray": dray,
            "peers": {"MLflow on SQLite": mlflow, "`os.write` of the same bytes": bare},
            "ratio": dray / (mlflow if isinstance(mlflow, float) else bare),
            "goal": f"at most 5 us, 1/{GOAL_MLFLOW} of MLflow",
            "met": dray <= GOAL_S and fast_enough,
        }
    ]


def _dray(count: int) -> tuple[float, float]:
    """Seconds a call of dray, and of the bare write, in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
        env = {**os.environ, "DRAY_STREAMS": folder}
        done = subprocess.run(
            [sys.executable, "-c", _DRAY, str(count)], env=env, stdout=subprocess.PIPE, text=True, check=True
        )
    dray, bare = json.loads(done.stdout)
    return dray, bare


def _mlflow(python: str, count: int) -> float | str:
    """Seconds a call of MLflow's client, or why there is no figure."""
    if subprocess.run([python, "-c", "import mlflow"], capture_output=True, check=False).returncode:
        return "not installed"
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
        done = subprocess.run(
            [python, "-c", _MLFLOW, str(count), str(Path(folder, "mlflow.db"))],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    return float(json.loads(done.stdout.splitlines()[-1]))


def _shown(seconds: float | str) -> str:
    return seconds if isinstance(seconds, str) else f"{seconds * 1e6:.2f} us"


if __name__ == "__main__":
    print("| what | dray | beside | ratio | goal | met |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows("--quick" in sys.argv[1:]):
        beside = ", ".join(f"{name} {_shown(value)}" for name, value in row["peers"].items())
        met = "yes" if row["met"] else "**no**"
        print(
            f"| {row['what']} | {_shown(row['dray'])} | {beside} | {row['ratio']:.3g} x | {row['goal']} | {met} |"
        )
