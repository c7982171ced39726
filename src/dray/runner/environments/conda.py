"""Packages of conda channels: by the micromamba, mamba or conda that the machine has, else by `py-rattler`, which uv installs as a tool.

Channels count in their order, strictly: what the first one has is not taken from a later one.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from typing import Any, Dict, List, Mapping, Optional

from ..files import dump, make_folder, read_json, remove_tree, write_once
from ..work import Work
from . import BuildFailed, Stopped, frozen, pythons, said
from .frozen import CondaPackage
from .said import Watch, step
from .uv import Uv, no_room
from .variables import without_passwords

RATTLER = "py-rattler==0.28.0"
DEFAULT = ["conda-forge"]


class Conda:
    """The conda half of one build."""

    def __init__(self, work: Work, env: Dict[str, str], mask: List[str], uv: Optional[Uv]) -> None:
        """`uv` brings py-rattler, where nothing else is there."""
        self.work = work
        self.env = env
        self.mask = mask
        self.uv = uv
        self.program = pythons.find_conda(env)
        self._scratch = os.path.join(work.folder.attempt(work.number), "environment")

    def make(self, wanted: Mapping[str, Any], exactly: Optional[str], folder: str) -> List[CondaPackage]:
        """Fill `folder` with what is wanted, or `exactly` what a frozen text says. Raises BuildFailed or Stopped."""
        channels = [str(c) for c in wanted.get("channels") or ()] or DEFAULT
        channels = frozen.channels(exactly or "") or channels
        specs = [str(s) for s in wanted.get("conda") or ()]
        if not any(
            spec.split("=")[0].split(" ")[0].split("[")[0].split("::")[-1] == "python" for spec in specs
        ):
            specs.append("python" + (" %s.*" % wanted["python"] if wanted.get("python") else ""))
        packages = frozen.conda_packages(exactly or "")
        os.makedirs(self._scratch, mode=0o700, exist_ok=True)
        self.work.tell("progress", **step("solving", text=os.path.basename(self.program or "py-rattler")))
        if self.program:
            self._by_program(specs, channels, packages, folder)
        else:
            self._by_rattler(specs, channels, packages, folder)
        made = installed(folder)
        _compare(packages, made)
        return made

    def _by_program(
        self, specs: List[str], channels: List[str], exactly: List[CondaPackage], folder: str
    ) -> None:
        argv = [str(self.program), "create", "--yes", "--prefix", folder]
        if exactly:
            path = os.path.join(self._scratch, "explicit.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("@EXPLICIT\n" + "".join("%s\n" % package.url for package in exactly))
            argv += ["--file", path]
        else:
            argv += ["--override-channels", "--strict-channel-priority"]
            argv += [word for channel in channels for word in ("--channel", channel)]
            argv += specs
        self._run("installing conda packages by %s" % os.path.basename(argv[0]), argv, self.env)

    def _by_rattler(
        self, specs: List[str], channels: List[str], exactly: List[CondaPackage], folder: str
    ) -> None:
        order = {
            "specs": ["%s ==%s %s" % tuple(package.parts) for package in exactly] or specs,
            "channels": channels,
            "exactly": [[package.url, package.sha256] for package in exactly],
            "prefix": folder,
            "cache": os.path.join(self.work.machine.folder, "tools", "conda-packages"),
        }
        path = os.path.join(self._scratch, "conda.json")
        with open(path, "wb") as file:
            file.write(dump(order))
        python = self._tool()
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rattler.py")
        # Its own Python, and nothing of the user's: -I also keeps this folder's modules from hiding others.
        self._run("installing conda packages", [python, "-I", program, path], self.env)

    def _tool(self) -> str:
        """The Python that has py-rattler, made once for each user. Raises BuildFailed."""
        folder = os.path.join(self.work.machine.folder, "tools", RATTLER.replace("==", "-"))
        python = os.path.join(folder, "bin", "python")
        if read_json(folder + "/complete") and os.access(python, os.X_OK):
            return python
        if self.uv is None:
            raise BuildFailed(
                "conda packages are wanted, and neither micromamba, mamba, conda nor uv is on this machine"
            )
        make_folder(os.path.dirname(folder))
        lock = os.open(folder + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for(lock)
            if not read_json(folder + "/complete"):
                remove_tree(folder)
                base = pythons.own_python() if sys.version_info >= (3, 10) else ">=3.10"
                try:
                    self.uv.make(base, folder, None)
                    self.uv.add([RATTLER], python)
                except BuildFailed as trouble:
                    raise BuildFailed(
                        "conda packages are wanted, neither micromamba, mamba nor conda is on this machine, and "
                        "py-rattler, which would do instead, could not be installed: %s" % trouble
                    ) from None
                write_once(folder + "/complete", dump({"tool": RATTLER}))
        finally:
            os.close(lock)
        return python

    def _wait_for(self, lock: int) -> None:
        import time

        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not self.work.may_go_on():
                    raise Stopped from None
                time.sleep(0.1)

    def _run(self, what: str, argv: List[str], env: Dict[str, str]) -> None:
        watches: List[Watch] = []

        def look(log: str, since: int) -> bool:
            if not watches:
                watches.append(Watch(log, since))
            news = watches[0].news()
            if news:
                self.work.tell("progress", **news)
            return False

        seen = self.work.run(what, argv, env, mask=self.mask, look=look)
        if seen.get("stopped"):
            raise Stopped
        if seen.get("code") != 0:
            words = str(seen.get("last") or "see its log")
            if said.is_full(words):
                raise BuildFailed(no_room(self.work.machine.environments))
            raise BuildFailed("%s failed: %s" % (what, without_passwords(words)))


def installed(prefix: str) -> List[CondaPackage]:
    """What lies in a conda environment, Python first: others need it to be linked."""
    found = []
    folder = os.path.join(prefix, "conda-meta")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                facts = json.load(file)
            package = CondaPackage(
                str(facts.get("url") or ""), str(facts.get("sha256") or facts.get("md5") or "")
            )
            found.append((facts.get("name") != "python", package))
    return [package for _, package in sorted(found, key=lambda row: row[0])]


def activation(prefix: str) -> List[str]:
    """Scripts that conda would run when somebody activates the environment."""
    folder = os.path.join(prefix, "etc", "conda", "activate.d")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if name.endswith(".sh")]


def _compare(wanted: List[CondaPackage], made: List[CondaPackage]) -> None:
    """Raises BuildFailed where something else came than was frozen."""
    got = {os.path.basename(package.url): package.sha256 for package in made}
    for package in wanted:
        name = os.path.basename(package.url)
        if name not in got:
            raise BuildFailed(
                "the frozen conda package `%s` was not installed; `--refresh` resolves again" % name
            )
        if len(package.sha256) == len(got[name]) and package.sha256 != got[name]:
            raise BuildFailed("`%s` is not what it was when it was frozen; `--refresh` resolves again" % name)
