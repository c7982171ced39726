"""Where an environment lies, and whether it is there: its folder, its marker, its lock, and what was frozen for it.

A folder that somebody may be using is never built into again: what was damaged, or is to be resolved anew, gets the next generation.
"""

from __future__ import annotations

import fcntl
import os
import re
from typing import Any, Dict, Mapping

from ..files import dump, make_folder, read_json, replace
from ..machine import Machine
from . import fingerprint, pythons


def try_lock(folder: str, says: str = "") -> int | None:
    """The lock on the building of that environment (close it to let go); None while somebody has it. `says` is written into it."""
    path = folder + ".lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who clears an environment away takes the lock's file along; one that nobody can find locks nobody out.
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            if says:
                os.ftruncate(lock, 0)
                os.pwrite(lock, says.encode(), 0)
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass  # the same answer
    os.close(lock)
    return None


def lock_of(folder: str) -> str:
    """What to lock (`try_lock`) for the environment at `folder`: one lock is good for all generations."""
    return _GENERATION.sub("", folder)


def builder_of(folder: str) -> str:
    """The id of the run that holds the lock of that environment, or did last."""
    try:
        with open(folder + ".lock", encoding="utf-8", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


_GENERATION = re.compile(r"_r([1-9][0-9]{0,3})\Z")


def generation_by(name: str) -> int:
    """Which generation a folder of that name is."""
    found = _GENERATION.search(name)
    return int(found[1]) if found else 1


class Place:
    """One environment of `machine`: what is `wanted`, on the Python `base` when there is no wish."""

    def __init__(self, machine: Machine, wanted: Mapping[str, Any], base: str | None = None) -> None:
        self.machine = machine
        own = pythons.own_python()
        base = os.path.realpath(base) if base else own
        self.asked_python = str(wanted.get("python") or base)
        version = str(wanted.get("python") or pythons.own_version())
        if not wanted.get("python") and base != own:
            version = pythons.tag(base)
        if wanted.get("conda"):
            version = "conda"  # its Python is one of its packages
        plain = "".join(c if (c.isascii() and c.isalnum()) or c == "." else "_" for c in version)
        self.name = "-".join([str(wanted["digest"])[:24], os.uname().machine, "py" + plain])[:180]
        self.lock_path = os.path.join(machine.environments, self.name)
        """With `.lock` behind it; of all generations."""
        self._frozen = os.path.join(machine.folder, "frozen", self.name)

    def frozen(self) -> Dict[str, Any]:
        """`kind`, `text`, its `digest`, and `generation`, as far as there are any."""
        return read_json(self._frozen) or {}

    def freeze(self, kind: str, text: str, generation: int) -> None:
        """From now on it is built from that."""
        from .frozen import digest  # hashes take a while to load, and most runs find what they need

        make_folder(os.path.dirname(self._frozen))
        document = {"kind": kind, "text": text, "generation": generation, "digest": digest(text)}
        replace(self._frozen, dump(document))

    def folder(self, generation: int) -> str:
        """Where that generation lies."""
        more = "_r%d" % generation if generation > 1 else ""
        return os.path.join(self.machine.environments, self.name + more)

    def ready(self) -> Dict[str, Any] | None:
        """The facts of the environment, if it is there and whole."""
        return facts_of(self.folder(generation_of(self.frozen())), whole=True)

    def is_complete(self) -> bool:
        """Whether the present generation has its marker; whether it is whole is another question."""
        return os.path.exists(os.path.join(self.folder(generation_of(self.frozen())), "complete"))

    def use(self, facts: Mapping[str, Any]) -> None:
        """Note that it is used: when room is needed, what was used longest ago goes first."""
        try:
            os.utime(os.path.join(self.machine.environments, str(facts["name"]), "complete"))
        except OSError:
            return  # a note, no more


def generation_of(frozen: Mapping[str, Any]) -> int:
    """Which generation is the present one."""
    number = frozen.get("generation")
    return number if isinstance(number, int) and 1 <= number < 10000 else 1


def facts_of(folder: str, *, whole: bool = False) -> Dict[str, Any] | None:
    """What the marker of a complete environment says; `whole`: None also when it is damaged."""
    facts = read_json(os.path.join(folder, "complete"))
    if facts is None or not whole:
        return facts
    if not os.access(str(facts.get("python")), os.X_OK):
        return None
    return facts if fingerprint.is_whole(folder, facts.get("fingerprint")) else None
