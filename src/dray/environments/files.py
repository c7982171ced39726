"""Reads the file that says what a script needs, whatever its kind.

Read `read_found`; which file it is says `finding`. One `Gathering` takes what all included files say; `conda` and `requirements` know single
lines, `nodes` knows YAML, `projects` knows pyproject.toml, `locks` knows locks.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from dray.core.errors import nearest, printable
from dray.core.spec import Environment
from dray.environments.channels import written
from dray.environments.conda import match_spec
from dray.environments.errors import EnvironmentFileError, EnvironmentSyntax, Place, UnsupportedRequirement
from dray.environments.finding import FILE_NAMES
from dray.environments.gathering import Found, Gathering, Wish
from dray.environments.nodes import EXAMPLE, at, is_mapping, items, pairs, parse, read_text, text_of
from dray.environments.requirements import cut_hashes, pip_requirement, refuse_credentials

if TYPE_CHECKING:
    import yaml

_KNOWN = ("name", "channels", "dependencies", "prefix", "variables")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s*=\s*|\s+|(?=[^\s=-]))(?P<path>.*)")
_EDITABLE = re.compile(
    r"(?:-e|--editable)(?:\s*=\s*|\s+|(?=[^\s=-]))(?P<path>[^\s\[]+)(?:\[(?P<extras>[^\]]*)\])?"
)
_EGG = re.compile(r"[#&]egg=(?P<name>[A-Za-z0-9._-]+(?:\[[^\]]*\])?)")


def read_environment(path: Path, wish: Wish | None = None) -> Environment:
    """What the file asks for, normalised and sorted. Raises EnvironmentFileError in the user's words."""
    return read_found(path, wish or Wish()).environment


def read_found(path: Path, wish: Wish) -> Found:
    """The same, with the credentials of its addresses beside it."""
    top = Path(os.path.realpath(wish.top)) if wish.top else Path(os.path.realpath(path)).parent
    gathering = Gathering(wish, top)
    suffix, name = path.suffix.lower(), path.name
    from dray.environments.locks import PYLOCK, UV_LOCK, read_pylock, read_uv_lock

    if wish.extras or wish.groups:
        said = "--extra" if wish.extras else "--group"
        if name not in ("pyproject.toml", UV_LOCK):
            raise EnvironmentFileError(
                f"{said} means nothing for {Place(path)}", why="only a pyproject.toml has extras and groups"
            )
    if suffix in (".yml", ".yaml"):
        _Reading(path, gathering).conda_file(path)
    elif suffix in (".txt", ".in"):
        _Reading(path, gathering).pip_file(path)
    elif name == UV_LOCK:
        return read_uv_lock(path, gathering)
    elif PYLOCK.fullmatch(name):
        return read_pylock(path, gathering)
    elif suffix == ".toml":
        from dray.environments.projects import read_project

        read_project(path, gathering)
    else:
        raise EnvironmentFileError(
            f"`{printable(path.name)}` is no environment file",
            why="known are " + ", ".join(f"`{known}`" for known in FILE_NAMES),
        )
    return gathering.environment(path)


class _Reading:
    """Files of conda and pip, which may include each other."""

    def __init__(self, path: Path, gathering: Gathering) -> None:
        self.folder = Path(os.path.realpath(path)).parent
        self.gathering = gathering
        self._open: list[Path] = []

    def conda_file(self, path: Path) -> None:
        """Read a file as conda writes it."""
        root = parse(path)
        parts = dict(pairs(root, path))
        for key, value in parts.items():
            if key not in _KNOWN:
                near = nearest(key, _KNOWN)
                raise EnvironmentSyntax(
                    at(path, value),
                    f"`{key[:60]}` is not a part of such a file that dray knows",
                    hint=f"did you mean `{near}`?"
                    if near
                    else f"known are {', '.join(f'`{k}`' for k in _KNOWN)}",
                )
        if "variables" in parts:
            raise EnvironmentSyntax(
                at(path, parts["variables"]),
                "`variables:` are no part of what is installed",
                hint="give each with the run: dray submit -e NAME=VALUE ...",
            )
        for node in items(parts["channels"], path, "channels") if "channels" in parts else ():
            channel = text_of(node, path, "a channel")
            refuse_credentials(channel, at(path, node))
            self.gathering.channel(written(channel, path.parent))
        if "dependencies" not in parts:
            raise EnvironmentSyntax(at(path, root), "it has no `dependencies:`", hint=EXAMPLE)
        for node in items(parts["dependencies"], path, "dependencies"):
            if is_mapping(node):
                self._pip_list(node, path)
            else:
                place = at(path, node)
                self.gathering.conda(match_spec(text_of(node, path, "a dependency"), place), place)

    def pip_file(self, path: Path) -> None:
        """Read a file as pip writes it."""
        real = Path(os.path.realpath(path))
        if real in self._open:
            raise EnvironmentSyntax(Place(path), "it includes itself")
        self._open.append(real)
        for number, line in _logical_lines(read_text(path)):
            self.pip_line(line, Place(path, number), path)
        self._open.pop()

    def pip_line(self, text: str, place: Place, path: Path) -> None:
        """Take one requirement, an option, or the file or project that the line names."""
        text = re.sub(r"(^|\s)#.*", "", text).strip()
        if not text or self.gathering.index.option(text, place):
            return
        included, editable = _INCLUDE.fullmatch(text), _EDITABLE.fullmatch(text)
        if included is not None:
            self._include(included["path"].strip(), text, place, path)
        elif editable is not None:
            self._editable(editable, text, place, path)
        else:
            wanted, hashes = cut_hashes(text)
            self.gathering.requirement(*pip_requirement(wanted, place), place, hashes)

    def _include(self, wanted: str, text: str, place: Place, path: Path) -> None:
        target = Path(os.path.realpath(path.parent / wanted))
        inside = target.is_relative_to(self.folder) or target.is_relative_to(self.gathering.top)
        if os.path.isabs(wanted) or "://" in wanted or not inside:
            refuse_credentials(wanted, place)
            raise UnsupportedRequirement(
                place, text, "only files in the folder of the environment file, or below it, can be included"
            )
        if not target.is_file():
            raise EnvironmentSyntax(place, f"there is no file `{printable(wanted)}` to include")
        self.pip_file(path.parent / wanted)

    def _editable(self, match: re.Match[str], text: str, place: Place, path: Path) -> None:
        refuse_credentials(text, place)
        where = match["path"]
        if "://" in where:  # its code is not the project's own: installed like any other
            egg = _EGG.search(text)
            address = re.sub(r"#.*", "", where)
            line = f"{egg['name']} @ {address}" if egg else address
            self.gathering.requirement(*pip_requirement(line, place), place)
            return
        from dray.environments.projects import read_editable

        extras = tuple(e.strip() for e in (match["extras"] or "").split(",") if e.strip())
        folder = Path(os.path.realpath(path.parent / where))
        read_editable(folder, extras, self.gathering, place)

    def _pip_list(self, node: yaml.Node, path: Path) -> None:
        for key, value in pairs(node, path):
            if key != "pip":
                raise EnvironmentSyntax(
                    at(path, value),
                    f"`{key[:60]}:` in the list of dependencies is not known; only `pip:` may stand there",
                    hint=f"for a version write `{key[:60]}=1.2`, with an equals sign",
                )
            self.gathering.once("pip: (the list)", at(path, node), conditional=False)
            for item in items(value, path, "pip"):
                self.pip_line(text_of(item, path, "a requirement"), at(path, item), path)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers; one that ends with a backslash goes on in the next."""
    lines: list[tuple[int, str]] = []
    goes_on = False
    for number, line in enumerate(text.splitlines(), 1):
        if goes_on:
            lines[-1] = (lines[-1][0], lines[-1][1][:-1] + line)
        else:
            lines.append((number, line))
        goes_on = line.endswith("\\")
    return lines
