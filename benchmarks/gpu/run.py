"""All that dray promises about GPUs, on a real card: `python benchmarks/gpu/run.py --python PYTHON_WITH_TORCH [-o RESULT.md]`.

Needs an NVIDIA card with its driver, a Python with torch, and for dray itself the Python of `.venv` (made by `./dev check`). No sshd, no
Docker, no network. `--fake` puts the tests' stand-in in the driver's place, to see whether the bench itself works; `--quick` measures for less long.
Nobody else should use GPU 0 meanwhile. Read `main` first.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent.parent)]

from benchmarks.gpu.bench import (  # noqa: E402  # the checkout is found first
    Bench,
    cpu_s,
    kill,
    marked,
    pss_mb,
    wait_for,
)

Result = tuple[str, str, bool | None]
"""What, what was seen, whether it is as promised (None: a figure without a goal)."""


def main(words: Sequence[str]) -> int:
    """Run all cases and write the page; 1 when a promise was not kept."""
    parser = argparse.ArgumentParser(description="Try dray's promises about GPUs on this machine.")
    parser.add_argument(
        "--python", default=shutil.which("python3"), help="a Python with torch (default: python3)"
    )
    parser.add_argument("-o", "--output", help="write the result there, as Markdown")
    parser.add_argument("--fake", action="store_true", help="with the tests' stand-in for a driver")
    parser.add_argument("--quick", action="store_true", help="shorter; the figures are worthless")
    parser.add_argument("--only", help="cases whose name holds this word")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="dray-gpu-") as folder:
        bench = Bench(Path(folder), asked.python, fake=asked.fake)
        results: list[Result] = []
        for case in CASES:
            if asked.only and asked.only not in case.__name__:
                continue
            print(f"{case.__name__} ...", file=sys.stderr, flush=True)
            try:
                results += case(bench, asked.quick)
            except Exception as trouble:  # the other cases are worth seeing all the same
                traceback.print_exc()
                results.append((case.__name__, f"broke: {trouble}", False))
        page = _page(bench, results, asked.fake)
    print(page)
    if asked.output:
        Path(asked.output).write_text(page)
    return 1 if any(kept is False for _, _, kept in results) else 0


def _page(bench: Bench, results: Sequence[Result], fake: bool) -> str:
    from dray.runner.gpu.devices import devices

    seen = devices()
    names = ", ".join(device.name for device in seen.devices) or str(seen.why)
    torch = (
        ""
        if fake
        else subprocess.run(
            [bench.python, "-c", "import torch; print('torch', torch.__version__)"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
    )
    when = datetime.datetime.now(datetime.UTC).date()
    head = f"{when}; {names}, driver {seen.driver}, CUDA {'.'.join(map(str, seen.cuda or ()))}; {torch}; {platform.platform()}"
    lines = [("**With the tests' stand-in for a driver, not on a card.** " if fake else "") + head, ""]
    lines += ["| what | seen | as promised |", "| --- | --- | --- |"]
    lines += [
        f"| {what} | {text} | {'' if kept is None else 'yes' if kept else '**no**'} |"
        for what, text, kept in results
    ]
    return "\n".join(lines) + "\n"


# -- verdicts


def verdicts(bench: Bench, quick: bool) -> list[Result]:
    """The seeded cases as far as one card allows."""
    hidden = str(bench.folder / "cpu")
    cases: list[tuple[str, str, Sequence[str]]] = [
        ("a training loop of some seconds", "USED", ["hold.py", "4"]),
        ("one multiplication of 0.2 s", "USED", ["short.py"]),
        ("a context and nothing computed", "VISIBLE-NOT-USED", ["context.py"]),
        ("a CPU build of torch", "CPU-BUILD", ["-e", f"PYTHONPATH={hidden}", "cpu_build.py"]),
        ("CUDA_VISIBLE_DEVICES is empty", "NOT-VISIBLE", ["-e", "CUDA_VISIBLE_DEVICES=", "seen.py"]),
        ("`--gpus 0`", "NOT-REQUESTED", ["--gpus", "0", "seen.py"]),
    ]
    results: list[Result] = []
    for what, wanted, words in cases:
        begun = time.monotonic()
        verdict, document = bench.verdict(*words)
        gpu, added = document["gpu"], time.monotonic() - begun - (document["duration_s"] or 0)
        numbers = f"; peak {(gpu['peak_memory'] or 0) / 2**30:.2f} GiB, busy {gpu['mean_utilisation']} % (peak {gpu['peak_utilisation']} %), first use {gpu['first_use_s']} s"
        text = f"{verdict}{numbers if verdict == 'USED' else ''}; {added:.1f} s beside the script's own time"
        results.append((what, text, verdict == wanted and added < 10))
    _, log = bench.submit("--gpus", "0", "seen.py")
    results.append(("what torch sees with `--gpus 0`", log.strip(), "sees 0" in log))
    return results


def require_gpu(bench: Bench, quick: bool) -> list[Result]:
    """The ladder passes where all is well, and stops before user code where it is not."""
    hidden = str(bench.folder / "cpu")
    code, out, _ = bench.dray("submit", "--python", bench.python, "--require-gpu", "hold.py", "3")
    broken, said, _ = bench.dray(
        "submit", "--python", bench.python, "--require-gpu", "-e", f"PYTHONPATH={hidden}", "cpu_build.py"
    )
    return [
        ("`--require-gpu` with all well", f"exit code {code}", code == 0 and "at work" in out),
        (
            "`--require-gpu` with a CPU build",
            f"exit code {broken}, {'user code ran' if said else 'no user code'}",
            broken == 125 and not said,
        ),
    ]


# -- leases


def queues(bench: Bench, quick: bool) -> list[Result]:
    """A stranger's process, a second run, and twenty of them."""
    stranger = bench.alone("hold.py", "8")
    assert stranger.stdout is not None
    stranger.stdout.readline()
    begun = time.time()
    waiting = bench.detached("--gpus", "1", "hold.py", "1")
    time.sleep(3)
    state = bench.show(waiting)["status"]
    stranger.wait()
    gone = time.time()
    document = bench.ended(waiting)
    results: list[Result] = [
        (
            "while a process without dray is on the GPU, a run waits",
            f"{state} after 3 s; it began {document['started'] - gone:.1f} s after that process had gone",
            state == "queued" and document["started"] > begun + 3,
        ),
    ]
    first = bench.detached("--gpus", "1", "hold.py", "4")
    second = bench.detached("--gpus", "1", "hold.py", "1")
    one, two = bench.ended(first), bench.ended(second)
    gap = two["started"] - one["ended"]
    results.append(
        ("two runs and one GPU", f"the second began {gap:.2f} s after the end of the first", gap > -0.05)
    )
    count = 5 if quick else 20
    runs = [bench.detached("--gpus", "1", "order.py") for _ in range(count)]
    started = [bench.ended(run)["started"] for run in runs]
    results.append(
        (
            f"{count} runs for one GPU",
            "in the order of their submits" if started == sorted(started) else "out of order",
            started == sorted(started),
        )
    )
    return results


def kills(bench: Bench, quick: bool) -> list[Result]:
    """kill -9 of runner, guard, both: the GPU is free soon, and given away not before."""
    results: list[Result] = []
    for what in ("runner", "guard", "runner and guard"):
        holder = bench.detached("--gpus", "1", "hold.py", "120")
        runner, guard, _ = bench.people(holder)
        mine = set(marked(holder))
        wait_for(functools.partial(_holds, bench, mine), 90)
        next_one = bench.detached("--gpus", "1", "hold.py", "1")
        time.sleep(1)
        kill(*{"runner": [runner], "guard": [guard]}.get(what, [runner, guard]))
        begun, killed = time.monotonic(), time.time()
        wait_for(functools.partial(_let_go, bench, mine), 30)
        took = time.monotonic() - begun
        free_at = time.time()
        document = bench.ended(next_one)
        granted = document["started"]
        text = f"0 MiB of it left after {took:.2f} s; the next run began after {granted - killed:.2f} s"
        results.append((f"kill -9 of the holder's {what}", text, took < 2 and granted >= free_at - 0.1))
    return results


def _holds(bench: Bench, pids: set[int]) -> bool:
    """Whether any of those is on the GPU."""
    return bool(pids & set(bench.on_gpu()))


def _let_go(bench: Bench, pids: set[int]) -> bool:
    return not _holds(bench, pids)


# -- telemetry


def beside_nvidia_smi(bench: Bench, quick: bool) -> list[Result]:
    """The same seconds seen by dray and by nvidia-smi."""
    if bench.fake:
        return [("telemetry beside nvidia-smi", "not with the stand-in: there is no nvidia-smi", None)]
    length = 15 if quick else 60
    ask = [
        "nvidia-smi",
        "--query-gpu=timestamp,utilization.gpu,memory.used",
        "--format=csv,noheader,nounits",
        "-i",
        "0",
        "-lms",
        "500",
    ]
    run = bench.detached("hold.py", str(length))
    wait_for(lambda: bench.show(run)["status"] == "running" and bench.on_gpu(), 90)
    time.sleep(3)
    smi = subprocess.Popen(ask, stdout=subprocess.PIPE, text=True)
    begun = time.time()
    time.sleep(length - 8)
    until = time.time()
    smi.terminate()
    rows = [line.split(",") for line in smi.communicate()[0].splitlines() if line.count(",") == 2]
    bench.ended(run)
    from dray.workspace import Workspace

    with Workspace() as ws:
        samples = [line for line in ws.store.telemetry(run) if begun <= line.t <= until]
    gpus = [line.data["gpus"][0] for line in samples]
    theirs = statistics.mean(float(row[1]) for row in rows)
    ours = statistics.mean(one["util"] for one in gpus if one["util"] is not None)
    their_memory = statistics.mean(float(row[2]) for row in rows) * 2**20
    our_memory = statistics.mean(one["memory"] for one in gpus if one["memory"] is not None)
    off = abs(our_memory - their_memory) / their_memory * 100
    return [
        (
            "utilisation: dray, nvidia-smi",
            f"{ours:.1f} %, {theirs:.1f} % ({len(gpus)} and {len(rows)} samples)",
            abs(ours - theirs) <= 5,
        ),
        (
            "memory: dray, nvidia-smi",
            f"{our_memory / 2**30:.3f} GiB, {their_memory / 2**30:.3f} GiB ({off:.2f} % apart)",
            off <= 1,
        ),
    ]


def cost(bench: Bench, quick: bool) -> list[Result]:
    """What watching takes from a training loop, from a core, and from memory."""
    length, rounds = (4, 1) if quick else (20, 5)
    alone, watched = [], []
    for _ in range(rounds):
        process = bench.alone("speed.py", str(length))
        alone.append(_speed(process.communicate()[0]))
        watched.append(_speed(bench.submit("speed.py", str(length))[1]))
    slower = (1 - statistics.median(watched) / statistics.median(alone)) * 100
    run = bench.detached("hold.py", str(10 if quick else 70))
    runner, guard, others = bench.people(run)
    time.sleep(4 if quick else 60)
    used = [cpu_s(pid) for pid in others]
    time.sleep(3 if quick else 6)
    memory = {"runner": pss_mb(runner), "guard": pss_mb(guard), "sampler": sum(pss_mb(pid) for pid in others)}
    spent = sum(cpu_s(pid) for pid in others) - sum(used)
    share = spent / (3 if quick else 6) * 100
    bench.ended(run)
    texts = ", ".join(f"{name} {size:.1f} MB" for name, size in memory.items())
    return [
        (
            "a training loop, slower under dray by",
            f"{slower:.2f} % (median of {rounds}, {length} s each)",
            None if quick else slower <= 0.5,
        ),
        ("sampling, of a core", f"{share:.2f} %", None if quick else share <= 0.5),
        ("memory (PSS) while a run is watched", texts, memory["runner"] <= 25),
    ]


def _speed(log: str) -> float:
    return float(log.rpartition("steps a second:")[2].split()[0])


CASES: tuple[Callable[[Bench, bool], list[Result]], ...] = (
    verdicts,
    require_gpu,
    queues,
    kills,
    beside_nvidia_smi,
    cost,
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
