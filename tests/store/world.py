"""Helpers of the history's tests: lines of streams, another user, helper programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dray.core.ids import new_run_id
from dray.core.spec import RunSpec
from dray.store import Store

NOBODY = 65534
EVENTS = "events.0123abcd.jsonl"


def line(kind: str, data: dict[str, Any], t: float = 1767225600.25, **more: Any) -> bytes:
    """One event as the machine writes it."""
    return json.dumps({"v": 1, "seq": 0, "t": t, "type": kind, "data": data, **more}).encode() + b"\n"


def metric(step: int | None, t: float = 1767225600.25, **values: float | str) -> bytes:
    return line("metrics", {"step": step, "values": values}, t)


def state(name: str, t: float = 1.0, **more: Any) -> bytes:
    return line("state", {"state": name, **more}, t)


def ending(state: str = "completed", code: int | None = 0, kind: str = "done") -> dict[str, Any]:
    reason = {"kind": kind, "text": "it said so"}
    times = {"started": 10.0, "ended": 12.5, "duration_s": 2.5}
    return {"v": 1, "state": state, "reason": reason, "code": code, "signal": None, **times, "by": "runner"}


def new_run(store: Store, created: float = 1000.0, **fields: Any) -> str:
    """A run in the history; its id."""
    run_id = fields.pop("id", None) or new_run_id()
    spec = {"experiment": "digits", "compute": "local", "command": ("train.py",), **fields}
    store.create_run(RunSpec(run_id, created=created, **spec))
    return run_id


def as_nobody(work: Callable[[], None]) -> None:
    """Do `work` in a child process that may do only what everybody may; fails as the child fails."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            work()
            os._exit(0)
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, said


def python(script: Path, *words: object) -> subprocess.Popen[bytes]:
    """Start a test's helper program with our Python."""
    return subprocess.Popen(
        [sys.executable, script, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
