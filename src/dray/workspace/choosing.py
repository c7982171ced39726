"""Which Python a run gets, decided before anything is sent: an environment, an existing interpreter, or the machine's own.

Read `choose`. The order: what was named with the submit, else the nearest file that says what is needed, else the Python of the target.
The reason is kept with the choice, because people have to be able to see it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dray.core.errors import UnknownName, UsageError, nearest, printable
from dray.core.interfaces import Target
from dray.core.spec import Environment
from dray.workspace.errors import NotAPython
from dray.workspace.python import users_python

if TYPE_CHECKING:
    from dray.environments import Found, Wish
    from dray.workspace.submission import Submission

_IS_VERSION = re.compile(r"\d+(?:\.\d+){0,2}")
_ASK_S = 20


@dataclass(frozen=True, slots=True)
class Choice:
    """What a run is started with, and why."""

    environment: Environment | None = None
    python: str | None = None
    """An existing interpreter; None with an environment, and where the target finds its own."""
    python_from: str = ""
    why: str = ""
    """Of the environment."""
    credentials: Mapping[str, str] = field(default_factory=dict)
    """For addresses of the index; never written down."""
    notes: tuple[str, ...] = ()


def choose(
    wish: Submission,
    target: Target,
    folder: Path,
    script: Path | None,
    home: Path,
    *,
    in_container: bool = False,
) -> Choice:
    """The Python of that submit. `folder` is the code folder. Raises in the user's words."""
    is_here = target.is_here and not in_container
    if wish.python and not _IS_VERSION.fullmatch(wish.python):
        return _existing(wish, "in the image" if in_container else None if is_here else f"on `{target.name}`")
    found, why = _found(wish, folder, script, home)
    if wish.python:
        environment = found.environment if found else Environment()
        version, note = _version(wish, folder)
        found = _with(found, replace(environment, python=version), note)
        why = why or "--python"
    if found is None:
        _refuse_words_without_environment(wish, folder)
        if wish.prepare:
            raise UsageError(
                "there is nothing to prepare",
                why=f"no file in {printable(str(folder))} says what is needed, and `--env` names none",
                hint="dray prepare --env requirements.txt",
            )
        return Choice(None, None, "image") if in_container else _targets_own(wish, target)
    environment, credentials = _adjusted(wish, found, folder)
    why += f", as locked in {wish.locked}" if wish.locked else ""
    return Choice(environment, None, "environment", why, credentials, found.notes)


def reading_wish(wish: Submission, folder: Path) -> Wish:
    """How files are to be read for that submit."""
    from dray.environments import Wish

    accepted = wish.upgrade_retired or os.environ.get("DRAY_UPGRADE_RETIRED", "") not in ("", "0")
    return Wish(folder, wish.extras, wish.groups, accepted)


def _found(wish: Submission, folder: Path, script: Path | None, home: Path) -> tuple[Found | None, str]:
    """The environment that was named or lies nearest, with the reason."""
    named = wish.environment
    if isinstance(named, Environment):
        from dray.environments.made import normalised

        return normalised(named, reading_wish(wish, folder)), "given in Python"
    if named == "none":
        return None, ""
    from dray.environments import find_environment_file

    if named is not None:
        file = Path(wish.cwd or os.getcwd()) / named
        if file.is_file():
            return _read(file, wish, folder), "--env"
        return _registered(named, file, home), "--env, registered"
    start = (script or folder / "x").parent
    nearest_file = find_environment_file(start, folder)
    if nearest_file is None:
        return None, ""
    beside = "the script" if script else "the command"
    where = (
        f"beside {beside}" if nearest_file.parent == Path(os.path.abspath(start)) else f"nearest to {beside}"
    )
    return _read(nearest_file, wish, folder), where


def _read(file: Path, wish: Submission, folder: Path) -> Found:
    from dray.environments import read_found

    return read_found(file, reading_wish(wish, folder))


def _registered(word: str, file: Path, home: Path) -> Found:
    from dray.environments import Found
    from dray.workspace.registered import Registered

    registered = Registered(home)
    found = registered.find(word)
    if found is not None:
        return Found(replace(found.environment, source=f"{found.name}:{found.version}"))
    try:
        files = sorted(os.listdir(file.parent))
    except OSError:
        files = []
    files = [name for name in files if name.endswith((".yml", ".yaml", ".txt", ".toml", ".lock"))]
    known = [str(Path(word).parent / name) if "/" in word else name for name in files]
    names = registered.names()
    kind = "environment file or registered environment" if names else "environment file"
    error = UnknownName(kind, word, [*known, *names])
    if not error.near and not known and not names:
        error.why = f"nor is there another one in `{printable(str(file.parent))}`"
    raise error


def _existing(wish: Submission, elsewhere: str | None) -> Choice:
    """`--python PATH`: used as it is, never changed. `elsewhere` is where it lies, if not on this machine."""
    python = str(wish.python)
    if wish.environment not in (None, "none"):
        raise UsageError(
            "either --env or an existing --python: nothing is ever installed into an existing one",
            hint="--python 3.12 (a version) beside --env wishes for a Python of that version",
        )
    if _needs_environment(wish):
        raise UsageError(
            f"{_needs_environment(wish)} is about an environment, and --python names an existing one"
        )
    if elsewhere:
        if not python.startswith("/"):
            raise UsageError(
                f"`{printable(python)}` is no absolute path",
                why=f"it is looked for {elsewhere}, where there is no current folder",
                hint="--python /opt/venv/bin/python",
            )
        return Choice(None, python, "--python")
    path = os.path.normpath(os.path.join(wish.cwd or os.getcwd(), os.path.expanduser(python)))
    if os.path.isdir(path):
        inside = os.path.join(path, "bin", "python")
        raise NotAPython(path, "it is a folder", f"--python {inside}" if os.access(inside, os.X_OK) else None)
    _ask(path)
    return Choice(None, path, "--python")


def _ask(path: str) -> None:
    """Raise NotAPython unless the program says that it is one."""
    if not os.path.exists(path):
        import glob

        known = [
            p for p in glob.glob(os.path.join(os.path.dirname(path), "python*")) if os.access(p, os.X_OK)
        ]
        near = nearest(path, known)
        raise NotAPython(path, "there is no such file", f"--python {near}" if near else None)
    if not os.access(path, os.X_OK):
        raise NotAPython(path, "it cannot be executed", None)
    import subprocess

    # A file of any kind may have been named: it is asked in a way that only a Python understands.
    words = [path, "-I", "-S", "-c", "import sys; print('python %d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_ASK_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as trouble:
        raise NotAPython(
            path, str(getattr(trouble, "strerror", None) or "it does not answer"), None
        ) from trouble
    if done.returncode != 0 or not done.stdout.startswith("python "):
        raise NotAPython(path, "it is a program, but no Python", None)


def _needs_environment(wish: Submission) -> str:
    """The first word of the submit that has a meaning with an environment only."""
    said = {
        "--extra": wish.extras, "--group": wish.groups, "--locked": wish.locked, "--offline-host": wish.offline_host,
        "--refresh": wish.refresh, "--torch": wish.torch, "--index-url": wish.index_url,
        "--extra-index-url": wish.extra_index_urls, "--find-links": wish.find_links,
    }  # fmt: skip
    return next((word for word, value in said.items() if value), "")


def _refuse_words_without_environment(wish: Submission, folder: Path) -> None:
    word = _needs_environment(wish)
    if word:
        raise UsageError(
            f"{word} is about an environment, and this run has none",
            why="it was switched off"
            if wish.environment == "none"
            else f"no file in {printable(str(folder))} says what is needed",
            hint="name one: --env FILE",
        )


def _adjusted(wish: Submission, found: Found, folder: Path) -> tuple[Environment, dict[str, str]]:
    """The environment with what the submit says of it: other indexes, a lock."""
    from dray.environments import Place
    from dray.environments.index import Index
    from dray.environments.locks import read_frozen

    environment, credentials = found.environment, dict(found.credentials)
    if wish.index_url or wish.extra_index_urls or wish.find_links:
        index = Index()
        said = environment.index
        index.index_url = said.get("index_url")
        index.extra_index_urls = list(said.get("extra_index_urls") or ())
        index.find_links = list(said.get("find_links") or ())
        place = Place(Path(wish.cwd or os.getcwd()) / "the command line")
        index.add_all(wish.index_url, wish.extra_index_urls, wish.find_links, place)
        credentials.update(index.credentials)
        environment = replace(environment, index=index.to_json())
    if wish.locked:
        lock, kind, python = read_frozen(Path(wish.cwd or os.getcwd()) / wish.locked)
        environment = replace(
            environment,
            packages=(),
            conda=(),
            channels=(),
            lock=lock,
            lock_kind=kind,
            python=python or environment.python,
        )
    return environment, credentials


def _version(wish: Submission, folder: Path) -> tuple[str | None, str | None]:
    """The version that `--python` wishes for, and what to tell about it. Raises RetiredPython."""
    from dray.environments import Place
    from dray.environments.retired import check_python

    return check_python(wish.python, Place(Path("--python")), reading_wish(wish, folder).upgrade_retired)


def _with(found: Found | None, environment: Environment, note: str | None) -> Found:
    from dray.environments import Found

    notes = (note,) if note else ()
    return (
        replace(found, environment=environment, notes=found.notes + notes)
        if found
        else Found(environment, notes=notes)
    )


def _targets_own(wish: Submission, target: Target) -> Choice:
    """Nothing is installed: the Python of this shell, or of the machine's."""
    if not target.is_here:
        return Choice(None, None, "machine")
    try:
        return Choice(None, *users_python(os.environ))
    except UsageError:
        if wish.script and wish.script.endswith(".py"):
            raise
        return Choice(None, None, "PATH")
