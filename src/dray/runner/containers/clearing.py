"""What dray has made with the engine and may go: images, and containers of builds that were killed. For `dray gc`.

Only what carries dray's own labels, of this very machine folder, is listed; and only that is removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List

from ..files import dump, make_folder, read_json, read_text, replace, write_once
from ..machine import Machine
from .engines import Engine
from .strays import MACHINE, trace

MADE = re.compile(r"dray/(build:[0-9a-f]{24}|env:[0-9a-f]{24}-[0-9a-f]{12})\Z")
"""Names of images that dray gives."""
_SECONDS = 600.0


def folder_of(machine: Machine) -> str:
    """Where is kept what was seen of images."""
    return os.path.join(machine.folder, "images")


def used(machine: Machine, engine: Engine, attempt: str, name: str) -> None:
    """Note that a run needs the image `name`, which dray has made or is about to make."""
    folder = folder_of(machine)
    make_folder(folder)
    replace(os.path.join(folder, "engine.json"), dump(trace(engine, "")))
    replace(_note(machine, name), dump({"name": name, "t": time.time()}))
    write_once(os.path.join(attempt, "image"), name.encode())


def needed_by(attempt: str) -> str:
    """The made image that the run of that attempt needs; empty: none."""
    return read_text(os.path.join(attempt, "image"))


def open_lock(machine: Machine, what: str) -> int:
    """The file whose flock is held by whoever makes, takes or removes that image. Close it to let go."""
    make_folder(folder_of(machine))
    name = re.sub(r"[^\w.-]", "_", what)[:150] + ".lock"
    return os.open(os.path.join(folder_of(machine), name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _note(machine: Machine, name: str) -> str:
    return os.path.join(folder_of(machine), re.sub(r"[^\w.-]", "_", name) + ".used")


def _engine(machine: Machine) -> Engine | None:
    """The one that made something here. None: none did."""
    traced = read_json(os.path.join(folder_of(machine), "engine.json"))
    try:
        return (
            Engine(str(traced["engine"]), {str(k): str(v) for k, v in traced["env"].items()})
            if traced
            else None
        )
    except (KeyError, AttributeError):
        return None


def listing(machine: Machine) -> Iterator[Dict[str, Any]]:
    """The images that dray has made here: {"name", "bytes", "used"}. Nothing when the engine does not answer."""
    engine = _engine(machine)
    if engine is None:
        return
    mine = "label=%s=%s" % (MACHINE, machine.id)
    form = "{{.Repository}}:{{.Tag}}"
    try:
        (found,) = engine.ask(["images", "--filter", mine, "--format", form])
        names = sorted({name for name in _plain(found.out.split()) if MADE.match(name)})
        if not names:
            return
        (sizes,) = engine.ask(["image", "inspect", "--format", "{{json .Size}}", *names])
    except OSError:
        return
    for name, size in zip(names, sizes.out.split()):
        yield {"name": name, "bytes": _whole(size), "used": _used(machine, name)}


def _plain(names: List[str]) -> List[str]:
    """podman puts `localhost/` before what has no registry."""
    return [name[len("localhost/") :] if name.startswith("localhost/") else name for name in names]


def _whole(text: str) -> int:
    try:
        return int(json.loads(text))
    except (ValueError, TypeError):
        return 0


def _used(machine: Machine, name: str) -> float:
    try:
        return os.stat(_note(machine, name)).st_mtime
    except OSError:
        return 0.0


def remove(machine: Machine, name: str, is_in_use: Callable[[], bool]) -> str | None:
    """Remove that image, unless it is in use. None, or why it stays."""
    engine = _engine(machine)
    if engine is None:
        return "the engine that made it is not known any more"
    lock = open_lock(machine, name)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "a run uses it" if is_in_use() else _remove(machine, engine, name)
    except BlockingIOError:
        return "it is being made, or taken"
    finally:
        os.close(lock)


def _remove(machine: Machine, engine: Engine, name: str) -> str | None:
    try:
        # Not by force: what a container uses stays.
        (answer,) = engine.ask(["rmi", name], limit_s=_SECONDS)
    except OSError as trouble:
        return trouble.strerror or str(trouble)
    if answer.code != 0 and "no such image" not in answer.err.lower():
        return "a container uses it" if "container" in answer.err else answer.words
    try:
        os.unlink(_note(machine, name))
    except OSError:
        return None  # it was not noted
    return None


def abandoned(machine: Machine) -> None:
    """Remove containers of builds whose runs were killed."""
    engine = _engine(machine)
    if engine is None:
        return
    words = ["ps", "--all", "--quiet", "--no-trunc", "--filter", "label=%s=%s" % (MACHINE, machine.id)]
    words += ["--filter", "name=dray-build-", "--filter", "status=exited"]
    try:
        (found,) = engine.ask(words)
        if found.out.split():
            engine.ask(["rm", "--volumes", *found.out.split()], limit_s=_SECONDS)
    except OSError:
        return
