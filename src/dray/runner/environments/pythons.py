"""Programs of this machine, and its Pythons: on the user's PATH, and where version managers keep theirs."""

from __future__ import annotations

import os
import sys
from typing import Dict, Iterable, List, Mapping, Optional

_KEPT = (
    "~/.pyenv/versions/*/bin",
    "~/.asdf/installs/python/*/bin",
    "~/.local/share/mise/installs/python/*/bin",
)
_CONDAS = (
    "~/miniforge3",
    "~/mambaforge",
    "~/miniconda3",
    "~/anaconda3",
    "~/micromamba",
    "/opt/conda",
    "/opt/miniconda3",
)
_UVS = ("~/.local/bin/uv", "~/.cargo/bin/uv", "/usr/local/bin/uv")


def find_program(names: Iterable[str], path: str) -> str | None:
    """The first of `names` that is executable on `path`."""
    for name in names:
        for folder in path.split(":"):
            candidate = os.path.join(folder or ".", name)
            if is_program(candidate):
                return candidate
    return None


def is_program(path: str) -> bool:
    """Whether it can be started."""
    return os.access(path, os.X_OK) and os.path.isfile(path)


def machine_python(path: str) -> str | None:
    """The Python of this machine for runs that bring none."""
    return find_program(["python", "python3"], path)


def python3(path: str) -> str | None:
    """The Python 3 of that path."""
    return find_program(["python3", "python"], path)


def own_python() -> str:
    """The one that runs this, by its real name: it is there, and the same one under all its names."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def own_version() -> str:
    """Of the Python that runs this."""
    return "%d.%d.%d" % sys.version_info[:3]


def tag(python: str) -> str:
    """A short name for an interpreter that would have to be started to tell its version."""
    import zlib

    return "%s_%08x" % (os.path.basename(python)[-20:], zlib.crc32(os.fsencode(python)))


def search_path(environ: Mapping[str, str]) -> str:
    """PATH with the folders where version managers keep Pythons; their shims, which are none, are left out."""
    import glob

    own = [f for f in environ.get("PATH", os.defpath).split(":") if not f.rstrip("/").endswith("/shims")]
    home = environ.get("HOME") or os.path.expanduser("~")
    for pattern in _KEPT:
        # The newest first, as a person would choose; not those of Python 2, at which uv stops.
        kept = [folder for folder in glob.glob(_at_home(pattern, home)) if is_program(folder + "/python3")]
        own += sorted(kept, key=_by_version, reverse=True)
    return ":".join(own)


def find_uv(environ: Mapping[str, str]) -> str | None:
    """The user's own uv, also where PATH does not lead."""
    found = find_program(["uv"], environ.get("PATH", os.defpath))
    places = (_at_home(place, environ.get("HOME") or "") for place in _UVS)
    return found or next((place for place in places if is_program(place)), None)


def find_conda(environ: Mapping[str, str]) -> str | None:
    """micromamba, mamba or conda: what solves quickest first."""
    path = environ.get("PATH", os.defpath)
    for name, variable in (("micromamba", "MAMBA_EXE"), ("mamba", "MAMBA_EXE"), ("conda", "CONDA_EXE")):
        said = environ.get(variable) or ""
        found = find_program([name], path) or (
            said if os.path.basename(said) == name and is_program(said) else None
        )
        for folder in _CONDAS if found is None else ():
            place = os.path.join(_at_home(folder, environ.get("HOME") or ""), "bin", name)
            if is_program(place):
                return place
        if found:
            return found
    return None


def listing(environ: Mapping[str, str]) -> List[List[str]]:
    """`[[version, path], ...]` of every Python 3 that a run could be built on, the newest first."""
    import glob
    import subprocess

    found: Dict[str, str] = {}
    for folder in search_path(environ).split(":"):
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "python3*"))):
            plain = os.path.basename(path)[len("python3") :].lstrip(".")
            if (plain.isdigit() or not plain) and is_program(path):
                found.setdefault(os.path.realpath(path), path)
    found.setdefault(own_python(), own_python())
    rows = []
    for path in found.values():
        words = [path, "-I", "-S", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"]
        try:
            said = subprocess.run(
                words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10, check=False
            ).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        version = said.decode(errors="replace").strip()
        if version.replace(".", "").isdigit():
            rows.append([version, path])
    return sorted(rows, key=lambda row: _numbers(row[0]), reverse=True)


def libc() -> Optional[List[str]]:
    """`["glibc", "2.36"]`; None where the machine does not tell."""
    import glob

    try:
        said = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        said = ""
    words = said.split()
    if len(words) == 2:
        return words
    return ["musl", ""] if glob.glob("/lib/ld-musl-*") else None


def _at_home(path: str, home: str) -> str:
    return home + path[1:] if path.startswith("~") else path


def _by_version(folder: str) -> List[int]:
    return _numbers(os.path.basename(os.path.dirname(folder)))


def _numbers(version: str) -> List[int]:
    return [int(word) for word in version.split(".") if word.isdigit()]


def check(python: str, path: str) -> None:
    """Raise BuildFailed unless that is an interpreter, with the ones of `path` to choose from."""
    import subprocess

    from . import BuildFailed

    there = python3(path)
    instead = "; on PATH there is %s" % there if there else ""
    if not os.path.exists(python):
        raise BuildFailed("there is no `%s` on this machine%s" % (python, instead))
    if not is_program(python):
        raise BuildFailed("`%s` cannot be executed by this user%s" % (python, instead))
    words = [python, "-I", "-S", "-c", "import sys; print('python %d' % sys.version_info[0])"]
    try:
        said = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        said = b""
    if not said.startswith(b"python "):
        raise BuildFailed("`%s` is a program, but no Python%s" % (python, instead))
