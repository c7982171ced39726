"""Logins of registries that a submit brings: for the engine's commands that pull and build, for as long as those take, and on no disk.

The engine gets a folder of settings of its own, in memory: what the machine's own settings say, and these logins. Read `Logins`.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Type

from ..files import read_json, remove_tree, write_all
from ..mask import SHORTEST, forms
from .engines import Engine

_PREFIX = "dray-login-"
_HUB = "docker.io"
_HUB_KEY = "https://index.docker.io/v1/"  # as docker writes it
Why = Callable[[str, str], str]


class Logins:
    """Those of one run. A context manager: at its end nothing of them is left."""

    def __init__(self, said: Mapping[str, List[str]], engine: Engine, attempt: str) -> None:
        self._said = {str(host): (str(row[0]), str(row[1])) for host, row in said.items()}
        self._engine = engine
        self.environ: Dict[str, str] = {}
        """What the engine's commands are told beside their own environment."""
        self.folder: str | None = None
        """Where they are; known before a secret is in it, so that others can clear it away."""
        if self._said:
            name = _PREFIX + os.path.basename(os.path.dirname(os.path.dirname(attempt))) + "-"
            self.folder = tempfile.mkdtemp(prefix=name, dir=_in_memory(engine.environ) or attempt)

    def __enter__(self) -> Logins:
        return self

    def __exit__(
        self, kind: Type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.folder:
            remove(self.folder)

    @property
    def hidden(self) -> List[str]:
        """What the log must not show."""
        words = [word for user, word in self._said.values() for word in (word, _basic(user, word))]
        found = [form for word in words if len(word.encode()) >= SHORTEST for form in forms(word)]
        return [form.decode("utf-8", "surrogateescape") for form in found]

    def write(self) -> None:
        """Have the folder say them."""
        if self.folder is None:
            return
        if self._engine.kind == "podman":
            path = os.path.join(self.folder, "auth.json")
            settings = with_logins(_podmans_own(self._engine.environ), self._said, docker=False)
            self.environ = {"REGISTRY_AUTH_FILE": path}
        else:
            own = _docker_folder(self._engine.environ)
            path = os.path.join(self.folder, "config.json")
            settings = with_logins(read_json(os.path.join(own, "config.json")) or {}, self._said, docker=True)
            for name in _names(own):
                if name != "config.json":
                    # Contexts, plugins, what a builder remembers: all but the logins is the user's own.
                    os.symlink(os.path.join(own, name), os.path.join(self.folder, name))
            self.environ = {"DOCKER_CONFIG": self.folder}
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, json.dumps(settings).encode("utf-8", "surrogateescape"))
        finally:
            os.close(fd)

    def why(self, otherwise: Why) -> Why:
        """`otherwise`, put for somebody who has said whom to pull as."""

        def told(name: str, said: str) -> str:
            host = registry_of(name)
            low = said.lower()
            if host in self._said and any(
                word in low for word in ("denied", "unauthorized", "authentication")
            ):
                user = self._said[host][0]
                return (
                    "`%s` may not be pulled as %s: %s. To give another password: "
                    "`dray compute update NAME --registry-login %s@%s`" % (name, user, said, user, host)
                )
            return otherwise(name, said)

        return told


def registry_of(image: str) -> str:
    """`ghcr.io/ana/x:1` -> `ghcr.io`; `python:3.12`, `ana/x` -> `docker.io`."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else _HUB


def with_logins(own: Mapping[str, Any], said: Mapping[str, Any], *, docker: bool) -> Dict[str, Any]:
    """An engine's settings with these logins, which go before what is there for the same registries."""
    settings = dict(own)
    auths, helpers = dict(settings.get("auths") or {}), dict(settings.get("credHelpers") or {})
    for host, (user, word) in said.items():
        for other in [key for key in auths if key == host or key.startswith(host + "/")]:
            del auths[other]
        auths[_HUB_KEY if docker and host == _HUB else host] = {"auth": _basic(user, word)}
        if docker and (settings.get("credsStore") or host in helpers):
            # The empty name of a helper means this file, where else the store of all others would be asked.
            helpers[_HUB_KEY if host == _HUB else host] = ""
        else:
            helpers.pop(host, None)
    settings["auths"] = auths
    if helpers or "credHelpers" in settings:
        settings["credHelpers"] = helpers
    return settings


def remove(folder: str) -> None:
    """Clear away what `Logins` has made, and nothing else. Never raises."""
    if os.path.basename(folder).startswith(_PREFIX):
        try:
            remove_tree(folder)
        except OSError:
            return  # it goes with the memory that it is in


def _basic(user: str, word: str) -> str:
    return base64.b64encode(("%s:%s" % (user, word)).encode("utf-8", "surrogateescape")).decode()


def _in_memory(environ: Mapping[str, str]) -> str | None:
    """A folder that is on no disk. None: there is none, as far as is known."""
    runtime = environ.get("XDG_RUNTIME_DIR") or ""
    for place in (runtime, "/dev/shm"):  # noqa: S108 - a folder of our own is made there
        if os.path.isabs(place) and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return place
    return None


def _docker_folder(environ: Mapping[str, str]) -> str:
    return environ.get("DOCKER_CONFIG") or os.path.join(environ.get("HOME") or "/", ".docker")


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _podmans_own(environ: Mapping[str, str]) -> Dict[str, Any]:
    """The logins that podman would know: of all its places, because it looks at one only when that is named."""
    auths: Dict[str, Any] = {}
    helpers: Dict[str, Any] = {}
    for path in _podmans_files(environ):
        said = read_json(path) or {}
        auths = {**(said.get("auths") or {}), **auths}
        helpers = {**(said.get("credHelpers") or {}), **helpers}
    return {"auths": auths, "credHelpers": helpers}


def _podmans_files(environ: Mapping[str, str]) -> Iterator[str]:
    """The strongest first."""
    if environ.get("REGISTRY_AUTH_FILE"):
        yield environ["REGISTRY_AUTH_FILE"]
        return
    home = environ.get("HOME") or "/"
    runtime = environ.get("XDG_RUNTIME_DIR") or "/run/containers/%d" % os.getuid()
    yield os.path.join(runtime, "containers", "auth.json")
    if not environ.get("XDG_RUNTIME_DIR"):
        yield os.path.join(runtime, "auth.json")
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    yield os.path.join(config, "containers", "auth.json")
    yield os.path.join(_docker_folder(environ), "config.json")
