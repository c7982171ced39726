"""Helpers of the tests of export and import: runs of many kinds, and folders that lie."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from dray import Workspace
from dray.core.spec import canonical_json
from dray.store import Store
from dray.workspace.listing import NAME, Listing, Row
from tests.store.test_store_files import known
from tests.store.world import EVENTS, ending, line, metric, new_run, state

CODE = {"train.py": b"print('hello')\n", "lib/net.py": b"LAYERS = 3\n", "empty.txt": b""}


def keep_code(home: Path, files: dict[str, bytes] = CODE) -> str:
    """Put code into the blob store; the digest of its manifest."""
    rows = [
        [path, keep(home, data), len(data), int(path == "train.py")] for path, data in sorted(files.items())
    ]
    links = [["latest", "train.py"]]
    return keep(home, canonical_json({"v": 1, "files": rows, "links": links, "dirs": ["data"]}))


def keep(home: Path, data: bytes) -> str:
    """Make a blob."""
    digest = hashlib.sha256(data).hexdigest()
    place = home / "blobs" / digest[:2] / digest[2:]
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        place.write_bytes(data)
    return digest


def make_run(store: Store, number: int = 0, **fields: Any) -> str:
    """An ended run that said a bit of everything, as its follower would have brought it."""
    run_id = new_run(
        store, created=1000.0 + number, experiment=f"e{number % 3}", tags={"n": str(number)}, **fields
    )
    said = [
        line("opened", {"host": "h", "pid": 7, "rank": None}),
        line("params", {"values": {"lr": number / 10, "deep": number % 2 == 0}}),
        line("tags", {"values": {"stage": "dev"}}),
        *(metric(step, 5.0 + step, loss=1 / (step + 1 + number), acc=-0.0) for step in range(5)),
        metric(None, odd="NaN"),
        b"garbled\n",
        line("tomorrow", {"x": [1]}),
        line("image", {"name": "p", "step": 1, "stream": "media.0123456789abcdef.png", "bytes": 4}),
    ]
    store.ingest_many(
        run_id,
        [
            (
                1,
                "state.jsonl",
                0,
                state("preparing") + state("running", 2.0, pid=7) + line("note", {"text": "warm"}),
            ),
            (1, EVENTS, 0, b"".join(said)),
            (1, "log.script", 0, b"line %d\n" % number + b"\xff\x00"),
            (1, "media.0123456789abcdef.png", 0, b"\x89PNG"),
        ],
    )
    store.end(run_id, 1, ending("failed", 3, "exit-code") if number % 5 == 1 else ending(), complete=True)
    if number % 4 == 0:
        store.edit(run_id, name=f"run {number}", note="seen", tags={"stage": None, "kept": "yes"})
    return run_id


def facts(home: Path) -> dict[str, str]:
    """All that the history in `home` knows of each run."""
    with Store.open(home) as store:
        return {record.id: known(store, record.id) for record in store.runs()}


def exported(home: Path, to: Path, **fields: Any) -> Path:
    """One run that was made in a history of its own, and exported."""
    with Workspace(home) as workspace:
        run_id = make_run(workspace.store, snapshot=keep_code(home), **fields)
        (done,) = workspace.export_runs([workspace.run(run_id)], to)
    assert done.folder is not None
    assert not done.missing
    return done.folder


def listed_again(folder: Path, **changed: Any) -> None:
    """Write the list anew, so that it says of the files what they are now."""
    said = json.loads((folder / NAME).read_text())
    files = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path.is_file() and path != folder / NAME:
                data = path.read_bytes()
                files[str(path.relative_to(folder))] = Row(len(data), hashlib.sha256(data).hexdigest())
    listing = Listing(said["run"], said["missing"], files)
    (folder / NAME).write_bytes(listing._replace(**changed).to_bytes())


def tree(folder: Path) -> dict[str, bytes]:
    """All files in `folder`."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
