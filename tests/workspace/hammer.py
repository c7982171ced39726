"""Processes that a test kills: `submit HOME PROJECT SEED` submits without end, `clean HOME SEED` clears away without end.

What must never be is printed as one line on stdout.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dray import DrayError, Workspace
from dray.runner import gate
from dray.snapshot.blobs import BlobStore

SCRIPT = "import sys; print(open('data').read(), open('same').read(), sys.prefix != sys.base_prefix)\n"
CONTENTS = 8


def submit(home: str, project: str, seed: str) -> None:
    """Folders that change and folders that do not, with an environment and without."""
    rng = random.Random(seed)
    folder = Path(project)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "same").write_text("the same in all folders")
    (folder / "data").write_text("0")
    while True:
        if rng.random() < 0.7:
            (folder / "data").write_text(str(rng.randrange(CONTENTS)))
        with_environment = rng.random() < 0.4
        environment = folder / "conda_dependencies.yml"
        if with_environment:
            environment.write_text("dependencies: []\n")
        else:
            environment.unlink(missing_ok=True)
        _submit_once(home, folder, with_environment)


def _submit_once(home: str, folder: Path, with_environment: bool) -> None:
    try:
        with Workspace(home) as workspace:
            # Tagged until it has been looked at; and slowly told, for more to happen between the snapshot and the run.
            run = workspace.submit(
                "train.py", cwd=str(folder), tags={"keep": "yes"}, on=lambda _: time.sleep(0.06)
            )
            run.wait()
            expected = f"{(folder / 'data').read_text()} the same in all folders {with_environment}\n"
            if run.status != "completed" or run.log() != expected.encode():
                print(run.id, run.status, run.reason, run.log(), flush=True)
            workspace.store.edit(run.id, tags={"keep": "false"})
    except DrayError as trouble:
        print(type(trouble).__name__, str(trouble), flush=True)


def clean(home: str, seed: str) -> None:
    """With limits and without."""
    rng = random.Random(seed)
    with Workspace(home) as workspace:
        while True:
            litter(home)
            limits: dict[str, Any] = (
                {"keep": rng.randrange(4), "older_than": 0.0} if rng.random() < 0.7 else {}
            )
            try:
                done = workspace.gc(unfetched=True, **limits)
                if any("denied" in why or "mistake" in why for why in done.kept):
                    print(done.kept, flush=True)
            except DrayError as trouble:
                print(type(trouble).__name__, str(trouble), flush=True)


def litter(home: str) -> None:
    """What submits leave that are killed before there is a run: contents that the next one finds, and that nobody needs."""
    held = gate.enter(home)
    store = BlobStore(home)
    store.prepare()
    with tempfile.NamedTemporaryFile("w") as file:
        for content in map(str, range(CONTENTS)):
            file.seek(0)
            file.write(content)
            file.flush()
            store.put(file.name, "data", lambda size: None)
    gate.leave(held)


if __name__ == "__main__":
    if sys.argv[1] == "submit":
        submit(*sys.argv[2:])
    else:
        clean(*sys.argv[2:])
