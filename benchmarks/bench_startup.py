"""How long `dray --version` and `dray --help` take in a new process, beside Python itself and the peers."""

from __future__ import annotations

import sys

from benchmarks import peers
from benchmarks.measure import DRAY, Row, medians

GOALS = {"--version": 5.0, "--help": 7.0}


def rows(quick: bool) -> list[Row]:
    """Times are medians; the ratio is to `python -c pass` of the same Python."""
    script = str(peers.ROOT / "dray")
    commands = {"python -c pass": [sys.executable, "-c", "pass"]}
    commands |= {option: [DRAY, option] for option in GOALS}
    commands |= {f"./dray {option}": [script, option] for option in GOALS}
    dray = medians(commands, 7 if quick else 25)
    beside: dict[tuple[str, str], float] = {}
    for name in ("mlflow", "ray"):
        if tool := peers.tool(name):
            found = medians({option: [tool, option] for option in GOALS}, 1 if quick else 3)
            beside |= {(name, option): seconds for option, seconds in found.items()}
    bare = dray["python -c pass"]
    table: list[Row] = []
    for option, goal in GOALS.items():
        shown: dict[str, float | str] = {"python -c pass": bare, "./dray": dray[f"./dray {option}"]}
        shown |= {name: seconds for (name, of), seconds in beside.items() if of == option}
        ratio = dray[option] / bare
        table.append(
            Row(
                what=f"`dray {option}`",
                dray=dray[option],
                peers=shown,
                ratio=ratio,
                goal=f"at most {goal:g} x `python -c pass`",
                met=ratio <= goal,
            )
        )
    return table
