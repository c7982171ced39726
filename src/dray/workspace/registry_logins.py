"""Logins of registries (`ana@ghcr.io`): their passwords are kept here as those of ssh are, and go with a submit to the run's machine.

`RegistryLogins` is for who attaches, `passwords` for a submit, `forget` for what no compute names any more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dray.core.errors import DrayError, UsageError, printable
from dray.hosts.questions import Question

if TYPE_CHECKING:
    from dray.core.spec import Container
    from dray.workspace.attaching import Login
    from dray.workspace.computes import Compute
    from dray.workspace.facade import Workspace

KIND: Final = "registry"
VARIABLE = "DRAY_REGISTRY_PASSWORD"
_REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?")
_HUB = ("index.docker.io", "registry-1.docker.io", "hub.docker.com", "registry.hub.docker.com")


class RegistryLoginMissing(DrayError):
    """The password of a registry's login is not known."""

    code = "registry-login-missing"

    def __init__(self, login: str) -> None:
        shown = printable(login)
        super().__init__(
            f"the password of `{shown}` is not known",
            why=f"nothing is kept for it, ${VARIABLE} is not set, and there is nobody to ask",
            hint=f"printf '%s\\n' \"$PASSWORD\" | dray attach docker NAME --registry-login {shown} --registry-password-stdin"
            "    (an attached one: dray compute update NAME ...)",
        )


def split(login: str) -> tuple[str, str]:
    """`ana@ghcr.io` -> user, registry. Raises UsageError; a password that somebody has put there is not repeated."""
    user, at, registry = login.rpartition("@")
    registry = "docker.io" if registry in _HUB else registry
    fits = at and user and user.isprintable() and not set(user) & set(": /") and _REGISTRY.fullmatch(registry)
    if not fits:
        shown = (
            f"`--registry-login {printable(login[:80])}`" if ":" not in user and "/" not in login else "that"
        )
        raise UsageError(
            f"{shown} is no login of a registry",
            why="it is USER@REGISTRY, without `https://` and without a password: that is asked for",
            hint="--registry-login ana@ghcr.io",
        )
    return user, registry.lower()


def by_registry(logins: Iterable[str]) -> dict[str, str]:
    """Registry -> USER@REGISTRY; of two for the same registry the later one."""
    return {registry: f"{user}@{registry}" for user, registry in map(split, logins)}


class RegistryLogins:
    """Those that were named with an `attach` or an `update`: known before anything is written down, kept when it is."""

    def __init__(self, workspace: Workspace, login: Login, *, asks_again: bool) -> None:
        """`asks_again`: even what is kept is asked for, where there is somebody to ask, because it may have changed."""
        self._secrets = _secrets(workspace)
        self._found: dict[str, str] = {}
        """What is new, and to be kept."""
        wanted = list(by_registry(login.registry_logins).values())
        if login.registry is not None and len(wanted) > 1:
            raise UsageError(
                "one password, and several logins",
                why="name one at a time",
                hint=f"--registry-login {wanted[0]}",
            )
        for one in wanted:
            kept = self._secrets.get(KIND, one)
            said = login.registry
            if said is None and (kept is None or asks_again):
                said = workspace.answers(_question(one))
            if said is None and kept is None:
                raise RegistryLoginMissing(one)
            if said is not None:
                self._found[one] = said
        self._keeps = login.keep

    def keep(self) -> list[str]:
        """Keep what is new; sentences."""
        if not self._keeps:
            return [
                f"the password of {printable(one)} is not kept: a submit asks for it" for one in self._found
            ]
        return [
            f"the password of {printable(one)} is kept in {self._secrets.keep(KIND, one, word)}"
            for one, word in self._found.items()
        ]


def passwords(workspace: Workspace, container: Container | None) -> dict[str, Any]:
    """What a submit brings beside its spec: {"logins": {registry: [user, password]}}. Raises RegistryLoginMissing."""
    if container is None or not container.logins:
        return {}
    secrets = _secrets(workspace)
    found: dict[str, list[str]] = {}
    for registry, one in by_registry(container.logins).items():
        # What is said now goes before what is kept; with several logins it cannot be known whose it is.
        said = os.environ.get(VARIABLE) if len(container.logins) == 1 else None
        word = said or secrets.get(KIND, one) or workspace.answers(_question(one))
        if not word:
            raise RegistryLoginMissing(one)
        found[registry] = [split(one)[0], word]
    return {"logins": found}


def forget(workspace: Workspace, before: Compute) -> list[str]:
    """Keep no longer what that compute has named, and now none does; sentences."""
    named = set(_named_by(before))
    for there in workspace.computes.all():
        named -= set(_named_by(there))
    told = []
    for one in sorted(named):
        secrets = _secrets(workspace)
        if secrets.get(KIND, one) is not None:
            secrets.forget(KIND, one)
            told.append(f"the password of {printable(one)} is forgotten")
    return told


def _named_by(compute: Compute) -> Iterable[str]:
    container: Mapping[str, Any] = getattr(compute.options, "container", None) or {}
    try:
        return by_registry(map(str, container.get("logins") or ())).values()
    except UsageError:
        return ()  # somebody has edited its file


def _question(login: str) -> Question:
    return Question(KIND, f"Password of {login}:", login)


def _secrets(workspace: Workspace) -> Any:
    from dray.workspace.login_secrets import LoginSecrets

    return LoginSecrets(workspace.home)
