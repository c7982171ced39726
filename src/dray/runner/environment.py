"""Which Python a run gets on this machine, and the building of one that is not there yet.

An environment is named by what it contains, built once at its final path under a lock, and complete only when its marker says so.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from typing import Any, Callable, Dict, Mapping, Optional

from .files import dump, make_folder, read_json, read_text, remove_tree, write_once
from .machine import Machine

Step = Callable[[str, "list[str]", Dict[str, str]], Dict[str, Any]]
"""Runs one command of the build, its output going to the build's log; returns how it ended."""


# Where systems keep the authorities that they trust, in one file: Debian and Arch, Fedora, openSUSE, Alpine.
_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class BuildFailed(Exception):
    """What the script needs could not be made; the text is for the user."""

    kind = "environment-failed"
    """The reason's."""


class Stopped(Exception):
    """The run was cancelled meanwhile."""


def find_program(names: list[str], path: str) -> str | None:
    """The first of `names` that is executable on `path`."""
    for name in names:
        for folder in path.split(":"):
            candidate = os.path.join(folder or ".", name)
            if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                return candidate
    return None


def machine_python(path: str) -> str | None:
    """The Python of this machine for runs that bring none."""
    return find_program(["python", "python3"], path)


def try_lock(folder: str) -> int | None:
    """The lock on the building of that environment (close it to let go); None while somebody has it."""
    path = folder + ".lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who clears an environment away takes the lock's file along; one that nobody can find locks nobody out.
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass  # the same answer
    os.close(lock)
    return None


def python3(path: str) -> str | None:
    """The Python 3 of that path."""
    return find_program(["python3", "python"], path)


class Builder:
    """Makes the environment of one run, or finds it made."""

    def __init__(
        self,
        machine: Machine,
        wanted: dict[str, Any],
        uv: str | None,
        step: Step,
        environ: dict[str, str],
        base: str | None = None,
    ) -> None:
        """`environ` is the machine's own; `base` a Python to build on when there is no wish."""
        self.wanted = wanted
        self.environ = environ
        self.path_of_programs = environ.get("PATH", os.defpath)
        self.uv = uv if uv and os.access(uv, os.X_OK) else find_program(["uv"], self.path_of_programs)
        self.step = step
        # Without a wish it is the Python that runs this: it is there, and the same one under all its names.
        mine = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
        base = os.path.realpath(base) if base else mine
        self.asked_python = wanted.get("python") or base
        version = wanted.get("python") or "%d.%d.%d" % sys.version_info[:3]
        if not wanted.get("python") and base != mine:
            version = _tag(base)
        plain = "".join(c if c.isalnum() or c == "." else "_" for c in version)
        tag = "-".join([str(wanted["digest"])[:24], os.uname().machine, "py" + plain])
        self.folder = os.path.join(machine.environments, tag[:180])

    def ready(self) -> dict[str, Any] | None:
        """The complete environment's facts, or None."""
        facts = read_json(os.path.join(self.folder, "complete"))
        return facts if facts and os.access(self.python, os.X_OK) else None

    @property
    def python(self) -> str:
        """Its interpreter."""
        return os.path.join(self.folder, "bin", "python")

    def provide(self, say: Callable[[str], None], keep_going: Callable[[], bool]) -> dict[str, Any]:
        """Facts of the environment, made now if need be. Raises BuildFailed or Stopped."""
        facts = self.ready()
        if facts:
            self._use()
            return facts
        make_folder(os.path.dirname(self.folder))
        lock = self._take(say, keep_going)
        try:
            return self.ready() or self._build()
        finally:
            os.close(lock)

    def _use(self) -> None:
        """Note that it is used: when room is needed, what was used longest ago goes first."""
        try:
            os.utime(os.path.join(self.folder, "complete"))
        except OSError:
            return  # a note, no more

    def _take(self, say: Callable[[str], None], keep_going: Callable[[], bool]) -> int:
        told = False
        while True:
            lock = try_lock(self.folder)
            if lock is not None:
                return lock
            if not told:
                say("another run is building the same environment; waiting for it")
                told = True
            if not keep_going():
                raise Stopped
            time.sleep(0.1)

    def _build(self) -> dict[str, Any]:
        if self.uv is None:
            raise BuildFailed("`uv` is needed to build the environment, and is not on this machine's PATH")
        remove_tree(self.folder)
        began = time.monotonic()
        env = build_variables(self.environ)
        make = [self.uv, "venv", "--quiet", "--no-project", "--python", self.asked_python, self.folder]
        self._do("making the environment", make, env)
        packages = list(self.wanted.get("packages") or [])
        if packages:
            install = [self.uv, "pip", "install", "--python", self.python]
            self._do("installing the packages", [*install, "--", *packages], env)
        facts = {
            "python": self.python,
            "version": _version_of(self.folder),
            "digest": self.wanted["digest"],
            "built_s": round(time.monotonic() - began, 2),
        }
        write_once(os.path.join(self.folder, "complete"), dump(facts))
        return facts

    def _do(self, what: str, argv: list[str], env: dict[str, str]) -> dict[str, Any]:
        seen = self.step(what, argv, env)
        if seen.get("stopped"):
            raise Stopped
        if seen.get("code") != 0:
            said = str(seen.get("last") or "see its log")
            if self.wanted.get("python") and argv[1] == "venv":
                said = (
                    "there is no Python %s on this machine, and none could be fetched" % self.wanted["python"]
                )
            raise BuildFailed("%s failed: %s" % (what, said))
        return seen


def machine_authorities() -> Optional[str]:
    """The file of the authorities that this machine trusts."""
    return next((path for path in _AUTHORITIES if os.path.exists(path)), None)


def build_variables(ours: Mapping[str, str]) -> Dict[str, str]:
    """The environment of the build's commands: `ours`, less what names another Python."""
    env = {k: v for k, v in ours.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")}
    names = ("UV_NATIVE_TLS", "UV_SYSTEM_CERTS")  # the first one for older versions
    if any(map(os.path.exists, _AUTHORITIES)) and not any(name in env for name in names):
        # Else uv trusts a list of its own, which lacks the authority of a company or a proxy. The user may never have
        # heard of uv, and git, pip and curl work on the same machine.
        env.update(dict.fromkeys(names, "true"))
    return env


def _tag(python: str) -> str:
    """A short name for an interpreter that would have to be started to tell its version."""
    import zlib

    return "%s_%08x" % (os.path.basename(python)[-20:], zlib.crc32(os.fsencode(python)))


def _version_of(folder: str) -> str | None:
    """The version that an environment's own notes give."""
    for line in read_text(os.path.join(folder, "pyvenv.cfg")).splitlines():
        name, _, value = line.partition("=")
        if name.strip() in ("version_info", "version"):
            return ".".join(value.strip().split(".")[:3])
    return None


def last_words(log: str, since: int) -> str:
    """The sentence of a build's log that tells most: from the resolver's own error on, else its last line."""
    try:
        with open(log, "rb") as file:
            file.seek(since)
            text = file.read(1 << 20).decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start: Optional[int] = None
    for number, line in enumerate(lines):
        if line.startswith(("\u00d7", "error:", "ERROR:")):
            start = number
            break
    if start is None:
        return lines[-1] if lines else ""
    # uv draws a tree: the branch says why, the trunk only that.
    told = " ".join(line.lstrip("\u00d7\u2570\u2500\u25b6\u251c\u2502 ") for line in lines[start:])
    why = told.find("Because ")
    return (told[why:] if why >= 0 else told)[:400]
