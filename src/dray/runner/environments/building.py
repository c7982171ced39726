"""Makes the environment of one run, or finds it made. Read `Builder.provide` first."""

from __future__ import annotations

import os
import stat
import time
from typing import Any, Dict, Mapping, Optional, Tuple

from ..files import dump, make_folder, read_json, read_text, remove_tree, write_once
from ..work import Work
from . import BuildFailed, Stopped, conda, fingerprint, frozen, overlay, pythons, variables, waiting
from .conda import Conda
from .place import Place, facts_of, generation_of
from .provisions import WHEELS, Provisions
from .said import step
from .uv import Uv, check_room

Lock = Optional[Tuple[str, str]]
"""(kind, text) of what was resolved."""

_SENT_GROWS = 3  # a wheel takes up to about so many times its size when it is unpacked


class Builder:
    """Means and wishes of one run."""

    def __init__(
        self, work: Work, spec: Mapping[str, Any], provisions: Optional[Provisions], place: Place
    ) -> None:
        """`place` is where it lies, or will."""
        self.work = work
        self.wanted: Dict[str, Any] = spec["environment"]
        self.refresh = bool(spec.get("refresh"))
        self.provisions = provisions or Provisions({})
        wheels = os.path.join(work.folder.path, WHEELS)
        self.wheels = wheels if os.path.isdir(wheels) else None
        self.place = place
        self._began = time.time()

    def provide(self) -> Dict[str, Any]:
        """Facts of the environment, which was not there or is to be resolved anew; `built_s` is None if another run was quicker.

        Raises BuildFailed or Stopped.
        """
        make_folder(self.work.machine.environments)
        lock, before = waiting.take(self.place, self.work, self._is_enough)
        try:
            facts = self.place.ready()
            if facts is None and lock is None:  # gone again in this very moment
                return self.provide()
            if facts is None or (self.refresh and facts.get("built", 0.0) < self._began):
                waiting.let_die(before, self.work)
                facts = self._build(facts)
            else:
                facts["built_s"] = None
        finally:
            if lock is not None:
                os.close(lock)
        if self.wheels:
            remove_tree(self.wheels)
        return facts

    def _is_enough(self) -> bool:
        """Whether another run has built it meanwhile."""
        return not self.refresh and self.place.is_complete() and self.place.ready() is not None

    # -- building, under the lock

    def _build(self, present: Optional[Dict[str, Any]]) -> Dict[str, Any]:
        """`present`: what is there, whole, and is to be resolved anew."""
        began = time.monotonic()
        self._prepare()
        kept = self.place.frozen()
        generation = generation_of(kept)
        exactly = self._exactly(kept)
        if present is not None and exactly is None and not self.wanted.get("conda"):
            resolved = self._resolve(present["python"], str(present.get("version") or ""))
            if resolved == (kept.get("kind"), kept.get("text")):
                self.work.note("resolved again: the same packages as before")
                return dict(present, built_s=None)
            exactly = resolved
        if present is not None or facts_of(self.place.folder(generation)) is not None:
            # Somebody may be using what lies there, damaged or not: it is left to `dray gc`.
            if present is None:
                self.work.note("the environment was damaged since it was built; building it again")
                os.unlink(os.path.join(self.place.folder(generation), "complete"))
            generation += 1
        folder = self.place.folder(generation)
        remove_tree(folder)
        try:
            facts = self._make(folder, generation, exactly)
        except (BuildFailed, Stopped):
            remove_tree(folder)  # nobody can use it; a build that was killed is swept by the next one
            raise
        facts["built_s"] = round(time.monotonic() - began, 2)
        self._finish(folder, facts)
        self.place.freeze(facts["lock_kind"], facts.pop("text"), generation)
        return facts

    def _prepare(self) -> None:
        sent = sum(os.stat(entry.path).st_size for entry in os.scandir(self.wheels)) if self.wheels else 0
        check_room(self.work.machine.environments, sent * _SENT_GROWS)
        env = variables.with_pip_settings(variables.build_variables(self.work.environ))
        env = variables.with_index(env, self.wanted.get("index") or {}, self.provisions.credentials)
        mask = variables.hidden(env, self.provisions.credentials)
        program = self.provisions.uv(self.work.machine, self.work.environ)
        if program and program.startswith(self.work.machine.folder + os.sep):
            # A uv of ours leaves nothing outside of our folder, so that all of it can be taken away again.
            env.setdefault("UV_CACHE_DIR", os.path.join(self.work.machine.folder, "tools", "cache"))
            env.setdefault(
                "UV_PYTHON_INSTALL_DIR", os.path.join(self.work.machine.folder, "tools", "pythons")
            )
        self._uv = Uv(program, self.work, env, mask, self.wheels) if program else None
        self._conda = Conda(self.work, env, mask, self._uv)

    @property
    def uv(self) -> Uv:
        """Raises BuildFailed where there is none."""
        if self._uv is None:
            raise BuildFailed(
                "`uv` (0.8 or newer) is needed to build the environment, is not on this machine, and did not come along"
            )
        return self._uv

    def _exactly(self, kept: Mapping[str, Any]) -> Lock:
        """(kind, text) of what is to be installed without asking anybody: the submit's own lock, else what was frozen."""
        if self.wanted.get("lock"):
            return str(self.wanted.get("lock_kind") or frozen.PYLOCK), str(self.wanted["lock"])
        if self.refresh or not kept.get("text"):
            return None
        return str(kept.get("kind")), str(kept["text"])

    def _make(self, folder: str, generation: int, exactly: Lock) -> Dict[str, Any]:
        """Build it at `folder`; its facts, and the frozen text as `text`."""
        if self.wanted.get("conda") or (exactly and frozen.conda_packages(exactly[1])):
            return self._make_conda(folder, exactly)
        python = os.path.join(folder, "bin", "python")
        self.uv.make(self.place.asked_python, folder, self.wanted.get("python"))
        version = version_of(folder)
        kind, text = exactly or self._resolve(python, version)
        if exactly is None and generation == 1:
            self.place.freeze(
                kind, text, generation
            )  # a build that is killed from here on goes on with the same
        self._install(kind, text, python)
        return {
            "python": python,
            "version": version,
            "kind": "uv",
            "lock_kind": kind,
            "text": text,
            "packages": len(packages_in(folder)),
        }

    def _make_conda(self, folder: str, exactly: Lock) -> Dict[str, Any]:
        """The same with conda packages first, and what pip is asked for on top of them, as conda does it."""
        python = os.path.join(folder, "bin", "python")
        made = self._conda.make(self.wanted, exactly[1] if exactly else None, folder)
        if not os.access(python, os.X_OK):
            raise BuildFailed("the conda packages hold no Python")
        version = conda_version(folder)
        before = packages_in(folder)
        packages = [str(line) for line in self.wanted.get("packages") or ()]
        if exactly:
            text = exactly[1]
            self._install(frozen.REQUIREMENTS, text, python)
        else:
            if packages:
                self.uv.add(packages, python)
            lines = [_line_of(folder, *row) for row in packages_in(folder) if row not in before]
            channels = [str(c) for c in self.wanted.get("channels") or conda.DEFAULT]
            text = frozen.of_conda(channels, made, "\n".join(lines), version)
        return {
            "python": python,
            "version": version,
            "kind": "conda",
            "lock_kind": frozen.REQUIREMENTS,
            "text": text,
            "packages": frozen.count(frozen.REQUIREMENTS, text),
            "variables": self._activated(folder),
        }

    def _install(self, kind: str, text: str, python: str) -> None:
        if kind == frozen.PYLOCK or frozen.has_requirements(text):
            self.work.tell("progress", **step("installing", 0, frozen.count(kind, text)))
            self.uv.install(kind, text, python)

    def _resolve(self, python: str, version: str | None) -> Tuple[str, str]:
        """(kind, text) of what the wanted packages come down to now."""
        packages = [str(line) for line in self.wanted.get("packages") or ()]
        if not packages:
            return frozen.REQUIREMENTS, frozen.head(version)
        kind, said = self.uv.solve(packages, python, as_pylock=True)
        return kind, frozen.of_uv(kind, said, version)

    def _activated(self, prefix: str) -> Dict[str, str]:
        """What the activation scripts of conda packages would set."""
        scripts = conda.activation(prefix)
        if not scripts or not pythons.is_program("/bin/bash"):
            return {}
        out = os.path.join(self.work.folder.attempt(self.work.number), "environment", "activated")
        text = 'for s in "$@"; do . "$s"; done; exec cat /proc/self/environ > \'%s\'' % out.replace(
            "'", "'\"'\"'"
        )
        env = {"PATH": os.path.join(prefix, "bin") + ":" + os.defpath, "CONDA_PREFIX": prefix}
        env["HOME"] = self.work.environ.get("HOME", "/")
        self.work.run("activating", ["/bin/bash", "-c", text, "bash", *scripts], env)
        rows = (row.partition("=") for row in read_text(out).split("\0"))
        old = {*env, "PWD", "SHLVL", "_", "OLDPWD", "DRAY_RUN_ID"}
        return {name: value for name, eq, value in rows if eq and name not in old}

    def _finish(self, folder: str, facts: Dict[str, Any]) -> None:
        """Shut it, and say in its marker, at last, that it is complete."""
        self.work.tell("progress", **step("checking"))
        spec = {name: value for name, value in self.wanted.items() if name != "lock"}
        facts.update(
            name=os.path.basename(folder),
            digest=self.wanted["digest"],
            built=time.time(),
            spec=spec,
            lock=frozen.digest(facts["text"]),
            scripts=overlay.scripts(folder),
            fingerprint=fingerprint.take(folder),
        )
        overlay.unpack_pip(folder, os.path.join(self.work.machine.folder, "tools"))
        _shut(os.path.join(folder, "lib"))
        _shut(os.path.join(folder, "bin"))
        marker = {name: value for name, value in facts.items() if name != "text"}
        write_once(os.path.join(folder, "complete"), dump(marker))


def _shut(folder: str) -> None:
    """Nothing is added to it or taken away by accident: its folders are only read from now on."""
    for place, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if not os.path.islink(os.path.join(place, name))]
        os.chmod(place, stat.S_IMODE(os.stat(place).st_mode) & ~0o222)


def version_of(folder: str) -> str | None:
    """The version that a virtual environment's own notes give."""
    for line in read_text(os.path.join(folder, "pyvenv.cfg")).splitlines():
        name, _, value = line.partition("=")
        if name.strip() in ("version_info", "version"):
            return ".".join(value.strip().split(".")[:3])
    return None


def conda_version(prefix: str) -> str | None:
    """The version of the Python among conda packages."""
    for package in conda.installed(prefix):
        name, version, _ = package.parts
        if name == "python":
            return version
    return version_of(prefix)


def packages_in(prefix: str) -> "list[list[str]]":
    """`[[name, version], ...]` of the Python packages that are installed there."""
    place = overlay.site_packages(prefix)
    names = sorted(os.listdir(place)) if place else []
    ends = ".dist-info"
    return [name[: -len(ends)].split("-", 1) for name in names if name.endswith(ends) and "-" in name]


def _line_of(prefix: str, name: str, version: str) -> str:
    """How to have that installed package again."""
    place = overlay.site_packages(prefix) or ""
    said = read_json(os.path.join(place, "%s-%s.dist-info" % (name, version), "direct_url.json"))
    plain = _name_of(name)
    return "%s @ %s" % (plain, said["url"]) if said and said.get("url") else "%s==%s" % (plain, version)


def _name_of(line: str) -> str:
    """The normal name of the package in a requirement."""
    import re

    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)
    return re.sub(r"[-_.]+", "-", found[1]).lower() if found else ""
