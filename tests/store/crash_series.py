"""A client's whole work with the history, done so that it can be begun again after any crash: argument 1 is the home.

Prints `made ID` as soon as a run's creation has returned.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dray.core.spec import RunSpec
from dray.core.states import RunState
from dray.store import NoSuchRun, Store

KEPT = ("aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc")
REMOVED = "dddddddddd"
END = {
    "v": 1,
    "state": "failed",
    "reason": {"kind": "exit-code", "text": "it exited with 3"},
    "code": 3,
    "signal": None,
    "started": 5.0,
    "ended": 9.0,
    "duration_s": 4.0,
}


def _line(kind: str, data: object, t: float) -> bytes:
    return json.dumps({"v": 1, "seq": 0, "t": t, "type": kind, "data": data}).encode() + b"\n"


def streams() -> dict[str, bytes]:
    """What the machine holds of each run."""
    events = [
        _line("opened", {"host": "h", "pid": 7, "rank": None}, 5.0),
        _line("params", {"values": {"lr": 1}}, 5.1),
    ]
    events += [
        _line("metrics", {"step": n, "values": {"loss": n / 7, "acc": n}}, 6.0 + n) for n in range(300)
    ]
    return {
        "state.jsonl": _line("state", {"state": "preparing"}, 4.0)
        + _line("host", {"host": "h", "cpus": 2}, 4.5)
        + _line("state", {"state": "running", "pid": 7}, 5.0)
        + _line("note", {"text": "warm"}, 5.0),
        "log.script": b"".join(b"line %d\n" % n for n in range(2000)),
        "events.0123abcd.jsonl": b"".join(events[:200])
        + b"garbled\n"
        + b"".join(events[200:])
        + b'{"v":1,"torn',
    }


def exists(store: Store, run_id: str) -> bool:
    try:
        store.run(run_id)
    except NoSuchRun:
        return False
    return True


def work(home: Path) -> None:
    """All of it, from wherever the last one who tried has come to."""
    with Store.open(home) as store:
        for run_id in (*KEPT, REMOVED):
            if not exists(store, run_id):
                with store.submitting(run_id):
                    store.create_run(
                        RunSpec(run_id, "crash", "local", ("x",), created=1.0, tags={"stage": "dev"})
                    )
                    print("made", run_id, flush=True)
                    store.set_state(run_id, RunState.STAGING)
            for name, content in streams().items():
                cursor = store.cursors(run_id).get(f"1/{name}", 0)
                while cursor < len(content):
                    piece = content[cursor : cursor + 9000]
                    cursor = store.ingest(run_id, 1, name, cursor, piece, final=cursor + 9000 >= len(content))
            store.looked(run_id, 10.0)
            store.end(run_id, 1, END)
            store.mark_complete(run_id)
            store.edit(run_id, name=f"n-{run_id}", tags={"seen": "yes", "stage": None})
        store.remove(REMOVED)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
