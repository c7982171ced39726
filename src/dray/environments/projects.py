"""A Python project as an environment: what its pyproject.toml, setup.cfg or setup.py says that it needs. Nothing in it is executed.

Read `read_project` first. An editable project gives its needs to the environment; its code is imported from where it lies.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

from dray.core.errors import UnknownName, nearest, printable
from dray.environments.errors import EnvironmentSyntax, NothingToInstall, Place, UnsupportedRequirement
from dray.environments.gathering import Gathering
from dray.environments.names import normal
from dray.environments.nodes import read_text
from dray.environments.requirements import pip_requirement
from dray.environments.sources import Sources

NAME = "pyproject.toml"
_EXAMPLE = 'write `dependencies = ["numpy"]` below `[project]`'


def toml(path: Path) -> dict[str, Any]:
    """The file's tables, or where it is broken."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as trouble:
        at = re.search(
            r"^(?P<what>.*?)(?: \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\))?$",
            str(trouble),
        )
        line = int(at["line"]) if at and at["line"] else text.count("\n") + 1
        column = int(at["column"]) if at and at["column"] else None
        # The library's own text may repeat what stands there, and there may be a password: no `from trouble`.
        what = at["what"] if at and not isinstance(trouble, RecursionError) else "nested too deeply"
        raise EnvironmentSyntax(Place(path, line, column), f"it is not TOML: {what}") from None


def names_dependencies(path: Path) -> bool:
    """Whether a pyproject.toml is about an environment at all: many hold settings of tools only."""
    if b"dependencies" not in path.read_bytes()[:1_000_000]:
        return False
    data = toml(path)
    project = _table(data, "project", path)
    return bool(
        project.get("dependencies") or "dependencies" in (project.get("dynamic") or ()) or _poetry(data)
    )


def read_project(path: Path, gathering: Gathering) -> None:
    """Take what a pyproject.toml names: its dependencies, the extras and groups that are wished for, its Python."""
    data = toml(path)
    project = _table(data, "project", path)
    wish = gathering.wish
    if not project and _poetry(data):
        raise UnsupportedRequirement(
            Place(path),
            "[tool.poetry.dependencies]",
            "dray reads the standard's `[project]`, not Poetry's own table",
            hint="poetry export -o requirements.txt, then --env requirements.txt",
        )
    if not (project.get("dependencies") or _is_dynamic(project) or wish.extras or wish.groups):
        tools = ", ".join(f"`{printable(name)}`" for name in list(data)[:4])
        raise NothingToInstall(
            path,
            f"it has {tools} only" if tools and not project else "`[project]` has no `dependencies`",
            _EXAMPLE,
        )
    sources = Sources(data, path, gathering)
    _take(path, project, gathering, sources, wish.extras)
    for group in wish.groups:
        for line in _group(data, group, path, ()):
            _one(line, Place(path), gathering, sources)
    python = project.get("requires-python")
    if python is not None:
        if not isinstance(python, str):
            raise EnvironmentSyntax(Place(path), "`requires-python` has to be a text")
        gathering.python = python_wish(python, path)
    folder = path.parent.resolve()
    # A project that is a package is imported by its name from wherever its script lies.
    if ("build-system" in data or (folder / "src").is_dir()) and folder.is_relative_to(gathering.top):
        gathering.editable(folder)


def python_wish(clauses: str, path: Path) -> str | None:
    """The wanted Python: of a file `.python-version` beside it, else the clauses as they are."""
    chosen = path.parent / ".python-version"
    if chosen.is_file():
        words = chosen.read_text(errors="replace").split()
        if words and re.fullmatch(r"\d+(\.\d+){0,2}", words[0]):
            return words[0]
    return ",".join(sorted(part.strip() for part in clauses.split(",") if part.strip())) or None


def read_editable(folder: Path, extras: tuple[str, ...], gathering: Gathering, place: Place) -> None:
    """Take the needs of a project whose code is used where it lies."""
    if not folder.is_dir():
        raise EnvironmentSyntax(place, f"there is no folder `{printable(folder.name)}` to install from")
    if not folder.is_relative_to(gathering.top):
        raise UnsupportedRequirement(
            place,
            f"-e {printable(str(folder))}",
            f"it is not in the code folder {printable(str(gathering.top))}, so it does not travel",
            hint="name a code folder that holds both: dray submit --dir FOLDER ...",
        )
    path = folder / NAME
    data = toml(path) if path.is_file() else {}
    project = _table(data, "project", path)
    if project:
        _take(path, project, gathering, Sources(data, path, gathering), extras)
    else:
        for line in _of_setup(folder, extras, place):
            gathering.requirement(*pip_requirement(line, Place(folder / "setup.py")), place, again=True)
    gathering.editable(folder)


def _take(
    path: Path, project: dict[str, Any], gathering: Gathering, sources: Sources, extras: tuple[str, ...]
) -> None:
    lines = _lines(project.get("dependencies") or [], "dependencies", path)
    if _is_dynamic(project):
        lines = _dynamic(path)
    optional = project.get("optional-dependencies") or {}
    known = {normal(name): name for name in optional}
    for extra in extras:
        if normal(extra) not in known:
            raise UnknownName(f"extra in {Place(path)}", extra, list(optional))
        lines += _lines(optional[known[normal(extra)]], extra, path)
    own = normal(str(project.get("name") or ""))
    for line in lines:
        name, requirement = pip_requirement(line, Place(path))
        if name == own and "[" in requirement:  # an extra made of the project's other extras
            inner = tuple(requirement.partition("[")[2].partition("]")[0].split(","))
            missing = tuple(one for one in inner if normal(one) not in {normal(e) for e in extras})
            if missing:
                _take(path, {**project, "dependencies": [], "dynamic": []}, gathering, sources, missing)
            continue
        _one(line, Place(path), gathering, sources)


def _one(line: str, place: Place, gathering: Gathering, sources: Sources) -> None:
    name, requirement = pip_requirement(line, place)
    taken = sources.taken(name, requirement, place)
    if taken is not None:
        gathering.requirement(name, taken, place, again=True)


def _group(data: dict[str, Any], group: str, path: Path, before: tuple[str, ...]) -> list[str]:
    groups = _table(data, "dependency-groups", path)
    known = {normal(name): name for name in groups}
    if normal(group) not in known:
        raise UnknownName(f"dependency group in {Place(path)}", group, list(groups))
    if normal(group) in before:
        raise EnvironmentSyntax(Place(path), f"the dependency group `{printable(group)}` includes itself")
    lines: list[str] = []
    for entry in groups[known[normal(group)]]:
        if isinstance(entry, dict) and isinstance(entry.get("include-group"), str):
            lines += _group(data, entry["include-group"], path, (*before, normal(group)))
        else:
            lines += _lines([entry], group, path)
    return lines


def _dynamic(path: Path) -> list[str]:
    """Dependencies that setuptools reads from files named in the same pyproject.toml."""
    data = toml(path)
    named = data.get("tool", {}).get("setuptools", {}).get("dynamic", {}).get("dependencies", {})
    files = named.get("file") if isinstance(named, dict) else None
    if not files:
        raise UnsupportedRequirement(
            Place(path),
            'dynamic = ["dependencies"]',
            "they are known only to a program, which dray does not run to find out",
            hint="uv lock (then uv.lock says it all), or write them as `dependencies = [...]`",
        )
    lines: list[str] = []
    for name in [files] if isinstance(files, str) else files:
        lines += [
            line
            for raw in read_text(path.parent / name).splitlines()
            if (line := raw.partition("#")[0].strip())
        ]
    return lines


def _of_setup(folder: Path, extras: tuple[str, ...], place: Place) -> list[str]:
    """The needs that an old project's setup.cfg or setup.py names in plain words."""
    found: list[str] | None = None
    if (folder / "setup.cfg").is_file():
        import configparser

        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(read_text(folder / "setup.cfg"))
        except configparser.Error as trouble:
            raise EnvironmentSyntax(Place(folder / "setup.cfg"), "it cannot be read") from trouble
        if parser.has_option("options", "install_requires"):
            found = parser.get("options", "install_requires").split("\n")
            for extra in extras:
                found += parser.get("options.extras_require", extra, fallback="").split("\n")
    if found is None and (folder / "setup.py").is_file():
        found = _of_setup_py(folder / "setup.py", extras)
    if found is None:
        raise UnsupportedRequirement(
            place,
            f"-e {printable(str(folder))}",
            "no pyproject.toml, setup.cfg or setup.py there names its dependencies in plain words",
            hint=f"make a pyproject.toml there, and {_EXAMPLE}",
        )
    return [line.strip() for line in found if line.strip()]


def _of_setup_py(path: Path, extras: tuple[str, ...]) -> list[str] | None:
    try:
        tree = ast.parse(read_text(path))
    except (SyntaxError, ValueError, RecursionError):
        return None
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and any(k.arg for k in node.keywords)
    ]
    words = {k.arg: k.value for node in calls if _called(node) == "setup" for k in node.keywords if k.arg}
    if "name" not in words and "packages" not in words:
        return None
    try:
        lines = list(ast.literal_eval(words["install_requires"])) if "install_requires" in words else []
        more = ast.literal_eval(words["extras_require"]) if extras and "extras_require" in words else {}
        for extra in extras:
            lines += list(more.get(extra, ()))
    except (ValueError, TypeError):
        return None  # it is computed
    return [str(line) for line in lines]


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_dynamic(project: dict[str, Any]) -> bool:
    return "dependencies" in (project.get("dynamic") or ())


def _poetry(data: dict[str, Any]) -> bool:
    poetry = data.get("tool", {}).get("poetry", {})
    return isinstance(poetry, dict) and bool(set(poetry.get("dependencies") or {}) - {"python"})


def _table(data: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = data.get(name, {})
    if not isinstance(found, dict):
        raise EnvironmentSyntax(Place(path), f"`{name}` has to be a table", hint=_EXAMPLE)
    near = nearest(name, data) if not found and name == "project" else None
    if near and near not in ("tool", "build-system", "dependency-groups"):
        raise EnvironmentSyntax(
            Place(path), f"`[{printable(near)}]` is not known", hint=f"did you mean `[{name}]`?"
        )
    return found


def _lines(value: Any, name: str, path: Path) -> list[str]:
    if not isinstance(value, list) or any(not isinstance(one, str) for one in value):
        raise EnvironmentSyntax(Place(path), f"`{printable(name)}` has to be a list of texts", hint=_EXAMPLE)
    return list(value)
