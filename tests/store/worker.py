"""One of many clients that use a history at once: `worker.py HOME ROLE NUMBER RUN`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dray.core.ids import new_run_id
from dray.core.spec import RunSpec
from dray.core.states import RunState
from dray.store import Store

POINTS = 2000


def _metric(step: int) -> bytes:
    data = {"step": step, "values": {"loss": step / 7}}
    return (
        json.dumps({"v": 1, "seq": step, "t": 1.0 + step, "type": "metrics", "data": data}).encode() + b"\n"
    )


def submit(store: Store, number: int) -> None:
    """Make a run and bring what it says, in small steps."""
    run_id = new_run_id()
    with store.submitting(run_id):
        store.create_run(RunSpec(run_id, "together", "local", ("x",), name=f"n{number}"))
        store.set_state(run_id, RunState.STAGING)
    cursor = log = 0
    for step in range(20):
        cursor, log = store.ingest_many(
            run_id, [(1, "events.0.jsonl", cursor, _metric(step)), (1, "log.script", log, b"%d\n" % step)]
        )
    store.end(run_id, 1, {"state": "completed", "code": 0}, complete=True)


def log(store: Store, number: int, run_id: str) -> None:
    """Bring one stream of a run that others bring other streams of."""
    cursor = 0
    for first in range(0, POINTS, 50):
        piece = b"".join(map(_metric, range(first, first + 50)))
        cursor = store.ingest(run_id, 1, f"events.{number}.jsonl", cursor, piece)


def follow(store: Store, run_id: str) -> None:
    """Bring the same stream as everybody else: the whole of it, again and again."""
    stream = b"".join(map(_metric, range(POINTS)))
    cursor = 0
    while cursor < len(stream):
        cursor = store.ingest(run_id, 1, "events.shared.jsonl", cursor, stream[cursor : cursor + 4001])


def read(store: Store, run_id: str) -> None:
    """Look at a run that grows, and never see it shrink or half a step."""
    seen = 0
    for _ in range(20):
        now = len(store.metrics(run_id)["loss"].values)
        assert now >= seen and now % 50 == 0, (seen, now)
        seen = now
        store.runs(limit=10)
        store.latest([run_id])


if __name__ == "__main__":
    home, role, number, run = sys.argv[1:]
    with Store.open(Path(home)) as opened:
        if role == "submit":
            submit(opened, int(number))
        elif role == "log":
            log(opened, int(number), run)
        elif role == "follow":
            follow(opened, run)
        else:
            read(opened, run)
