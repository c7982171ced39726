"""One dependency as conda writes it (a match spec), told in pip's words.

`name=1.26` means 1.26 and whatever begins with it; `name==1.26`, `name 1.26` and `name=1.26=build` mean exactly 1.26.
"""

from __future__ import annotations

import re

from dray.environments.errors import EnvironmentSyntax, NotPythonPackage, Place, UnsupportedRequirement
from dray.environments.names import is_python, on_the_index
from dray.environments.requirements import VERSION, clauses, refuse_credentials

_SPEC = re.compile(
    r"(?:(?P<channel>[^\s\[]+?)::?)?(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]*)\s*(?P<rest>[=<>!~\s].*)?", re.DOTALL
)
_BRACKETS = re.compile(r"\[(?P<fields>[^\]]*)\]\s*$")
_FIELD = re.compile(r"\s*(\w+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^,'\"]*))\s*(?:,|$)")


def match_spec(text: str, place: Place) -> tuple[str, str]:
    """`(name as conda says it, wanted versions as pip says it)`."""
    refuse_credentials(text, place)
    text = text.partition("#")[0].strip()
    plain, version = _without_brackets(text)
    match = _SPEC.fullmatch(plain)
    if match is None:
        raise EnvironmentSyntax(
            place, f"`{text[:80]}` is not a package as conda writes it", hint="write `numpy=1.26`"
        )
    wanted = version if version is not None else (match["rest"] or "").strip()
    return match["name"].lower(), _versions(wanted, text, place)


def conda_requirement(name: str, versions: str, place: Place) -> tuple[str, str]:
    """`(normal name, requirement)` for the Python index. Raises for what no Python index has."""
    python, instead = is_python(name)
    if not python:
        raise NotPythonPackage(place, name, instead)
    found = on_the_index(name)
    return found, found + versions


def python_version(versions: str) -> str | None:
    """The wanted Python: "3.11" where one line of versions is meant, else the clauses as they are."""
    exact = re.fullmatch(r"==(\d+(?:\.\d+)*)(?:\.\*)?", versions)
    return exact[1] if exact else versions or None


def _without_brackets(text: str) -> tuple[str, str | None]:
    found = _BRACKETS.search(text)
    if found is None:
        return text, None
    fields = {
        m[1]: next(v for v in (*m.groups()[1:], "") if v is not None)
        for m in _FIELD.finditer(found["fields"])
    }
    return text[: found.start()].strip(), fields.get("version")


def _versions(wanted: str, text: str, place: Place) -> str:
    if "|" in wanted:
        raise UnsupportedRequirement(
            place,
            text,
            "it names several versions with `|`, which only conda can choose from",
            hint="name one",
        )
    fuzzy = re.fullmatch(r"=\s*([^\s=<>!~,]+)(?:=(\S+))?", wanted)
    exact = re.fullmatch(r"(?:==\s*)?([^\s=<>!~,]+)(?:(?:\s+|=)([^\s=<>!~,]+))?", wanted)
    if fuzzy is not None:  # with a build behind it, the version is exact
        return _one(fuzzy[1], text, place, exact=fuzzy[2] is not None)
    if exact is not None:
        return _one(exact[1], text, place, exact=True)
    # `>=1.26.*` is conda's way of saying `>=1.26`; a build may follow after a blank.
    parts = (
        [re.sub(r"^(>=|<|~=)\s*(.*?)\.?\*$", r"\1\2", p.strip()) for p in wanted.split(",")] if wanted else []
    )
    mixed = [
        _one(p.lstrip("= "), text, place, exact=p.startswith("==")) if re.match(r"=|\d", p) else p
        for p in parts
    ]
    return clauses(",".join(mixed), text, place)


def _one(version: str, text: str, place: Place, *, exact: bool) -> str:
    if version == "*":
        return ""
    starred = version.endswith("*")
    bare = version.rstrip("*").rstrip(".")
    if re.fullmatch(VERSION, bare, re.IGNORECASE) is None or (starred and not version.endswith(".*")):
        raise EnvironmentSyntax(
            place, f"`{version}` in `{text[:80]}` is not a version", hint="write versions as in `numpy=1.26`"
        )
    # `==2.0rc1.*` is no version for pip; a pre-release is exact anyway.
    whole = re.fullmatch(r"\d+(?:\.\d+)*", bare) is not None
    return f"=={bare}" if (exact and not starred) or not whole else f"=={bare}.*"
