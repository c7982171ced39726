"""What the history answers after a year: 100,000 runs with 10 million points, by the commands that people type, start-up included.

Run alone: `python benchmarks/bench_history.py [--quick]`. MLflow's search on SQLite with 10,000 runs is measured beside it when
DRAY_BENCH_PEERS names the Python of a virtual environment with mlflow; its figures are without its start-up.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import DRAY, medians
from dray.core.ids import new_run_id
from dray.core.spec import RunSpec
from dray.core.where import parse
from dray.store import Store, events, newest, points, progress, runs

Row = dict[str, Any]

BIG = "bbbbbbbbbb"
_SMALL = 20  # points of each of two metrics of most runs
_READERS = 20
_STREAM = "events.0123abcd.jsonl"
_BEGIN = 1767225600.0
_END = {
    "v": 1,
    "state": "completed",
    "reason": {"kind": "done", "text": "exit code 0"},
    "code": 0,
    "signal": None,
    "started": _BEGIN,
    "ended": _BEGIN + 9,
    "duration_s": 9.0,
    "by": "runner",
    "leftovers": [],
    "outputs": {"files": [["model.pt", 123456]], "count": 1, "bytes": 123456},
}

_OPEN = """
import sys
from pathlib import Path
from dray.store import Store
store = Store.open(Path(sys.argv[1]))
"""
_ASKED = "metrics.loss < 0.2 and params.lr = 0.1"
_COLUMNS = "id,metrics.loss,metrics.acc.max,params.lr"
_READER = (
    _OPEN
    + """
import json, random, time
from dray.core.where import parse
asked = parse("metrics.loss < 0.2")
until, worst = time.monotonic() + float(sys.argv[2]), 0.0
time.sleep(random.random())
while time.monotonic() < until:
    begun = time.perf_counter()
    store.runs(limit=30)
    store.runs(where=asked, limit=30)
    worst = max(worst, time.perf_counter() - begun)
    time.sleep(1)
print(worst)
"""
)

_PEER = """
import logging, os, sqlite3, statistics, sys, tempfile, time, uuid
try:
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient
except ImportError as error:
    sys.exit("skipped: " + str(error))
logging.disable(logging.CRITICAL)
runs, points = int(sys.argv[1]), int(sys.argv[2])
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/mlflow.db"
    client = MlflowClient("sqlite:///" + path)
    experiment = client.create_experiment("bench", artifact_location=folder)
    run = client.create_run(experiment).info.run_id
    client.log_batch(run, [Metric("loss", 0.5, 1767225600000, 1), Metric("acc", 0.5, 1767225600000, 1)],
                     [Param("lr", "0.1"), Param("model", "a")])
    client.set_terminated(run)
    db = sqlite3.connect(path)
    # The rows of the one run that MLflow made, once for each of the others: 10,000 runs by its client take minutes.
    for table in ("runs", "latest_metrics", "params", "tags"):
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        for row in db.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", (run,)).fetchall():
            copies = []
            for n in range(runs - 1):
                copy = dict(zip(names, row), run_uuid=f"{n:032x}")
                if "start_time" in copy:
                    copy["start_time"] += n
                if table == "latest_metrics":
                    copy["value"] = (n * 7919 % 1000) / 1000
                copies.append(list(copy.values()))
            db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(names))})", copies)
    db.commit()
    def took(asked):
        times = []
        for _ in range(3):
            begun = time.perf_counter()
            assert len(client.search_runs([experiment], asked, max_results=30, order_by=["attributes.start_time DESC"])) == 30
            times.append(time.perf_counter() - begun)
        return statistics.median(times)
    newest, where = took(""), took("metrics.loss < 0.2")
    begun = time.perf_counter()
    assert len(client.search_runs([experiment], max_results=runs)) == runs
    everything = time.perf_counter() - begun
    db.execute("VACUUM")
    before = os.stat(path).st_size
    for n in range(0, points, 1000):
        client.log_batch(run, [Metric("loss", k / 7, 1767225600000 + k, k) for k in range(n, n + 1000)])
    db.execute("VACUUM")
    print(newest, where, everything, (os.stat(path).st_size - before) / points)
"""


def rows(quick: bool) -> list[Row]:
    """One row a figure: what, dray, peers, ratio, goal, met."""
    count, big = (5_000, 2) if quick else (100_000, 6)
    most = 100_000 if quick else 1_000_000
    few = 1000 if quick else 10_000
    peer = _mlflow(few, 2000 if quick else 20_000)
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
        home = Path(folder) / "many"
        made, size = _make(home, count, big, most)
        times = 3 if quick else 9
        return [
            *_commands(home, count, most, times),
            _size(size / made, made, peer),
            _together(home, 4 if quick else 20),
            *_beside(Path(folder) / "few", few, peer),
        ]


def _make(home: Path, count: int, big: int, most: int) -> tuple[int, int]:
    """A history by the store's own parts, beginning behind the parser of lines; its points, and what they take in bytes."""
    chance = random.Random(1)
    with Store.open(home) as store:
        streams: list[tuple[int, int]] = []
        for first in range(0, count, 2000):
            _say(f"{first:,} runs of {count:,}")
            with store._db.writing() as db:  # noqa: SLF001 - many runs in one step, which no user does
                streams += [_run(db, n, new_run_id(), chance) for n in range(first, min(first + 2000, count))]
        with store._db.writing() as db:  # noqa: SLF001 - the same
            large = [_run(db, count + n, BIG if n == 0 else new_run_id(), chance) for n in range(big)]
        before = _bytes(store)
        for first in range(0, count, 2000):
            _say(f"points of {first:,} runs of {count:,}")
            with store._db.writing() as db:  # noqa: SLF001 - the same
                for run, stream in streams[first : first + 2000]:
                    for name in ("loss", "acc"):
                        _log(db, run, stream, name, 0, _SMALL, chance)
        for run, stream in large:
            for first in range(0, most, 50_000):
                _say(f"{first:,} points of {most:,}")
                with store._db.writing() as db:  # noqa: SLF001 - the same
                    _log(db, run, stream, "loss", first, 50_000, chance)
        _say("")
        return 2 * _SMALL * count + big * most, _bytes(store) - before


def _run(db: Any, n: int, run_id: str, chance: random.Random) -> tuple[int, int]:
    """An ended run with three parameters; its number and its stream's."""
    runs.create(
        db,
        RunSpec(
            *(run_id, f"experiment-{n % 7}", "local", ("train.py", "--lr", "0.1", "--epochs", "20")),
            name=f"r{n}" if n % 5 == 0 else None,
            created=_BEGIN + n,
            submitted_by="ana@laptop",
            folder="/home/ana/project",
            files=12,
            bytes=34567,
            snapshot=f"{n // 3:064x}",
            tags={"stage": "dev"},
            python="/usr/bin/python3",
        ),
    )
    run = progress.number(db, run_id)
    made = db.execute(
        'INSERT INTO stream (run, attempt, name, "offset", opened) VALUES (?, 1, ?, 4000, ?)',
        (run, _STREAM, _BEGIN + n),
    )
    stream = int(made.lastrowid)
    values = {"values": {"lr": chance.choice((0.1, 0.01, 0.3)), "model": chance.choice("ab"), "seed": n}}
    db.execute("INSERT INTO event VALUES (?, 0, ?, 'params', 1.0, ?)", (stream, run, json.dumps(values)))
    newest.said(db, run, stream, [events.Event(0, "params", 1.0, values)])
    progress.end(db, run_id, 1, _END, complete=True)
    return run, stream


def _log(db: Any, run: int, stream: int, name: str, first: int, count: int, chance: random.Random) -> None:
    places = range(first, first + count)
    times = [_BEGIN + place / 100 + chance.random() / 1000 for place in places]
    series = points.Series(list(places), times, [chance.random() for _ in places])
    newest.measured(db, run, stream, name, points.append(db, run, stream, name, series), series)


def _bytes(store: Store) -> int:
    with store._db.reading() as db:  # noqa: SLF001 - pages are no matter of users
        (pages,), (size,) = (
            db.execute("PRAGMA page_count").fetchone(),
            db.execute("PRAGMA page_size").fetchone(),
        )
    return int(pages) * int(size)


def _commands(home: Path, count: int, most: int, times: int) -> list[Row]:
    """What a person types, from the start of Python to the last line."""
    env = dict(os.environ) | {"DRAY_HOME": str(home)}
    # A bare `loss` could be a run: a plot names both.
    asked: list[tuple[str, float, list[str]]] = [
        (f"`dray runs`, {count:,} of them", 0.2, ["runs"]),
        (
            f"`dray runs --where '{_ASKED}' --sort -metrics.acc --columns ...`, {count:,} of them",
            0.5,
            ["runs", "--where", _ASKED, "--sort", "-metrics.acc", "--columns", _COLUMNS],
        ),
        (f"`dray metrics RUN loss --plot`, {most:,} points", 0.2, ["metrics", BIG, "loss", "--plot"]),
        (
            f"the shell completes `dray show r12`, {count:,} runs",
            0.1,
            ["_complete", "bash", "dray show r12", "r12"],
        ),
    ]
    found = medians({what: [DRAY, *words] for what, _, words in asked}, times, env=env)
    return [_seconds(what, found[what], goal) for what, goal, _ in asked]


def _beside(home: Path, count: int, peer: dict[str, Any]) -> list[Row]:
    """The same questions to as many runs as the peer has, in processes that have the history open."""
    _make(home, count, 1, 50_000)
    asked = parse("metrics.loss < 0.2")
    with Store.open(home) as store:
        steps = {
            "the newest 30": lambda: store.runs(limit=30),
            "the newest 30 where a metric is so": lambda: store.runs(where=asked, limit=30),
            "all": store.runs,
        }
        return [
            _seconds(f"of {count:,} runs, open already: {what}", _best(step), goal, peer, what)
            for (what, step), goal in zip(steps.items(), (0.005, 0.05, 1.0), strict=True)
        ]


def _best(step: Any) -> float:
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        step()
        took.append(time.perf_counter() - begun)
    return min(took)


def _together(home: Path, seconds: int) -> Row:
    """One follow brings a line at a time while others list and search, each about once a second."""
    readers = [
        subprocess.Popen([sys.executable, "-c", _READER, home, str(seconds)], stdout=subprocess.PIPE)
        for _ in range(_READERS)
    ]
    time.sleep(1.5)  # they are starting
    worst = 0.0
    with Store.open(home) as store:
        run_id = new_run_id()
        store.create_run(RunSpec(run_id, "bench", "local", ("train.py",), created=_BEGIN))
        cursor, step, until = 0, 0, time.monotonic() + seconds - 2
        while time.monotonic() < until:
            data = {"step": step, "values": {"loss": step / 7}}
            line = json.dumps(
                {"v": 1, "seq": step, "t": _BEGIN + step, "type": "metrics", "data": data}
            ).encode()
            begun = time.perf_counter()
            cursor = store.ingest(run_id, 1, _STREAM, cursor, line + b"\n")
            worst = max(worst, time.perf_counter() - begun)
            step += 1
            time.sleep(0.01)
    asked = max(float(reader.communicate()[0]) for reader in readers)
    return _row(
        f"the longest of {step:,} writes, and of the questions of {_READERS} readers meanwhile",
        f"{worst * 1000:.0f} ms, {asked * 1000:.0f} ms",
        "at most 200 ms",
        max(worst, asked) <= 0.2,
    )


def _size(each: float, count: int, peer: dict[str, Any]) -> Row:
    beside = peer.get("bytes a point")
    shown = (
        {"mlflow": f"{beside:.0f} bytes" if isinstance(beside, float) else beside} if beside else dict(peer)
    )
    ratio = each / beside if isinstance(beside, float) else None
    return _row(
        f"a stored point of {count:,}", f"{each:.1f} bytes", "at most 20 bytes", each <= 20, shown, ratio
    )


def _mlflow(count: int, logged: int) -> dict[str, Any]:
    """Seconds by what was asked, and bytes a point; or why there is none of it."""
    python = os.environ.get("DRAY_BENCH_PEERS")
    if not python:
        return {"mlflow": "skipped: DRAY_BENCH_PEERS names no Python"}
    _say(f"MLflow with {count:,} runs")
    words = [python, "-c", _PEER, str(count), str(logged)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        return {"mlflow": last[0] if last else "skipped: it failed without a word"}
    figures = map(float, done.stdout.split())
    names = ("the newest 30", "the newest 30 where a metric is so", "all", "bytes a point")
    return dict(zip(names, figures, strict=True))


def _seconds(what: str, took: float, goal: float, peer: dict[str, Any] | None = None, named: str = "") -> Row:
    beside = {"mlflow search_runs": peer[named]} if peer and named in peer else dict(peer or {})
    ratio = took / peer[named] if peer and named in peer else None
    return _row(what, took, f"at most {goal * 1000:g} ms", took <= goal, beside, ratio)


def _row(
    what: str,
    dray: str | float,
    goal: str,
    met: bool,
    peers: dict[str, Any] | None = None,
    ratio: float | None = None,
) -> Row:
    return {"what": what, "dray": dray, "peers": peers or {}, "ratio": ratio, "goal": goal, "met": met}


def _say(what: str) -> None:
    print(f"\r  {what:<60}", end="" if what else "\r", file=sys.stderr, flush=True)


def main() -> None:
    """Print the table."""
    for row in rows("--quick" in sys.argv[1:]):
        dray = row["dray"] if isinstance(row["dray"], str) else f"{row['dray'] * 1000:.1f} ms"
        print(
            f"{row['what']}: {dray} ({row['goal']}: {'yes' if row['met'] else 'no'}) {row['peers']} {row['ratio']}"
        )


if __name__ == "__main__":
    main()
