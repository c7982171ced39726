"""Finds the environment file of a script, and reads it.

Read `read_environment` first. One `_Reading` gathers what all included files say; `conda.py` and `requirements.py` know
single lines, `nodes.py` knows YAML.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from dray.core.errors import nearest, printable
from dray.core.spec import Environment
from dray.environments.conda import conda_requirement, match_spec, python_version
from dray.environments.errors import (
    EnvironmentFileError,
    EnvironmentSyntax,
    PackageTwice,
    Place,
    UnsupportedRequirement,
)
from dray.environments.nodes import EXAMPLE, at, is_mapping, items, pairs, parse, read_text, text_of
from dray.environments.requirements import pip_requirement, refuse_credentials

if TYPE_CHECKING:
    import yaml

FILE_NAME = "conda_dependencies.yml"
_KNOWN = ("name", "channels", "dependencies", "prefix")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s*=\s*|\s+|(?=[^\s=-]))(?P<path>.*)")


def find_environment_file(start: Path, top: Path) -> Path | None:
    """The nearest `conda_dependencies.yml`, from the folder `start` up to the folder `top`."""
    here, last = Path(os.path.abspath(start)), Path(os.path.abspath(top))
    if not here.is_relative_to(last):
        here = last
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        if folder == last:
            break
    return None


def read_environment(path: Path) -> Environment:
    """What the file asks for, normalised and sorted. Raises EnvironmentFileError in the user's words."""
    reading = _Reading(path)
    if path.suffix.lower() in (".yml", ".yaml"):
        reading.conda_file(path)
    elif path.suffix.lower() == ".txt":
        reading.pip_file(path)
    else:
        raise EnvironmentFileError(
            f"`{printable(path.name)}` is no environment file",
            why=f"known are `{FILE_NAME}` and `requirements.txt`",
        )
    return Environment(tuple(sorted(reading.requirements)), reading.python, str(path))


class _Reading:
    """What has been read so far, and where."""

    def __init__(self, path: Path) -> None:
        self.folder = Path(os.path.realpath(path)).parent
        self.requirements: list[str] = []
        self.python: str | None = None
        self._places: dict[str, tuple[Place, bool]] = {}
        self._open: list[Path] = []

    def conda_file(self, path: Path) -> None:
        """Read a file as conda writes it."""
        root = parse(path)
        for key, value in pairs(root, path):
            if key not in _KNOWN:
                near = nearest(key, _KNOWN)
                raise EnvironmentSyntax(
                    at(path, value),
                    f"`{key[:60]}` is not a part of such a file that dray knows",
                    hint=f"did you mean `{near}`?"
                    if near
                    else f"known are {', '.join(f'`{k}`' for k in _KNOWN)}",
                )
        parts = dict(pairs(root, path))
        if (
            "channels" in parts
        ):  # not used, as everything comes from a Python index; but a typing error is told
            for node in items(parts["channels"], path, "channels"):
                refuse_credentials(text_of(node, path, "a channel"), at(path, node))
        if "dependencies" not in parts:
            raise EnvironmentSyntax(at(path, root), "it has no `dependencies:`", hint=EXAMPLE)
        for node in items(parts["dependencies"], path, "dependencies"):
            if is_mapping(node):
                self._pip_list(node, path)
            else:
                self._conda_line(text_of(node, path, "a dependency"), at(path, node))

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
        """Take one requirement, or the file that the line includes."""
        text = re.sub(r"(^|\s)#.*", "", text).strip()
        if not text:
            return
        included = _INCLUDE.fullmatch(text)
        if included is None:
            self._add(*pip_requirement(text, place), place)
            return
        wanted = included["path"].strip()
        target = Path(os.path.realpath(path.parent / wanted))
        if os.path.isabs(wanted) or "://" in wanted or not target.is_relative_to(self.folder):
            refuse_credentials(wanted, place)
            raise UnsupportedRequirement(
                place, text, "only files in the folder of the environment file, or below it, can be included"
            )
        if not target.is_file():
            raise EnvironmentSyntax(place, f"there is no file `{printable(wanted)}` to include")
        self.pip_file(path.parent / wanted)

    def _conda_line(self, text: str, place: Place) -> None:
        name, versions = match_spec(text, place)
        if name == "pip":
            return
        if name == "python":
            self._add_once("python", place, conditional=False)
            self.python = python_version(versions)
            return
        self._add(*conda_requirement(name, versions, place), place)

    def _pip_list(self, node: yaml.Node, path: Path) -> None:
        for key, value in pairs(node, path):
            if key != "pip":
                raise EnvironmentSyntax(
                    at(path, value),
                    f"`{key[:60]}:` in the list of dependencies is not known; only `pip:` may stand there",
                    hint=f"for a version write `{key[:60]}=1.2`, with an equals sign",
                )
            self._add_once("pip: (the list)", at(path, node), conditional=False)
            for item in items(value, path, "pip"):
                self.pip_line(text_of(item, path, "a requirement"), at(path, item), path)

    def _add(self, name: str, requirement: str, place: Place) -> None:
        self._add_once(name, place, conditional=" ; " in requirement)
        self.requirements.append(requirement)

    def _add_once(self, name: str, place: Place, *, conditional: bool) -> None:
        """Two lines for one package are fine when both say under which condition they hold."""
        before = self._places.get(name)
        if before is not None and not (conditional and before[1]):
            raise PackageTwice(name, before[0], place)
        self._places[name] = (place, conditional)


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
