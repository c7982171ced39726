"""Locks: what somebody has resolved already, to be installed exactly so. `uv.lock`, `pylock.toml`, and frozen lists.

Read `read_uv_lock` and `read_pylock`. What a lock says of folders and files of this machine is taken out: projects inside the code
folder are used from the run's code, anything else could not be found elsewhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from dray.core.errors import printable
from dray.environments.errors import EnvironmentSyntax, LockOutdated, Place, UnsupportedRequirement
from dray.environments.gathering import Found, Gathering
from dray.environments.nodes import read_text
from dray.environments.projects import python_wish, toml
from dray.environments.requirements import cut_hashes, pip_requirement, refuse_credentials

UV_LOCK, PYLOCK = "uv.lock", re.compile(r"pylock(?:\.[^.]+)?\.toml")
_EXACT = re.compile(r"^[a-z0-9.\[\],-]*[a-z0-9\]]===?[^=,*]+$| @ |^[a-z+]+://")
_OWN = re.compile(r"^# (?:dray|conda|channel)\b", re.MULTILINE)
_UV_S = 120


def read_uv_lock(path: Path, gathering: Gathering) -> Found:
    """The lock of a uv project, written by uv itself as a pylock; groups as `uv run` takes them."""
    toml(path)  # broken TOML is told with its line, not in uv's words
    folder = path.parent.resolve()
    if not (folder / "pyproject.toml").is_file():
        raise LockOutdated(
            path,
            "the pyproject.toml that it is for is not beside it",
            "uv export --format pylock.toml -o pylock.toml",
        )
    words = ["export", "--format", "pylock.toml", "--locked", "--no-emit-local", "--no-header", "--quiet"]
    for option, names in (("--extra", gathering.wish.extras), ("--group", gathering.wish.groups)):
        words += [word for name in names for word in (option, name)]
    text = _uv(words, folder, path)
    for source in _local_sources(toml(path)):
        where = (folder / source).resolve()
        if where.is_relative_to(gathering.top):
            gathering.editable(where)
        else:
            raise UnsupportedRequirement(
                Place(path),
                source,
                f"it is not in the code folder {printable(str(gathering.top))}, so it does not travel",
            )
    return _locked(text, path, gathering)


def read_pylock(path: Path, gathering: Gathering) -> Found:
    """A lock of the standard's form (PEP 751), whoever wrote it."""
    text = read_text(path)
    data = toml(path)
    if not str(data.get("lock-version", "")).startswith("1.") or not isinstance(data.get("packages"), list):
        raise EnvironmentSyntax(
            Place(path),
            "it is no lock of version 1 (PEP 751): `lock-version` and `[[packages]]` belong in it",
        )
    for package in data["packages"]:
        for name in ("directory", "archive"):
            local = package.get(name, {}).get("path")
            if local:
                raise UnsupportedRequirement(
                    Place(path),
                    f"{package.get('name')} from {local}",
                    "it lies on this machine; it would not be found elsewhere",
                    hint="leave it out when you export: uv export --format pylock.toml --no-emit-local -o pylock.toml",
                )
    return _locked(text, path, gathering)


def read_frozen(path: Path) -> tuple[str, str, str | None]:
    """`(lock, kind, its Python)` of a file given as a lock: a pylock, or a list in which every version is exact."""
    if path.name == UV_LOCK:
        raise LockOutdated(path, "it is read as an environment of its own", f"--env {path.name}")
    text = read_text(path)
    refuse_in_lock(text, path)
    if path.suffix == ".toml" or text.startswith("lock-version") or "\nlock-version" in text:
        data = toml(path)
        if not isinstance(data.get("packages"), list):
            raise EnvironmentSyntax(Place(path), "it is no lock: `[[packages]]` belongs in it")
        return (
            plain(text),
            "pylock",
            python_of(text, exact=True) or python_wish(str(data.get("requires-python") or ""), path),
        )
    lines = []
    for number, raw in enumerate(text.replace("\\\n", " ").splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        if line:
            lines.append(_exact(line, Place(path, number)))
    if _OWN.search(text):
        return text, "requirements", python_of(text)  # conda's packages stand in its remarks, in their order
    if not lines:
        raise EnvironmentSyntax(Place(path), "it is empty")
    return "\n".join(sorted(lines)) + "\n", "requirements", None


def _exact(line: str, place: Place) -> str:
    """One line of a frozen list, normalised."""
    wanted, hashes = cut_hashes(line)
    _, requirement = pip_requirement(wanted, place)
    if not _EXACT.search(requirement.partition(" ; ")[0]):
        raise EnvironmentSyntax(
            place,
            f"`{printable(line[:80])}` is not exact, as every line of a lock has to be",
            hint="dray env lock RUN > lock.txt writes one",
        )
    return " ".join([requirement, *(f"--hash={one}" for one in sorted(hashes))])


def python_of(text: str, *, exact: bool = False) -> str | None:
    """The Python that a lock of dray's own was made with: 3.11. A pylock, `exact`, also wants a last number that is not lower."""
    found = re.search(r"^# dray: python (\d+)\.(\d+)(\.\d+)?", text, re.MULTILINE)
    if found is None:
        return None
    major, minor, rest = found.groups()
    return f"<{major}.{int(minor) + 1},>={major}.{minor}{rest}" if exact and rest else f"{major}.{minor}"


def plain(text: str) -> str:
    """A pylock without its opening remarks, which name commands and paths of the machine where it was made."""
    text = text.replace("\r\n", "\n")
    # dray's own remarks say what the lock is good for.
    return text if text.startswith("# dray:") else re.sub(r"\A(?:\s*#[^\n]*\n|\s*\n)+", "", text)


def refuse_in_lock(text: str, path: Path) -> None:
    """Raise CredentialsInFile for an address in a lock that holds a password."""
    for number, line in enumerate(text.splitlines(), 1):
        if "://" in line:
            for address in re.findall(r"[a-z+]+://[^\s\"',]+", line):
                refuse_credentials(address, Place(path, number))


def _locked(text: str, path: Path, gathering: Gathering) -> Found:
    refuse_in_lock(text, path)
    text = plain(text)
    wanted = tomllib.loads(text).get("requires-python")
    if wanted:
        gathering.python = python_wish(str(wanted), path)
    found = gathering.environment(path)
    return replace(found, environment=replace(found.environment, packages=(), lock=text, lock_kind="pylock"))


def _local_sources(data: dict[str, Any]) -> list[str]:
    """Folders that the lock names as sources, the project's own first."""
    found = []
    for package in data.get("package", ()):
        source = package.get("source", {})
        local = source.get("editable") or source.get("directory")
        # A `virtual` project is no package: its script folder is on Python's path anyway.
        if isinstance(local, str):
            found.append(local)
    return found


def _uv(words: list[str], folder: Path, path: Path) -> str:
    """What uv answers. It runs nothing of the project's, and needs no network for a lock that fits."""
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise LockOutdated(path, "`uv`, which knows its form, is not on this machine", "pip install uv")
    try:
        done = subprocess.run(
            [uv, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_UV_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise LockOutdated(path, f"uv did not answer within {_UV_S} s", "uv lock") from None
    if done.returncode == 0:
        return done.stdout
    said = " ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
    said = re.sub(r"^.*?error: ", "", said).partition("hint:")[0].strip()
    if "needs to be updated" in said:
        raise LockOutdated(path, "it does not fit the pyproject.toml beside it", "uv lock")
    raise LockOutdated(path, printable(said[:300]) or "uv could not read it", "uv lock")
