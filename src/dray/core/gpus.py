"""Wishes for GPUs as people write them: 2, all, a100:1, 0,1, GPU-5fd4..., 0/1."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dray.core.errors import UsageError, printable
from dray.core.sizes import parse_size

_FORMS = "--gpus takes a number (2), `all`, a model (a100:1), or which ones (0,1 or GPU-5fd4...; `0,` for GPU 0 alone)"
_ID = re.compile(r"(GPU|MIG)-[A-Za-z0-9/_-]{1,100}|[0-9]{1,3}(/[0-9]{1,2})?", re.ASCII)
_MODEL = re.compile(r"([A-Za-z][A-Za-z0-9 ._-]{0,60})(?::([0-9]{1,2}))?", re.ASCII)
_MOST = 64
VISIBLE = "CUDA_VISIBLE_DEVICES"


def parse_gpus(text: str) -> dict[str, Any]:
    """The wish that `text` states, as RunSpec has it. Raises UsageError, which lists the ways to say it."""
    said = text.strip()
    if said.isdecimal() and said.isascii() and int(said) <= _MOST:
        return {"count": int(said)}
    if said.lower() == "all":
        return {"count": "all"}
    ids = [word.strip() for word in said.split(",") if word.strip()]
    if ids and ("," in said or "/" in said or said.startswith(("GPU-", "MIG-"))):
        wrong = [word for word in ids if not _ID.fullmatch(word)]
        if not wrong:
            return {"count": len(ids), "ids": ids}
    else:
        model = _MODEL.fullmatch(said)
        if model and int(model[2] or 1) > 0:
            return {"count": int(model[2] or 1), "model": model[1].strip()}
    raise UsageError(
        f"`{printable(text[:80])}` asks for no GPUs", why=_FORMS, hint="dray submit --gpus 1 ..."
    )


@dataclass(frozen=True, slots=True)
class Wish:
    """What a submit says of GPUs and cores; None: nothing."""

    gpus: str | int | None = None
    gpu_memory: int | None = None
    """Bytes on each."""
    gpu_ids: str | None = None
    """How the program finds its GPUs named: by `uuid` or by `index`."""
    share: bool = False
    cpus: int | None = None

    @property
    def is_silent(self) -> bool:
        """Nothing is said of GPUs."""
        return self.gpus is None and not self.gpu_memory and not self.share

    def asked(self, default: int | None, compute: str, visible: str | None = None) -> dict[str, Any]:
        """For RunSpec. `default`: what that compute gives to who says nothing; None: its machine knows.

        `visible` is the CUDA_VISIBLE_DEVICES of the user's own shell, where the run would inherit it.
        """
        if self.gpu_ids not in (None, "uuid", "index"):
            raise UsageError(
                f"`{printable(str(self.gpu_ids))}` is no way to name GPUs", why="it is `uuid` or `index`"
            )
        if self.cpus is not None and self.cpus < 1:
            raise UsageError("a run needs at least one core")
        found: dict[str, Any]
        if self.is_silent:
            found = _silent(default, compute, visible)
        else:
            # Who says how much memory, or to share, wants one.
            found = parse_gpus(str(self.gpus)) if self.gpus is not None else {"count": 1}
        if self.gpu_memory:
            found["memory"] = self.gpu_memory
        if (self.share or self.gpu_memory) and found["count"] == 0:
            raise UsageError("`--gpus 0` asks for no GPU, and the rest for one")
        if self.share and not self.gpu_memory:
            raise UsageError(
                "who shares a GPU has to say how much of its memory it needs",
                hint="--share --gpu-memory 20GB",
            )
        if self.share:
            found["share"] = True
        if self.gpu_ids == "index":
            found["numbers"] = True
        return found


def _silent(default: int | None, compute: str, visible: str | None) -> dict[str, Any]:
    """What who says nothing gets: what their own shell is set to, else the compute's default."""
    if visible is not None:
        ids = [word.strip() for word in visible.split(",") if word.strip()]
        if not ids or ids[0] == "-1":
            return {"count": 0}
        if all(_ID.fullmatch(word) for word in ids):
            return {"count": None, "default": compute, "prefer": ids}
    return {"count": default, "default": compute}


def wish_of(fields: dict[str, Any]) -> Wish:
    """Take what is said of GPUs and cores out of the words of a Python call."""
    mine = {name: fields.pop(name) for name in Wish.__dataclass_fields__ if name in fields}
    if isinstance(mine.get("gpu_memory"), str):
        mine["gpu_memory"] = parse_size(mine["gpu_memory"])
    if isinstance(mine.get("gpus"), (list, tuple)):
        mine["gpus"] = ",".join(map(str, mine["gpus"])) + ","
    return Wish(**mine)


def words(asked: Mapping[str, Any] | None, cpus: int | None = None) -> str:
    """For people: `2 GPUs`, `1 GPU (default of gpu1)`, `GPU 0, 1`, `1 a100 GPU with 20 GB, shared`; empty for none."""
    from dray.core.durations import show_bytes

    pieces = []
    asked = asked or {}
    count = asked.get("count")
    if asked.get("ids"):
        pieces.append(f"GPU {', '.join(asked['ids'])}")
    elif count == "all":
        pieces.append("all GPUs")
    elif count:
        model = f"{asked['model']} " if asked.get("model") else ""
        pieces.append(f"{count} {model}GPU{'s' * (count != 1)}")
    if pieces and asked.get("memory"):
        pieces[0] += f" with {show_bytes(asked['memory'])}"
    if pieces and asked.get("share"):
        pieces[0] += ", shared"
    if pieces and asked.get("default"):
        pieces[0] += f" (default of {asked['default']})"
    if cpus:
        pieces.append(f"{cpus} core{'s' * (cpus != 1)}")
    return "; ".join(pieces)
