"""uv at work: makes the environment, resolves, and installs exactly what was resolved."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..work import Work
from . import BuildFailed, Stopped, frozen, pythons, said
from .said import Watch, step
from .variables import without_passwords

OLDEST = (0, 8)  # the first that both writes and installs pylock.toml
_ROOM = 64 << 20  # free bytes below which nothing is begun


def is_usable(uv: str) -> bool:
    """Whether that uv is new enough."""
    import subprocess

    try:
        words = subprocess.run(
            [uv, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    found = re.search(rb"(\d+)\.(\d+)", words)
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST


class Uv:
    """The commands of one build."""

    def __init__(
        self, program: str, work: Work, env: Dict[str, str], mask: List[str], wheels: str | None
    ) -> None:
        """`wheels`: a folder to install from; then no index is asked."""
        self.program = program
        self.work = work
        self.env = dict(env, PATH=pythons.search_path(env))
        self.mask = mask
        self.wheels = wheels
        self._scratch = os.path.join(work.folder.attempt(work.number), "environment")

    def make(self, python: str, folder: str, wish: Optional[str]) -> None:
        """An empty environment at `folder`. Raises BuildFailed or Stopped."""
        argv = [self.program, "venv", "--quiet", "--no-project", "--python", python, folder]
        seen = self._run("making the environment", argv)
        if seen.get("code") != 0 and wish:
            raise BuildFailed(self._no_python(wish, str(seen.get("last") or "")))
        self._check("making the environment", seen)

    def solve(self, packages: List[str], python: str, *, as_pylock: bool) -> Tuple[str, str]:
        """(kind, text) of what is to be installed for `packages`. Raises BuildFailed or Stopped."""
        os.makedirs(self._scratch, mode=0o700, exist_ok=True)
        wanted = os.path.join(self._scratch, "wanted.txt")
        kind = frozen.PYLOCK if as_pylock and not self.wheels else frozen.REQUIREMENTS
        out = os.path.join(self._scratch, "pylock.toml" if kind == frozen.PYLOCK else "resolved.txt")
        with open(wanted, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("".join("%s\n" % line for line in packages))
        argv = [self.program, "pip", "compile", "--no-header", "--no-annotate", "--no-progress", "--quiet"]
        argv += ["--python", python, "--output-file", out, *self._sources()]
        argv += ["--format", "pylock.toml"] if kind == frozen.PYLOCK else ["--generate-hashes"]
        self.work.tell("progress", **step("solving"))
        self._check("resolving the packages", self._run("resolving the packages", [*argv, wanted]))
        with open(out, encoding="utf-8", errors="surrogateescape") as file:
            return kind, file.read()

    def install(self, kind: str, text: str, python: str) -> None:
        """Exactly what `text` says into the environment of `python`. Raises BuildFailed or Stopped."""
        os.makedirs(self._scratch, mode=0o700, exist_ok=True)
        path = os.path.join(self._scratch, "pylock.toml" if kind == frozen.PYLOCK else "frozen.txt")
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        argv = [self.program, "pip", "install", "--no-progress", "--python", python, *self._sources()]
        if kind != frozen.PYLOCK:
            argv.append("--no-deps")
        total = frozen.count(kind, text)
        env = dict(self.env)
        env.setdefault("UV_PREVIEW_FEATURES", "pylock")  # or it warns that it might change
        seen = self._run("installing the packages", [*argv, "-r", path], total, env)
        self._check("installing the packages", seen)

    def add(self, packages: List[str], python: str) -> None:
        """Resolve and install at once, beside what is there. Raises BuildFailed or Stopped."""
        argv = [
            self.program,
            "pip",
            "install",
            "--no-progress",
            "--python",
            python,
            *self._sources(),
            "--",
            *packages,
        ]
        self._check("installing the packages", self._run("installing the packages", argv))

    def _sources(self) -> List[str]:
        return ["--no-index", "--find-links", self.wheels] if self.wheels else []

    def _run(
        self, what: str, argv: List[str], total: Optional[int] = None, env: Optional[Dict[str, str]] = None
    ) -> Dict[str, Any]:
        watches: List[Watch] = []

        def look(log: str, since: int) -> bool:
            """Tell what is new of it. True when it cannot come to a good end."""
            if not watches:
                watches.append(Watch(log, since, total))
            news = watches[0].news()
            if news:
                self.work.tell("progress", **news)
            return watches[0].to_come > free_bytes(self.work.machine.environments)

        seen = self.work.run(what, argv, env or self.env, mask=self.mask, look=look)
        if seen.get("given_up"):
            raise BuildFailed(no_room(self.work.machine.environments, watches[0].to_come))
        return seen

    def _check(self, what: str, seen: Mapping[str, Any]) -> None:
        """Raises BuildFailed, in the resolver's words, or Stopped."""
        if seen.get("stopped"):
            raise Stopped
        if seen.get("code") == 0:
            return
        words = str(seen.get("last") or "see its log")
        if said.is_full(words):
            raise BuildFailed(no_room(self.work.machine.environments))
        unknown = said.is_unknown(words)
        if unknown:
            from . import names

            raise BuildFailed(names.unknown(unknown, in_wheels=bool(self.wheels)))
        if words.startswith("Because "):
            raise BuildFailed("no versions fit together. " + without_passwords(words))
        raise BuildFailed("%s failed: %s" % (what, without_passwords(words)))

    def _no_python(self, wish: str, words: str) -> str:
        there = ["%s (%s)" % (version, path) for version, path in pythons.listing(self.env)]
        why = (
            "none could be fetched: %s" % words
            if "ownload" in words or "Request" in words
            else "none could be fetched"
        )
        if "No interpreter found" in words or "No download found" in words:
            why = "there is none to fetch for this platform"
        return "there is no Python %s on this machine, and %s. Here are: %s" % (
            wish,
            without_passwords(why),
            ", ".join(there[:12]) or "none",
        )


def free_bytes(folder: str) -> int:
    """What the disk of that folder has left for us."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return 1 << 62  # then nobody knows, and the build will see
    return space.f_bavail * space.f_frsize


def check_room(folder: str, needed: int = 0) -> None:
    """Raises BuildFailed where a build would only fill the disk."""
    if free_bytes(folder) < max(_ROOM, needed):
        raise BuildFailed(no_room(folder, needed))


def no_room(folder: str, needed: int = 0) -> str:
    """That the disk is full, in words."""
    text = "there is no room for the environment: %s are left on the disk of %s" % (
        in_units(free_bytes(folder)),
        folder,
    )
    if needed:
        text += ", and %s are still to be downloaded" % in_units(needed)
    return text + "; `dray gc` clears away what no run needs"


def in_units(size: int) -> str:
    """16.1 MB."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    number = float(size)
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return "%d bytes" % size if units[0] == "bytes" else "%.1f %s" % (number, units[0])
