"""A run's own layer on the environment that it shares with others: whatever the run installs lands there, and goes with the run.

It is a virtual environment made by hand, in milliseconds: its Python is that of the environment, which comes behind it on the path.
`pip install` and `uv pip install` find nothing else to write to. Editable folders of the code are in front of it.
"""

from __future__ import annotations

import glob
import os
from typing import Any, Iterable, List, Mapping

from ..files import make_folder, read_text, remove_tree

FOLDER = "overlay"
"""In the run folder."""

_MOST_SCRIPT = 64 * 1024
_MOST_MIRRORED = 2000


def make(
    folder: str, facts: Mapping[str, Any], code: str, editable: Iterable[str], uv: str | None, tools: str
) -> str | None:
    """Lay it out at `folder` (`tools` is where pip may lie unpacked); returns its Python. None when that Python cannot be layered (before 3.3), and is used as it is."""
    python = str(facts["python"])
    shared = os.path.dirname(os.path.dirname(python))
    packages = site_packages(shared)
    if packages is None or str(facts.get("version") or "").startswith("2."):
        return None
    remove_tree(folder)
    programs = os.path.join(folder, "bin")
    mine = os.path.join(folder, os.path.relpath(packages, shared))
    make_folder(programs)
    make_folder(mine)
    real = os.path.join(shared, "bin", os.readlink(python)) if os.path.islink(python) else python
    names = {"python", "python3", "python" + ".".join(str(facts.get("version") or "3").split(".")[:2])}
    for name in names:
        os.symlink(real, os.path.join(programs, name))
    with open(os.path.join(folder, "pyvenv.cfg"), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(_settings(shared, real, str(facts.get("version") or "")))
    _put_on_the_path(mine, packages, code, editable)
    for name in facts.get("scripts") or ():
        _copy_script(
            os.path.join(shared, "bin", str(name)), os.path.join(programs, str(name)), python, folder
        )
    if not os.path.exists(os.path.join(shared, "bin", "pip")):
        _bring_pip(programs, mine, uv, tools)
    _mirror(shared, folder, _beside(shared))
    return os.path.join(programs, "python")


def site_packages(prefix: str) -> str | None:
    """Where the packages of an environment lie."""
    found = sorted(glob.glob(os.path.join(glob.escape(prefix), "lib", "py*", "site-packages")))
    return found[-1] if found else None


def scripts(prefix: str) -> List[str]:
    """Names of the programs in an environment that would start its own Python."""
    found = []
    python = os.fsencode(os.path.join(prefix, "bin", "python"))
    with os.scandir(os.path.join(prefix, "bin")) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and entry.stat().st_size <= _MOST_SCRIPT:
                with open(entry.path, "rb") as file:
                    head = file.read(512)
                if head.startswith(b"#!") and python in head:
                    found.append(entry.name)
    return sorted(found)


def _settings(shared: str, real: str, version: str) -> str:
    """`pyvenv.cfg`: as the environment's own says, if it is a virtual one itself."""
    home = os.path.dirname(real)
    for line in read_text(os.path.join(shared, "pyvenv.cfg")).splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            home = value.strip()
    return "home = %s\ninclude-system-site-packages = false\nversion = %s\n" % (home, version)


def _put_on_the_path(mine: str, shared: str, code: str, editable: Iterable[str]) -> None:
    """By `.pth` files, which are read in the order of their names: the run's code before the environment."""
    lines = []
    for path in editable:
        place = os.path.normpath(os.path.join(code, str(path)))
        if place == code or place.startswith(code + os.sep):
            source = os.path.join(place, "src")
            lines.append(source if os.path.isdir(source) else place)
    if lines:
        _write(os.path.join(mine, "dray-code.pth"), "".join(line + "\n" for line in lines))
    # Not the mere path: the environment may have `.pth` files of its own.
    _write(os.path.join(mine, "dray-environment.pth"), "import site; site.addsitedir(%r)\n" % shared)


def _copy_script(source: str, target: str, python: str, folder: str) -> None:
    """A program of the environment, started by the run's Python."""
    with open(source, "rb") as file:
        text = file.read()
    first, _, rest = text.partition(b"\n")
    if first == b"#!/bin/sh":  # the form for paths that are long, or have blanks
        _, _, rest = rest.partition(b"\n' '''\n")
    mine = os.fsencode(os.path.join(folder, "bin", "python"))
    quoted = mine.replace(b"'", b"'\"'\"'")
    head = b"#!/bin/sh\n'''exec' '%s' \"$0\" \"$@\"\n' '''\n" % quoted
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
    with open(fd, "wb") as file:
        file.write(head + rest)


def _bring_pip(programs: str, mine: str, uv: str | None, tools: str) -> None:
    """An environment holds what was asked for, which seldom is pip; scripts and people call it all the same.

    Python brings the one that it would put into a new environment, as a wheel, which runs as it is; else uv stands in for it.
    """
    wheel = bundled_pip(os.path.dirname(programs))
    if wheel:
        unpacked = os.path.join(tools, os.path.basename(wheel)[: -len(".whl")])
        at_hand = unpacked if os.path.isdir(unpacked) else wheel
        _write(os.path.join(mine, "dray-pip.pth"), at_hand + "\n")
        command = "'%s' -m pip" % os.path.join(programs, "python").replace("'", "'\"'\"'")
    elif uv:
        command = "'%s' pip" % uv.replace("'", "'\"'\"'")
    else:
        return
    for name in ("pip", "pip3"):
        path = os.path.join(programs, name)
        _write(path, '#!/bin/sh\nexec %s "$@"\n' % command)
        os.chmod(path, 0o700)


def bundled_pip(prefix: str) -> str | None:
    """The wheel of pip that came with the Python of the virtual environment at `prefix`."""
    home = ""
    for line in read_text(os.path.join(prefix, "pyvenv.cfg")).splitlines():
        name, _, value = line.partition("=")
        home = os.path.dirname(value.strip()) if name.strip() == "home" else home
    packages = site_packages(prefix)
    if not home or packages is None:
        return None
    lib = os.path.basename(os.path.dirname(packages))
    for place in (os.path.join(home, "lib", lib, "ensurepip", "_bundled"), "/usr/share/python-wheels"):
        found = sorted(glob.glob(os.path.join(glob.escape(place), "pip-*.whl")))
        if found:
            return found[-1]
    return None


def unpack_pip(prefix: str, tools: str) -> None:
    """Have the pip of that environment's Python at hand as files: out of the wheel it takes three times as long, each time."""
    wheel = bundled_pip(prefix)
    if wheel is None:
        return
    place = os.path.join(tools, os.path.basename(wheel)[: -len(".whl")])
    if os.path.isdir(place):
        return
    import zipfile

    make_folder(tools)
    beside = "%s.%s.new" % (place, os.urandom(4).hex())
    try:
        with zipfile.ZipFile(wheel) as file:
            file.extractall(beside)
        os.rename(beside, place)
    except (OSError, zipfile.BadZipFile):
        remove_tree(beside)  # somebody was faster, or the wheel will have to do


def _beside(shared: str) -> List[str]:
    """Folders that programs look for beside their Python: data and settings."""
    return [name for name in ("share", "etc") if os.path.isdir(os.path.join(shared, name))]


def _mirror(shared: str, folder: str, ahead: List[str]) -> None:
    """Real folders, so that an installation can add to them, with links to the files. What is too much is one link."""
    made = 0
    while ahead:
        below: List[str] = []
        for place in ahead:
            mine = os.path.join(folder, place)
            if made > _MOST_MIRRORED:
                os.symlink(os.path.join(shared, place), mine)
                continue
            make_folder(mine)
            with os.scandir(os.path.join(shared, place)) as entries:
                for entry in entries:
                    made += 1
                    if entry.is_dir(follow_symlinks=False):
                        below.append(place + "/" + entry.name)
                    else:
                        os.symlink(entry.path, os.path.join(mine, entry.name))
        ahead = below


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
