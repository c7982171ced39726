"""What `dray submit -c local hello.py` adds to `python hello.py`, beside what the peers add.

All run the same file with the same bare Python on a warm machine: the first submit, which unpacks the runner, is not
counted, nor is the first run of a peer, which makes its database; ray's head is up before.
"""

from __future__ import annotations

from benchmarks import peers
from benchmarks.measure import DRAY, Row, World, medians, ray_head, world

HELLO = 'print("hello")\n'
PROJECT = "name: hello\nentry_points:\n  main:\n    command: python hello.py\n"
SUBMITIT = """\
import submitit, sys
job = submitit.LocalExecutor(folder=sys.argv[1]).submit(submitit.helpers.CommandFunction(["python", "hello.py"]))
assert job.result().strip().endswith("hello")
"""
GOAL_S = 0.20
GOALS = {"mlflow": 0.1, "ray": 0.1, "submitit": 0.2}


def rows(quick: bool) -> list[Row]:
    """One row for the seconds, and one for each peer that is there."""
    with world() as here:
        here.write("hello.py", HELLO)
        both = {"dray": [DRAY, "submit", "-c", "local", "hello.py"], "bare": [here.python, "hello.py"]}
        found = medians(both, 7 if quick else 21, cwd=here.project, env=here.env)
        added = found["dray"] - found["bare"]
        beside = {name: seconds - found["bare"] for name, seconds in _peers(here, 1 if quick else 5).items()}
    what = "what `dray submit -c local hello.py` adds to `python hello.py`"
    bare: dict[str, float | str] = {"python hello.py": found["bare"]}
    table = [
        Row(what=what, dray=added, peers=bare, ratio=None, goal=f"at most {GOAL_S} s", met=added <= GOAL_S)
    ]
    for name, seconds in beside.items():
        ratio = added / seconds
        table.append(
            Row(
                what=f"the same beside {name}",
                dray=added,
                peers={name: seconds},
                ratio=ratio,
                goal=f"at most {GOALS[name]:g} x {name}",
                met=ratio <= GOALS[name],
            )
        )
    return table


def _peers(here: World, times: int) -> dict[str, float]:
    """Whole-command seconds of each peer that is installed."""
    found: dict[str, float] = {}
    python = peers.python()
    if python is None:
        return found
    here.write("MLproject", PROJECT)
    submitit = here.write("submitit_hello.py", SUBMITIT)
    tracking = {"MLFLOW_TRACKING_URI": f"sqlite:///{here.project}/mlflow.db", "GIT_PYTHON_REFRESH": "quiet"}
    # mlflow starts `python` of its own folder first; ours comes before it, so that all run the same one.
    env = {**here.env, **tracking, "PATH": f"{here.env['PATH']}:{python.parent}"}
    local: dict[str, list[str]] = {"submitit": [str(python), str(submitit), str(here.project / "jobs")]}
    if mlflow := peers.tool("mlflow"):
        local["mlflow"] = [mlflow, "run", "--env-manager=local", "."]
    found |= medians(local, times, cwd=here.project, env=env)
    if ray := peers.tool("ray"):
        with ray_head(ray) as address:
            submit = [ray, "job", "submit", "--", here.python, str(here.project / "hello.py")]
            found |= medians({"ray": submit}, times, cwd=here.project, env=address)
    return found
