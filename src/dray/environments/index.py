"""Where packages come from: pip's options for it, with passwords taken out of the addresses at once.

`Index` is what one environment says; its `credentials` travel beside the run, and are written nowhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from dray.environments.errors import CredentialsInFile, EnvironmentSyntax, Place
from dray.environments.requirements import refuse_credentials

_OPTION = re.compile(
    r"(?P<name>--index-url|--pypi-url|--extra-index-url|--find-links|-i|-f)(?:\s*=\s*|\s+|(?=[^\s=-]))(?P<value>.*)"
)
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_MEANT = {"-i": "index_url", "--index-url": "index_url", "--pypi-url": "index_url",
          "--extra-index-url": "extra_index_urls", "-f": "find_links", "--find-links": "find_links"}  # fmt: skip


@dataclass(slots=True)
class Index:
    """One place instead of the usual one, further ones, and folders or pages full of files."""

    index_url: str | None = None
    extra_index_urls: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    credentials: dict[str, str] = field(default_factory=dict)
    """Address as it is stored -> `user:password`."""
    travels: Path | None = None
    """The code folder: a file in it is stored with the run, and may hold no password, only the name of a variable that does."""

    def option(self, text: str, place: Place) -> bool:
        """Take a line such as `--extra-index-url ADDRESS`; False when it is none."""
        match = _OPTION.fullmatch(text)
        if match is None:
            return False
        value = match["value"].strip().strip("'\"")
        if not value:
            raise EnvironmentSyntax(place, f"`{match['name']}` names no address")
        self.add(_MEANT[match["name"]], value, place)
        return True

    def add(self, kind: str, address: str, place: Place) -> None:
        """One address of that kind (a field's name)."""
        if "://" in address:
            address = self._without_credentials(address, place)
        elif kind == "find_links":
            address = (place.path.parent / Path(address).expanduser()).resolve().as_uri()
        else:
            raise EnvironmentSyntax(place, f"`{address[:80]}` is no address of an index")
        if kind == "index_url":
            if self.index_url not in (None, address):
                raise EnvironmentSyntax(place, "another index was named before; only one can be the first")
            self.index_url = address
            return
        known = self.extra_index_urls if kind == "extra_index_urls" else self.find_links
        if address not in known:
            known.append(address)

    def add_all(
        self, index_url: str | None, extra: Iterable[str], find_links: Iterable[str], place: Place
    ) -> None:
        """Those of the command line: they come before those of the files."""
        if index_url:
            self.index_url = None
            self.add("index_url", index_url, place)
        for kind, said in (("extra_index_urls", extra), ("find_links", find_links)):
            before = getattr(self, kind)
            setattr(self, kind, [])
            for address in said:
                self.add(kind, address, place)
            now = getattr(self, kind)
            now += [address for address in before if address not in now]

    def to_json(self) -> dict[str, Any]:
        """As Environment has it: without what is not said, and without credentials."""
        said = {
            "index_url": self.index_url,
            "extra_index_urls": self.extra_index_urls,
            "find_links": self.find_links,
        }
        return {name: value for name, value in said.items() if value}

    def _without_credentials(self, address: str, place: Place) -> str:
        if _VARIABLE.search(address.rpartition("@")[2]):
            # Its value would be stored with the address, and may be a token.
            raise EnvironmentSyntax(
                place, "in an address of an index, a variable may stand before the `@` only"
            )
        said = _VARIABLE.sub("", address)
        address = _VARIABLE.sub(lambda match: _value(match[1], place), address)
        try:
            parts = urlsplit(address)
            user, host = parts.netloc.rpartition("@")[::2]
            parts.port  # noqa: B018 # raises for a port that is none
        except ValueError:
            raise EnvironmentSyntax(place, "an index has an address that cannot be read") from None
        if not host and parts.scheme != "file":
            raise EnvironmentSyntax(place, "an index has an address without a host")
        bare = urlunsplit((parts.scheme, host, parts.path, parts.query, "")).rstrip("/")
        refuse_credentials(bare, place)  # those in the query have no place of their own
        if user:
            if self.travels and place.path.resolve().is_relative_to(self.travels) and _has_words(said):
                raise CredentialsInFile(place, host)
            self.credentials[bare] = user
        return bare


def _value(name: str, place: Place) -> str:
    """Of a variable, as pip puts it into an address."""
    value = os.environ.get(name)
    if not value:
        raise EnvironmentSyntax(
            place, f"`${{{name}}}` is not set in your environment", hint=f"export {name}=..."
        )
    return value


def _has_words(address: str) -> bool:
    """Whether something is written before the `@`, besides variables and a name for them."""
    user = urlsplit(address).netloc.rpartition("@")[0]
    name, colon, password = user.partition(":")
    return bool(password or (name and not colon))
