"""What is said of a run that waits for GPUs or cores: for what, at which place, and who has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.cli.times import ago
from dray.core.errors import printable

_FEW = 4


def waiting_for(said: Mapping[str, Any]) -> str:
    """waiting for 1 GPU (default of gpu1; `--gpus 0` starts now)."""
    default = said.get("default")
    why = f" (default of {printable(str(default))}; `--gpus 0` starts now)" if default else ""
    return f"waiting for {printable(str(said.get('wants') or 'its turn'))}{why}"


def place_text(said: Mapping[str, Any]) -> str:
    """place 2 of 3."""
    return f"place {said['place']} of {said['of']}" if said.get("place") and said.get("of") else ""


def holders_text(said: Mapping[str, Any]) -> str:
    """GPU 0: ana since 12m ago; GPU 1: bob, without dray."""
    rows = [one for one in said.get("holders") or () if isinstance(one, Mapping)]
    told = [_holder(one) for one in rows[:_FEW]]
    if len(rows) > _FEW:
        told.append(f"{len(rows) - _FEW} more")
    return "; ".join(told)


def _holder(one: Mapping[str, Any]) -> str:
    user, gpu, since = printable(str(one.get("user") or "somebody")), one.get("gpu"), one.get("since")
    what = f"GPU {printable(str(gpu))}: " if gpu is not None else ""
    if gpu is not None and not since:
        return f"{what}{user}, without dray"
    return f"{what}{user}, began {ago(since)}" if isinstance(since, (int, float)) else f"{what}{user}"
