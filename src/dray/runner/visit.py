"""Looking at a run from outside: is anyone alive there, and if not, what is the truth about it.

Whoever visits a run whose people are gone takes its lock, ends strays by their mark, and writes the end that can be known.
"""

from __future__ import annotations

import json
import os
from typing import Any

from . import ends, processes, results
from .files import read_regular
from .folder import RunFolder
from .streams import STATE


def settle(folder: RunFolder) -> bool:
    """True while the run's people live. When they are gone without a word, writes the end for them."""
    facts = folder.run_json()
    if facts is None:
        return False
    number = (folder.attempts() or [1])[-1]
    if folder.end(number):
        return False
    if facts.get("machine") != folder.machine.id:
        return True  # another machine's run on a shared disk: only that machine can tell
    lock = folder.try_lock()
    if lock is None:
        if processes.is_usurped(os.path.join(folder.path, "lock"), folder.id):
            processes.kill_all(lambda: processes.marked(folder.id))
        return folder.end(number) is None and not folder.is_gone()
    try:
        if not folder.end(number):
            folder.release_reserve()
            folder.write_end(number, _last_judgement(folder, number, facts))
    finally:
        os.close(lock)
    return False


def _last_judgement(folder: RunFolder, number: int, facts: dict[str, Any]) -> dict[str, Any]:
    started = _started(folder, number)
    rebooted = facts.get("boot") != folder.machine.boot
    if not rebooted:
        logs = [os.path.join(folder.streams(number), name) for name in ("log.script", "log.environment")]
        processes.kill_all(lambda: processes.marked(folder.id) + processes.writers(logs))
        if os.path.exists(os.path.join(folder.attempt(number), "container.json")):
            from .containers import strays

            strays.end_of(folder, number)
    if started is None and not folder.may_have_started(number):
        cause = "the machine was rebooted" if rebooted else "dray's processes were killed"
        text = cause + " before the script was started"
        return ends.document("failed", ends.reason("not-started", text), by="visitor")
    if rebooted:
        why = ends.reason("host-rebooted", "the machine was rebooted while the run was on it")
    else:
        why = ends.reason("vanished", "runner and guard were both killed; nobody saw how the script ended")
    return ends.document("lost", why, {"started": started}, by="visitor", **results.survey(folder))


def _started(folder: RunFolder, number: int) -> float | None:
    """When the script was started, by the runner's own words."""
    said = said_running(folder, number)
    return said[0] if said else None


def said_running(folder: RunFolder, number: int) -> tuple[float, int | None] | None:
    """When the script was started, and as which process of ours, by the runner's own words; None while it was not."""
    try:
        lines = read_regular(os.path.join(folder.streams(number), STATE)).split(b"\n")
    except OSError:
        return None
    for line in lines:
        try:
            event = json.loads(line.decode())
            if event["type"] == "state" and event["data"]["state"] == "running":
                pid = event["data"].get("keeper") or event["data"].get("pid")
                return float(event["t"]), pid if isinstance(pid, int) and pid > 1 else None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
    return None
