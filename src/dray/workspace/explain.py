"""What the closing summary adds of its own accord: the likely cause of a missing file, results left in odd places."""

from __future__ import annotations

import re
from typing import Any

from dray.core.errors import printable
from dray.store import RunRecord

_MISSING = re.compile(rb"No such file or directory: b?(['\"])(.{1,1000}?)\1")


def explain(record: RunRecord, last_lines: bytes) -> list[str]:
    """Sentences about an ended run."""
    end = record.end or {}
    told = _left_out_and_missed(record, last_lines)
    told += [printable(str(note)) for note in record.notes]
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


def _left_out_and_missed(record: RunRecord, last_lines: bytes) -> list[str]:
    """A FileNotFoundError on a path that did not travel names the rule that kept it here."""
    hits = _MISSING.findall(last_lines)
    if not hits:
        return []
    from dray.snapshot import explain_missing

    path = hits[-1][1].decode(errors="surrogateescape")
    # The script may have named it by its absolute path in the run's folder, or in the folder it came from.
    relative = path.rpartition("/code/")[2] if "/code/" in path else path
    if record.spec.folder and relative.startswith(record.spec.folder.rstrip("/") + "/"):
        relative = relative[len(record.spec.folder.rstrip("/")) + 1 :]
    rule = explain_missing(record.spec.left_out, relative.removeprefix("./"))
    return [f"`{printable(path)}` did not travel: left out by {rule}"] if rule else []
