"""What an environment costs: made for the first time, found again, and wanted by twenty runs at once.

Cold means an empty cache of uv or pip and packages from the index; numpy and scikit-learn, for all the same Python. What dray adds to a run
is measured: the whole command with the environment, less the whole command without.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import BIN, DRAY, Row, World, timed, world

PACKAGES = ("numpy", "scikit-learn")
UV = str(BIN / "uv")
HELLO = 'print("hello")\n'
PROJECT = "name: hello\npython_env: python_env.yaml\nentry_points:\n  main:\n    command: python hello.py\n"
COLD, WARM_S, AT_ONCE = 1.15, 0.05, 1.2
RUNS = 20


def rows(quick: bool) -> list[Row]:
    """Cold beside each peer, warm, and twenty at once."""
    with world() as here:
        here.write("hello.py", HELLO)
        here.write("requirements.txt", "".join(f"{name}\n" for name in PACKAGES))
        none = [DRAY, "submit", "-c", "local", "--env", "none", "hello.py"]
        timed(none, cwd=here.project, env=here.env)
        bare = statistics.median(
            timed(none, cwd=here.project, env=here.env) for _ in range(5 if quick else 15)
        )
        cold: dict[str, list[float]] = {}
        for _ in range(1 if quick else 5):
            for name, seconds in _cold(here, bare, slow=not quick or not cold):
                cold.setdefault(name, []).append(seconds)
        found = {name: statistics.median(times) for name, times in cold.items()}
        warm = _warm(here, 5 if quick else 21)
        last, build, builds = _at_once(here)
    ours, uv = found.pop("dray"), found["uv venv + uv pip install"]
    what = f"{' + '.join(PACKAGES)}, cold"
    table = [
        Row(
            what=what,
            dray=ours,
            peers={name: seconds},
            ratio=ours / seconds,
            goal=f"at most {limit:g} x",
            met=ours / seconds <= limit,
        )
        for name, seconds in found.items()
        for limit in (COLD if seconds == uv else 1.0,)
    ]
    table.append(
        Row(
            what="the same environment, found again",
            dray=warm,
            peers={},
            ratio=None,
            goal=f"at most {WARM_S} s",
            met=warm <= WARM_S,
        )
    )
    ratio = last / build
    table.append(
        Row(
            what=f"{RUNS} runs at once with one new environment: until the last one runs ({builds} built)",
            dray=last,
            peers={"the build": build},
            ratio=ratio,
            goal=f"one build, at most {AT_ONCE} x its time",
            met=builds == 1 and ratio <= AT_ONCE,
        )
    )
    return table


def _cold(here: World, bare: float, *, slow: bool) -> Iterator[tuple[str, float]]:
    """(name, seconds) of each way, one after the other, so that the index is as quick for all."""
    with tempfile.TemporaryDirectory(prefix="dray-bench-cold-", dir=here.project.parent) as name:
        folder = Path(name)
        env = {**here.env, "UV_CACHE_DIR": str(folder / "uv"), "PIP_CACHE_DIR": str(folder / "pip")}
        submit = [DRAY, "submit", "-c", "local", "--env", "requirements.txt", "hello.py"]
        whole = timed(submit, cwd=here.project, env={**env, "DRAY_HOME": str(folder / "home")})
        yield "dray", whole - bare
        env["UV_CACHE_DIR"] = str(folder / "uv2")
        seconds = timed([UV, "venv", "--quiet", "--python", here.python, str(folder / "v1")], env=env)
        install = [
            UV,
            "pip",
            "install",
            "--quiet",
            "--python",
            str(folder / "v1" / "bin" / "python"),
            *PACKAGES,
        ]
        yield "uv venv + uv pip install", seconds + timed(install, env=env)
        if slow:
            yield from _slow(here, folder, env)


def _slow(here: World, folder: Path, env: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    seconds = timed([here.python, "-m", "venv", str(folder / "v2")], env=env)
    install = [str(folder / "v2" / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES]
    yield "python -m venv + pip install", seconds + timed(install, env=env)
    python = peers.python()
    if python is None:
        return
    here.write("MLproject", PROJECT)
    version = subprocess.check_output(
        [here.python, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"], text=True
    )
    here.write(
        "python_env.yaml",
        f"python: {version.strip()}\nbuild_dependencies: [pip]\ndependencies: [{', '.join(PACKAGES)}]\n",
    )
    tracking = {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_ENV_ROOT": str(folder / "mlflow"),
        "GIT_PYTHON_REFRESH": "quiet",
    }
    program = python.with_name("mlflow")
    warmed = {**env, **tracking, "PATH": f"{python.parent}:{env['PATH']}"}
    try:
        timed(
            [str(program), "run", ".", "--env-manager", "local"], cwd=here.project, env=warmed
        )  # makes its database
        yield (
            "mlflow run, virtualenv",
            timed([str(program), "run", ".", "--env-manager", "virtualenv"], cwd=here.project, env=warmed),
        )
    except subprocess.CalledProcessError as trouble:
        print(f"mlflow could not: {trouble}", flush=True)  # it wants a pyenv that has this very version


def _warm(here: World, times: int) -> float:
    """From the run's first word to its Python, as the machine's clock saw it."""
    submit = [DRAY, "submit", "-c", "local", "--env", "requirements.txt", "hello.py"]
    home = Path(here.env["DRAY_HOME"])
    timed(submit, cwd=here.project, env=here.env)
    known = set(_states(home))
    for _ in range(times):
        timed(submit, cwd=here.project, env=here.env)
    return statistics.median(
        _when(path, "environment") - _when(path, "preparing") for path in set(_states(home)) - known
    )


def _at_once(here: World) -> tuple[float, float, int]:
    """(seconds until the last one ran, seconds of the build, how many were built)."""
    with tempfile.TemporaryDirectory(prefix="dray-bench-once-", dir=here.project.parent) as name:
        env = {**here.env, "UV_CACHE_DIR": f"{name}/uv", "DRAY_HOME": f"{name}/home"}
        timed([DRAY, "submit", "-c", "local", "--env", "none", "hello.py"], cwd=here.project, env=env)
        known = set(_states(Path(name, "home")))
        submit = [DRAY, "submit", "--detach", "-c", "local", "--env", "requirements.txt", "hello.py"]
        waiting = [
            subprocess.Popen(
                submit, cwd=here.project, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            for _ in range(RUNS)
        ]
        started = [process.communicate()[0].decode().strip() for process in waiting]
        timed([DRAY, "wait", *started], cwd=here.project, env=env)
        found = set(_states(Path(name, "home"))) - known
        built = [seconds for path in found for seconds in [_fact(path, "environment")["built_s"]] if seconds]
        begin = min(_when(path, "preparing") for path in found)
        return max(_when(path, "running") for path in found) - begin, max(built), len(built)


def _states(home: Path) -> list[Path]:
    return list(home.glob("machine/*/runs/*/attempts/1/streams/state.jsonl"))


def _when(path: Path, what: str) -> float:
    """When a state was entered, or a kind of fact was told."""
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if what in (event["type"], event["data"].get("state")):
            return float(event["t"])
    raise AssertionError(f"{path} tells nothing of {what}")


def _fact(path: Path, kind: str) -> dict[str, float]:
    events = (json.loads(line) for line in path.read_text().splitlines())
    return next(dict(event["data"]) for event in events if event["type"] == kind)
