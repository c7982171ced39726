"""What people say of a run afterwards: a name, a note, tags. Written to `edits.jsonl`, then applied (decision 0012).

The journal is the truth, and is only appended to; a history made anew reads it again. What the run itself said stays in
its spec and its streams. One edit a line:

    {"v":1,"t":1767225600.2,"run":"k3f9x2abqd","name":"baseline","note":"the good one","tags":{"stage":"dev","old":null}}

An empty name or note takes it away, and so does null for a tag.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dray.store import newest
from dray.store.contents import Edit
from dray.store.events import plain

_VERSION = 1
_APPLIED = "edits"  # in the table `meta`: so many bytes of the journal are in the history


def line(run_id: str, t: float, name: str | None, tags: Mapping[str, str | None], note: str | None) -> bytes:
    """One edit as it is written down."""
    said: dict[str, Any] = {"v": _VERSION, "t": t, "run": run_id}
    if name is not None:
        said["name"] = name
    if note is not None:
        said["note"] = note
    if tags:
        said["tags"] = dict(tags)
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def lines(run_id: str, said: Iterable[Edit]) -> bytes:
    """Edits of another history as they would have been written down here, in the order in which they were made."""
    return b"".join(_line_of(run_id, edit) for edit in sorted(said, key=lambda edit: edit.t))


def apply(db: sqlite3.Connection, run_id: str, said: Iterable[Edit]) -> None:
    """Apply them without writing them down."""
    for text in lines(run_id, said).splitlines():
        _apply(db, _understood(text))


def _line_of(run_id: str, edit: Edit) -> bytes:
    if edit.kind == "tag":
        return line(run_id, edit.t, None, {edit.key: edit.value}, None)
    value = edit.value or ""
    return line(
        run_id, edit.t, value if edit.kind == "name" else None, {}, value if edit.kind == "note" else None
    )


def append(path: Path, text: bytes) -> None:
    """Write one line so that it survives a power cut."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    try:
        end = os.fstat(file).st_size
        if end:
            os.lseek(file, end - 1, os.SEEK_SET)
            if os.read(file, 1) != b"\n":
                text = (
                    b"\n" + text
                )  # somebody was killed while writing: what there is of that line is no edit
        else:
            _hold_name(path.parent)
        rest = memoryview(text)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def catch_up(db: sqlite3.Connection, path: Path, *, everything: bool = False) -> int:
    """Apply what the journal says beyond what has been applied; how many edits of known runs that were."""
    count = 0
    done = applied(db)
    if everything or done > size(path):  # or somebody put another journal there
        done = 0
    for length, edit in _read(path, done):
        done += length
        count += _apply(db, edit)
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_APPLIED, str(done)))
    return count


def size(path: Path) -> int:
    """Bytes in the journal; 0 when there is none."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def applied(db: sqlite3.Connection) -> int:
    """How many bytes of the journal are in the history."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (_APPLIED,)).fetchone()
    return int(row[0]) if row else 0


def _read(path: Path, start: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line from `start` on: its length, and what it says (nothing, where it is none of ours, or torn).

    Who writes to the journal holds the history's lock, as we do, so a last line without an end will never get one.
    """
    try:
        file = open(path, "rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(start)
        for text in file:
            yield len(text), _understood(text)


def _understood(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict) or said.get("v") != _VERSION or not isinstance(said.get("run"), str):
        return {}
    tags = said.get("tags", {})
    fine = (
        isinstance(said.get("t"), (int, float))
        and all(isinstance(said.get(key, ""), str) for key in ("name", "note"))
        and isinstance(tags, dict)
        and all(value is None or isinstance(value, str) for value in tags.values())
    )
    return said if fine else {}


def _apply(db: sqlite3.Connection, said: Mapping[str, Any]) -> bool:
    run_id = plain(said.get("run", ""))
    row = db.execute("SELECT nr FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        return False
    run, t = int(row[0]), float(said["t"])
    for kind, query in (
        ("name", "UPDATE run SET name = ? WHERE nr = ?"),
        ("note", "UPDATE run SET note = ? WHERE nr = ?"),
    ):
        if kind in said:
            value = plain(said[kind]) or None
            db.execute(query, (value, run))
            _keep(db, run, Edit(kind, "", value, t))
    for key, value in said.get("tags", {}).items():
        edit = Edit("tag", plain(key), None if value is None else plain(value), t)
        newest.edited_tag(db, run, edit.key, edit.value)
        _keep(db, run, edit)
    return True


def _keep(db: sqlite3.Connection, run: int, edit: Edit) -> None:
    row = (run, edit.kind, edit.key, edit.value, edit.t)
    db.execute("INSERT OR REPLACE INTO edit (run, kind, key, value, t) VALUES (?, ?, ?, ?, ?)", row)


def _hold_name(folder: Path) -> None:
    """Make a new file's name survive a power cut too, where folders can be opened."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(file)
    except OSError:
        pass  # some file systems do not know this of folders
    finally:
        os.close(file)
