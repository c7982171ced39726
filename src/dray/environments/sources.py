"""Where uv's table `[tool.uv.sources]` says that a package comes from: git, an address, a folder of the project, an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dray.core.errors import printable
from dray.environments.errors import EnvironmentSyntax, Place, UnsupportedRequirement
from dray.environments.gathering import Gathering
from dray.environments.names import normal
from dray.environments.requirements import refuse_credentials


class Sources:
    """Those of one pyproject.toml."""

    def __init__(self, data: dict[str, Any], path: Path, gathering: Gathering) -> None:
        uv = data.get("tool", {}).get("uv", {})
        uv = uv if isinstance(uv, dict) else {}
        named = uv.get("sources") or {}
        self._path = path
        self._gathering = gathering
        self._sources = (
            {normal(name): value for name, value in named.items()} if isinstance(named, dict) else {}
        )
        indexes = uv.get("index") or []
        self._indexes = [one for one in indexes if isinstance(one, dict) and isinstance(one.get("url"), str)]
        for one in self._indexes:
            if not one.get("explicit"):
                self._add(one)

    def taken(self, name: str, requirement: str, place: Place) -> str | None:
        """The requirement as it is to be installed; None: nothing is, as its code travels with the run."""
        source = self._sources.get(name)
        if source is None:
            return requirement
        if isinstance(source, list):
            raise UnsupportedRequirement(
                place, name, "its source differs by platform, which only a lock can say", hint="uv lock"
            )
        head, _, marker = requirement.partition(" ; ")
        bare = head.partition("@")[0].rstrip()
        for sign in "=<>!~":
            bare = bare.partition(sign)[0].rstrip()
        address = self._address(name, source, place)
        if address is None:
            return None
        if address == "":
            return requirement
        return f"{bare} @ {address}" + (f" ; {marker}" if marker else "")

    def _address(self, name: str, source: dict[str, Any], place: Place) -> str | None:
        """Empty: as usual; None: its code travels."""
        if isinstance(source.get("git"), str):
            at = source.get("rev") or source.get("tag") or source.get("branch")
            below = f"#subdirectory={source['subdirectory']}" if source.get("subdirectory") else ""
            address = f"git+{source['git']}" + (f"@{at}" if at else "") + below
            refuse_credentials(address, place)
            return address
        if isinstance(source.get("url"), str):
            refuse_credentials(source["url"], place)
            return str(source["url"])
        if isinstance(source.get("path"), str):
            from dray.environments.projects import read_editable

            read_editable((self._path.parent / source["path"]).resolve(), (), self._gathering, place)
            return None
        if isinstance(source.get("index"), str):
            found = next((one for one in self._indexes if one.get("name") == source["index"]), None)
            if found is None:
                raise EnvironmentSyntax(
                    place, f"there is no index `{printable(source['index'])}` in `[[tool.uv.index]]`"
                )
            self._add(found)
            return ""
        raise UnsupportedRequirement(
            place, name, "its source is a member of a workspace, which only a lock can say", hint="uv lock"
        )

    def _add(self, index: dict[str, Any]) -> None:
        kind = "index_url" if index.get("default") else "extra_index_urls"
        self._gathering.index.add(kind, index["url"], Place(self._path))
