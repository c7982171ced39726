"""How quick the history is: points in and out, a live follow, a long list of runs, opening; MLflow on SQLite beside it.

Run alone: `python benchmarks/bench_store.py [--quick]`. The peer is measured when DRAY_BENCH_PEERS names the Python of a
virtual environment with mlflow (or mlflow-skinny and SQLAlchemy).
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dray.core.ids import new_run_id
from dray.core.spec import RunSpec
from dray.store import Store

EVENTS = "events.0123abcd.jsonl"
PIECE = 1 << 16

_PEER = """
import logging, sys, tempfile, time
try:
    import mlflow
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient
except ImportError as error:
    sys.exit("skipped: " + str(error))
logging.disable(logging.CRITICAL)
points = int(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    client = MlflowClient("sqlite:///" + folder + "/mlflow.db")
    run = client.create_run(client.create_experiment("bench", artifact_location=folder)).info.run_id
    client.log_batch(run, [Metric("warm", 0.0, 0, 0)])
    batches = [[Metric("loss", k / 7, 1767225600000 + k, k) for k in range(n, n + 1000)] for n in range(0, points, 1000)]
    begun = time.perf_counter()
    for batch in batches:
        client.log_batch(run, batch)
    print(points / (time.perf_counter() - begun))
"""


def rows(quick: bool) -> list[dict[str, Any]]:
    """One row a figure: what, dray, peers, ratio, goal, met."""
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
        return [
            *_points(
                Path(folder) / "points", 100_000 if quick else 1_000_000, _mlflow(5_000 if quick else 20_000)
            ),
            _live(Path(folder) / "live", 500 if quick else 3000),
            *_list(Path(folder) / "list", 10_000 if quick else 100_000),
            _opening(Path(folder) / "opening", 5 if quick else 15),
        ]


def _points(home: Path, count: int, peers: dict[str, Any]) -> list[dict[str, Any]]:
    chance = random.Random(1)
    stream = b"".join(
        b'{"v":1,"seq":%d,"t":%.6f,"type":"metrics","data":{"step":%d,"values":{"loss":%r}}}\n'.replace(
            b"%r", repr(chance.random()).encode()
        )
        % (n, 1767225600 + n / 100 + chance.random() / 1000, n)
        for n in range(count)
    )
    with Store.open(home) as store:
        run_id = _run(store)
        begun = time.perf_counter()
        cursor = 0
        for end in range(PIECE, len(stream) + PIECE, PIECE):
            cursor = store.ingest(run_id, 1, EVENTS, cursor, stream[cursor:end])
        wrote = count / (time.perf_counter() - begun)
        begun = time.perf_counter()
        read = len(store.metrics(run_id)["loss"].values) / (time.perf_counter() - begun)
    size = (home / "history.db").stat().st_size / count
    figures = {name: figure for name, figure in peers.items() if isinstance(figure, float)}
    ratio = wrote / figures["mlflow log_batch"] if figures else None
    shown = {
        name: f"{figure:,.0f}/s" if isinstance(figure, float) else figure for name, figure in peers.items()
    }
    return [
        _row(
            "metric points into the history",
            f"{wrote:,.0f}/s",
            "at least 200,000/s",
            wrote >= 200_000,
            shown,
            ratio,
        ),
        _row("metric points out of the history", f"{read:,.0f}/s", "at least 1,000,000/s", read >= 1_000_000),
        _row("a stored metric point", f"{size:.1f} bytes", "at most 20 bytes", size <= 20),
    ]


def _live(home: Path, count: int) -> dict[str, Any]:
    """A follow that brings one line at a time."""
    spent = []
    with Store.open(home) as store:
        run_id = _run(store)
        cursor = 0
        for step in range(count):
            data = {"step": step, "values": {"loss": step / 7, "accuracy": step / 9}}
            line = (
                json.dumps({"v": 1, "seq": step, "t": 1.0 + step, "type": "metrics", "data": data}).encode()
                + b"\n"
            )
            begun = time.perf_counter()
            cursor = store.ingest(run_id, 1, EVENTS, cursor, line)
            spent.append(time.perf_counter() - begun)
    middle = statistics.median(spent) * 1000
    return _row("one line of a live follow, median", f"{middle:.2f} ms", "at most 2 ms", middle <= 2)


def _list(home: Path, count: int) -> list[dict[str, Any]]:
    with Store.open(home) as store:
        for n in range(count):
            if n % 1000 == 0:
                print(f"\r  making {count:,} runs: {n:,}", end="", file=sys.stderr, flush=True)
            store.create_run(RunSpec(new_run_id(), f"e{n % 7}", "local", ("train.py",), created=1000.0 + n))
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
        newest = _best(lambda: store.runs(limit=20), 20) * 1000
        begun = time.perf_counter()
        assert len(store.runs()) == count
        everything = time.perf_counter() - begun
    per_run = everything / count * 1e6
    return [
        _row(f"the newest 20 of {count:,} runs", f"{newest:.2f} ms", "at most 5 ms", newest <= 5),
        _row(f"all {count:,} runs, for each", f"{per_run:.0f} us", "at most 50 us", per_run <= 50),
    ]


def _opening(home: Path, times: int) -> dict[str, Any]:
    Store.open(home).close()
    # Path is what the caller brings; the bytecode must be there, as it is after an installation.
    start = "import sys, time, sqlite3, json\nfrom pathlib import Path\nbegun = time.perf_counter()\n"
    program = (
        start
        + "from dray.store import Store\nStore.open(Path(sys.argv[1]))\nprint(time.perf_counter() - begun)"
    )
    with tempfile.TemporaryDirectory() as bytecode:
        env = {name: word for name, word in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = bytecode
        took = [
            float(
                subprocess.run([sys.executable, "-c", program, home], check=True, env=env, stdout=-1).stdout
            )
            for _ in range(times + 1)
        ][1:]
    best = min(took) * 1000
    return _row("import and open, beyond sqlite3 itself", f"{best:.1f} ms", "at most 10 ms", best <= 10)


def _mlflow(count: int) -> dict[str, Any]:
    python = os.environ.get("DRAY_BENCH_PEERS")
    if not python:
        return {"mlflow log_batch": "skipped: DRAY_BENCH_PEERS names no Python"}
    done = subprocess.run([python, "-c", _PEER, str(count)], check=False, capture_output=True, text=True)
    words = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode != 0:
        return {"mlflow log_batch": words[-1] if words else "skipped: it failed without a word"}
    return {"mlflow log_batch": float(words[-1])}


def _run(store: Store) -> str:
    run_id = new_run_id()
    store.create_run(RunSpec(run_id, "bench", "local", ("train.py",), created=1.0))
    return run_id


def _best(step: Any, times: int) -> float:
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        step()
        took.append(time.perf_counter() - begun)
    return min(took)


def _row(
    what: str,
    dray: str,
    goal: str,
    met: bool,
    peers: dict[str, Any] | None = None,
    ratio: float | None = None,
) -> dict[str, Any]:
    return {"what": what, "dray": dray, "peers": peers or {}, "ratio": ratio, "goal": goal, "met": met}


def main() -> None:
    """Print the table."""
    print("| what | dray | beside | ratio | goal | met |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows("--quick" in sys.argv[1:]):
        beside = ", ".join(f"{name}: {figure}" for name, figure in row["peers"].items())
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.1f} x"
        met = "yes" if row["met"] else "no"
        print(f"| {row['what']} | {row['dray']} | {beside} | {ratio} | {row['goal']} | {met} |")


if __name__ == "__main__":
    main()
