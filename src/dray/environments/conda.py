"""One dependency as conda writes it (a match spec): in one spelling, and told in pip's words where that is possible.

`name=1.26` means 1.26 and whatever begins with it; `name==1.26`, `name 1.26` and `name=1.26=build` mean exactly 1.26.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dray.environments.channels import written
from dray.environments.errors import EnvironmentSyntax, Place
from dray.environments.names import is_python, on_the_index
from dray.environments.requirements import VERSION, clauses, refuse_credentials

_SPEC = re.compile(
    r"(?:(?P<channel>(?:[a-z]+://)?[^\s\[]+?)::?)?(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]*)\s*(?P<rest>[=<>!~\s].*)?",
    re.DOTALL,
)
_BRACKETS = re.compile(r"\[(?P<fields>[^\]]*)\]\s*$")
_FIELD = re.compile(r"\s*(\w+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^,'\"]*))\s*(?:,|$)")
_ANY = re.compile(r"\d[\w.!+*-]*|\*")


@dataclass(frozen=True, slots=True)
class MatchSpec:
    """One dependency."""

    name: str
    text: str
    """The whole of it, in the one spelling that equal needs share."""
    versions: str | None
    """As pip writes them, empty for any; None: only conda can choose (`1.2|1.4`)."""
    channel: str | None = None

    @property
    def on_the_index(self) -> str:
        """What a Python index calls it."""
        return on_the_index(self.name)

    @property
    def requirement(self) -> str | None:
        """As pip writes it; None: no Python index has it."""
        if self.versions is None or not is_python(self.name):
            return None
        return self.on_the_index + self.versions

    def python(self) -> str | None:
        """Of `python=...`: the version "3.11" where one line of versions is meant, else the clauses as they are."""
        exact = re.fullmatch(r"==(\d+(?:\.\d+)*)(?:\.\*)?", self.versions or "")
        return exact[1] if exact else self.versions or None


def match_spec(text: str, place: Place) -> MatchSpec:
    """What the line means. Raises EnvironmentSyntax in the user's words."""
    refuse_credentials(text, place)
    text = text.partition(" #")[0].strip()
    plain, fields = _without_brackets(text)
    match = _SPEC.fullmatch(plain)
    if match is None:
        raise EnvironmentSyntax(
            place, f"`{text[:80]}` is not a package as conda writes it", hint="write `numpy=1.26`"
        )
    name = match["name"].lower()
    wanted = fields.pop("version", "") or (match["rest"] or "").strip()
    folder = place.path.parent if place.path != Path() else Path.cwd()
    channel = written(fields.pop("channel", "") or match["channel"] or "", folder) or None
    versions, version, build = _versions(wanted, text, place)
    build = fields.pop("build", "") or build
    inner = {"build": build, **fields} if build and build != "*" else fields
    if build and version.startswith("==") and not fields:
        told = f"{name}={version[2:]}={build}"
    elif inner:
        inner = {"version": version, **inner} if version else inner
        told = name + "[" + ",".join(f"{key}='{value}'" for key, value in sorted(inner.items())) + "]"
    else:
        told = name + version
    return MatchSpec(name, f"{channel}::{told}" if channel else told, versions, channel)


def _without_brackets(text: str) -> tuple[str, dict[str, str]]:
    found = _BRACKETS.search(text)
    if found is None:
        return text, {}
    fields = {
        m[1]: next(v for v in (*m.groups()[1:], "") if v is not None)
        for m in _FIELD.finditer(found["fields"])
    }
    return text[: found.start()].strip(), fields


def _versions(wanted: str, text: str, place: Place) -> tuple[str | None, str, str | None]:
    """`(as pip writes them, as conda does, build)`."""
    if not wanted:
        return "", "", None
    fuzzy = re.fullmatch(r"=\s*([^\s=<>!~,|]+)(?:=(\S+))?", wanted)
    exact = re.fullmatch(r"(?:==\s*)?([^\s=<>!~,|]+)(?:(?:\s+|=)([^\s=<>!~,|]+))?", wanted)
    if fuzzy is not None:  # with a build behind it, the version is exact
        return _single(fuzzy[1], fuzzy[2], text, place, exact=fuzzy[2] is not None)
    if exact is not None:
        return _single(exact[1], exact[2], text, place, exact=True)
    if "|" in wanted:
        return None, _alternatives(wanted, text, place), None
    parts = [re.sub(r"\s+", "", part) for part in wanted.split(",")]
    # `>=1.26.*` is conda's way of saying `>=1.26`; a build may follow after a blank.
    plain = [re.sub(r"^(>=|<|~=)(.*?)\.?\*$", r"\1\2", part) for part in parts]
    pips = [
        _one(p.lstrip("="), text, place, exact=p.startswith("==")) if re.match(r"=|\d", p) else p
        for p in plain
    ]
    checked = clauses(",".join(pips), text, place)
    return checked, ",".join(sorted(set(plain))), None


def _single(
    version: str, build: str | None, text: str, place: Place, *, exact: bool
) -> tuple[str | None, str, str | None]:
    pips = _one(version, text, place, exact=exact)
    if version == "*":
        return pips, "", build
    bare = version.rstrip("*").rstrip(".")
    return pips, f"=={bare}" if exact and not version.endswith("*") else f"={bare}", build


def _alternatives(wanted: str, text: str, place: Place) -> str:
    """`1.26|>=2` without blanks, each side checked for what a version can look like."""
    sides = [re.sub(r"\s+", "", side) for side in wanted.split("|")]
    for part in (part for side in sides for part in side.split(",")):
        if _ANY.fullmatch(re.sub(r"^(?:==|=|!=|>=|<=|<|>|~=)", "", part)) is None:
            raise EnvironmentSyntax(place, f"`{part}` in `{text[:80]}` is not a version")
    joined = "|".join(sides)
    return joined if re.match(r"[=<>!~]", joined) else f" {joined}"


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
