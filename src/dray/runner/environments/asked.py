"""Answers what a client asks about the environments of this machine: `op: env` of docs/design.md, "The wire"."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from ..cleaning import Cleaning
from ..files import read_json, tree_bytes
from ..machine import Machine
from ..trouble import Trouble
from . import building, pythons
from .place import Place, builder_of, facts_of, generation_by, generation_of, lock_of, try_lock

_NAME = re.compile(r"[0-9a-f]{24}-\w[\w.-]*-py[\w.]+\Z")
Answer = Tuple[Dict[str, Any], bytes]


def answers(machine: Machine, here: str, header: Mapping[str, Any]) -> Iterator[Answer]:
    """All frames of the answer. Raises Trouble."""
    if header.get("list"):
        return _list(machine)
    if "show" in header:
        return _show(machine, str(header["show"]))
    if "find" in header:
        return _find(machine, header["find"])
    if "remove" in header:
        names = [str(name) for name in header["remove"]]
        return _remove(machine, here, names, frozen_too=bool(header.get("frozen")))
    if header.get("pythons"):
        return _pythons()
    raise Trouble("unknown-request", "this runner does not know that question about environments")


def _names(machine: Machine) -> List[str]:
    try:
        return sorted(name for name in os.listdir(machine.environments) if _is_one(machine, name))
    except FileNotFoundError:
        return []


def _is_one(machine: Machine, name: str) -> bool:
    path = os.path.join(machine.environments, name)
    return bool(_NAME.match(name)) and os.path.isdir(path) and not os.path.islink(path)


def _list(machine: Machine) -> Iterator[Answer]:
    for name in _names(machine):
        yield {"environment": _row(machine, name)}, b""
    yield {"done": True}, b""


def _show(machine: Machine, beginning: str) -> Iterator[Answer]:
    fitting = [name for name in _names(machine) if name.startswith(beginning)] if beginning else []
    # A digest names every generation: the present one is meant.
    present = [name for name in fitting if _row(machine, name)["frozen"]] if len(fitting) > 1 else fitting
    if beginning in fitting:
        present = [beginning]
    if len(present) != 1:
        many = "; it fits %s" % ", ".join(fitting[:5]) if fitting else ""
        raise Trouble(
            "no-environment", "there is no environment `%s` on this machine%s" % (beginning[:80], many)
        )
    folder = os.path.join(machine.environments, present[0])
    facts = facts_of(folder) or {}
    kept = _kept(machine, present[0])
    row = dict(
        _row(machine, present[0]), spec=facts.get("spec") or {}, installed=building.packages_in(folder)
    )
    row.update(lock=facts.get("lock"), lock_kind=facts.get("lock_kind"))
    text = str(kept.get("text") or "") if row["frozen"] else ""
    yield {"environment": row}, text.encode("utf-8", "surrogateescape")


def _find(machine: Machine, wanted: Any) -> Iterator[Answer]:
    if not isinstance(wanted, dict) or not re.match(r"[0-9a-f]{64}\Z", str(wanted.get("digest"))):
        raise Trouble("bad-request", "that is no environment")
    place = Place(machine, wanted)
    kept = place.frozen()
    folder = place.folder(generation_of(kept))
    found = {
        "name": os.path.basename(folder),
        "complete": facts_of(folder) is not None,
        "frozen": bool(kept.get("text")),
    }
    yield found, b""


def _remove(machine: Machine, here: str, names: List[str], *, frozen_too: bool) -> Iterator[Answer]:
    for answer in Cleaning(machine, here).take([("environment", name) for name in names]):
        yield answer, b""
        for _, name in answer["gone"] if frozen_too else ():
            base = lock_of(name)
            if _NAME.match(base) and generation_of(_kept(machine, name)) == generation_by(name):
                _forget(os.path.join(machine.folder, "frozen", base))
    yield {"done": True}, b""


def _pythons() -> Iterator[Answer]:
    environ = os.environ
    found = {
        "pythons": pythons.listing(environ),
        "uv": pythons.find_uv(environ),
        "conda": pythons.find_conda(environ),
        "libc": pythons.libc(),
        "platform": os.uname().machine,
        "own": pythons.own_version(),
    }
    yield found, b""


def _row(machine: Machine, name: str) -> Dict[str, Any]:
    folder = os.path.join(machine.environments, name)
    facts = facts_of(folder)
    lock_path = os.path.join(machine.environments, lock_of(name))
    is_built = _is_locked(lock_path)
    row: Dict[str, Any] = {"name": name, "digest": name[:24], "platform": name[25:].rsplit("-", 1)[0]}
    for key in ("digest", "python", "version", "kind", "packages", "built", "built_s"):
        if facts and key in facts:
            row[key] = facts[key]
    kept = _kept(machine, name)
    row.update(
        bytes=tree_bytes(folder),
        used=_mtime(os.path.join(folder, "complete") if facts else folder),
        complete=facts is not None,
        busy=is_built and facts is None,
        frozen=bool(kept.get("text")) and generation_of(kept) == generation_by(name),
    )
    if row["busy"]:
        row["run"] = builder_of(lock_path)
    return row


def _kept(machine: Machine, name: str) -> Dict[str, Any]:
    return read_json(os.path.join(machine.folder, "frozen", lock_of(name))) or {}


def _is_locked(path: str) -> bool:
    if not os.path.exists(path + ".lock"):
        return False
    lock = try_lock(path)
    if lock is not None:
        os.close(lock)
    return lock is None


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return  # somebody was faster


def _mtime(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0
