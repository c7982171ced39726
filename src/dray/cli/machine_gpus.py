"""The GPUs of a machine and its queue, as lines: once, or kept up to date."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dray.cli import endings
from dray.cli.documents import write_json
from dray.cli.live import Live
from dray.cli.progress import Activity
from dray.cli.tables import layout, shorten
from dray.cli.times import ago
from dray.cli.voice import pass_echo
from dray.core.durations import show_bytes
from dray.core.errors import printable

if TYPE_CHECKING:
    from dray.workspace import Workspace

_EVERY_S = 1.0
_SLOW_EVERY_S = 5.0
_GPUS = ("GPU", "NAME", "MEMORY", "BUSY", "HELD BY", "SINCE")
_QUEUE = ("PLACE", "USER", "WANTS", "SINCE", "RUN")


def lines(found: Mapping[str, Any], width: int | None = None) -> list[str]:
    """What `op: gpus` answered, for a person."""
    told: list[str] = []
    gpus = _list(found, "gpus")
    if gpus:
        told += layout(
            _GPUS, [row for one in gpus for row in _gpu(one)], right=("BUSY",), soft=("NAME",), width=width
        )
    else:
        told.append(f"no GPUs: {printable(str(found.get('why') or 'none are seen'))}")
    cores = found.get("cores") or {}
    if cores.get("held"):
        told.append(f"cores: {cores['held']} of {cores['all']} held")
    queue = _list(found, "queue")
    if queue:
        told += ["", *layout(_QUEUE, [_waiting(one) for one in queue], right=("PLACE",), width=width)]
    else:
        told.append("nobody waits")
    if found.get("trouble"):
        told.append(printable(str(found["trouble"])))
    return told


def watch(ws: Workspace, compute: str, activity: Activity, *, wants_json: bool) -> int:
    """Until Ctrl-C: on a terminal in place, with --json a document a line, else anew whenever something changed."""
    live = Live(sys.stdout) if sys.stdout.isatty() and not wants_json else None
    before: list[str] = []
    connection = ws.connect(compute)
    try:
        with connection:
            while True:
                found: dict[str, Any] = connection.call({"op": "gpus"})["gpus"]
                activity.rest()
                if wants_json:
                    write_json(found)
                elif live is not None:
                    width, height = live.room
                    live.draw([shorten(line, width) for line in lines(found, width)][:height])
                elif (now := lines(found)) != before:
                    sys.stdout.write("\n".join([*([""] if before else []), *now]) + "\n")
                    before = now
                sys.stdout.flush()
                time.sleep(_EVERY_S if live is not None else _SLOW_EVERY_S)
    except KeyboardInterrupt:
        pass_echo()
        return endings.LEFT


def _list(found: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    rows = found.get(name)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _gpu(one: Mapping[str, Any]) -> list[list[str]]:
    """A line for the device, and one more for each further holder."""
    used, memory = one.get("used"), one.get("memory")
    room = f"{show_bytes(used or 0)} of {show_bytes(memory)}" if isinstance(memory, int) else "-"
    busy = f"{one['busy']}%" if one.get("busy") is not None else "-"
    who = [[_holder(holder), ago(holder.get("since"))] for holder in _list(one, "holders")]
    who += [[f"{user}, without dray", "-"] for user in one.get("others") or ()]
    if one.get("trouble"):
        who = [[f"nobody: {one['trouble']}", "-"]]
    head = [str(one.get("index")), str(one.get("name")), room, busy]
    rows = [[*head, *(who[0] if who else ["free", "-"])]]
    rows += [["", "", "", "", *row] for row in who[1:]]
    return [[printable(cell) for cell in row] for row in rows]


def _holder(one: Mapping[str, Any]) -> str:
    """ana, run k3f9x2abqd, 20 GB."""
    pieces = [str(one.get("user")), f"run {one['run']}" if one.get("run") else ""]
    pieces.append(show_bytes(one["memory"]) if one.get("memory") else "")
    return ", ".join(piece for piece in pieces if piece)


def _waiting(one: Mapping[str, Any]) -> list[str]:
    state = ago(one.get("since")) if one.get("ready") else f"{ago(one.get('since'))}, not ready yet"
    cells = [one.get("place"), one.get("user"), one.get("wants"), state, one.get("run") or "-"]
    return [printable(str(cell)) for cell in cells]
