"""What the closing summary adds of its own accord: the likely cause of a missing file, results in odd places or in none."""

from __future__ import annotations

import re
import shlex
from typing import Any

from dray.core.errors import printable
from dray.core.spec import RunSpec
from dray.core.states import ReasonKind
from dray.store import RunRecord

_MISSING = re.compile(rb"No such file or directory: b?(['\"])(.{1,1000}?)\1")


def explain(record: RunRecord, spec: RunSpec, last_lines: bytes) -> list[str]:
    """Sentences about an ended run."""
    end = record.end or {}
    told = _left_out_and_missed(record.id, spec, last_lines)
    told += [printable(str(note)) for note in record.notes]
    told += _named_in_vain(spec, end) + _one_word(spec, record.reason or {})
    elsewhere: dict[str, Any] = end.get("elsewhere") or {}
    if elsewhere.get("count"):
        named = ", ".join(printable(str(p)) for p in elsewhere["files"][:5])
        more = elsewhere["count"] - min(5, len(elsewhere["files"]))
        told.append(
            f"left outside outputs/: {named}"
            + (f" and {more} more" if more else "")
            + " (`--outputs GLOB` keeps such files)"
        )
    leftovers = end.get("leftovers") or []
    if leftovers:
        named = ", ".join(f"{item['pid']} ({printable(str(item['name']))[:60]})" for item in leftovers[:3])
        told.append(
            f"ended {len(leftovers)} process{'es' * (len(leftovers) > 1)} that outlived the script: {named}"
        )
    return told


def _named_in_vain(spec: RunSpec, end: dict[str, Any]) -> list[str]:
    """Patterns of `--outputs`, when not one file came of them."""
    found: dict[str, Any] = end.get("outputs") or {}
    files = found.get("files") or []
    beside = [glob for glob in spec.outputs if not glob.startswith("outputs")]
    if not beside or end.get("started") is None or found.get("count") != len(files):
        return []
    if any(not str(path).startswith("outputs/") for path, _ in files):
        return []
    return [f"no file fits {' or '.join(f'`--outputs {printable(glob)}`' for glob in beside)}"]


def _one_word(spec: RunSpec, reason: dict[str, Any]) -> list[str]:
    """A whole command line that was given as the name of a program."""
    program = spec.command[0]
    if (
        reason.get("kind") != ReasonKind.CANNOT_START
        or spec.script
        or len(spec.command) > 1
        or " " not in program.strip()
    ):
        return []
    return [
        f"it is one word: `dray submit -- {printable(program)}`, or `dray submit -- sh -c {shlex.quote(printable(program))}`"
    ]


def _left_out_and_missed(run_id: str, spec: RunSpec, last_lines: bytes) -> list[str]:
    """A FileNotFoundError on a path that did not travel names the rule that kept it here."""
    hits = _MISSING.findall(last_lines)
    if not hits:
        return []
    from dray.snapshot import explain_missing

    path = hits[-1][1].decode(errors="surrogateescape")
    # The script may have named it by its absolute path in the run's folder, or in the folder it came from.
    path = path.rpartition(f"/{run_id}/code/")[2]
    if spec.folder:
        path = path.removeprefix(spec.folder.rstrip("/") + "/")
    # ... or by the one that the folder has in a container.
    path = path.removeprefix("/dray/code/").removeprefix("./")
    rule = explain_missing(spec.left_out, path)
    return [f"`{printable(path)}` did not travel: left out by {printable(rule)}"] if rule else []
