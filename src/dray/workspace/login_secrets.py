"""Passwords and passphrases of logins: kept in the system's keyring, else in a file for this user's eyes alone.

Each is kept under the very words by which ssh asks for it: `password ana@10.0.0.5`, `passphrase /home/ana/.ssh/id_x`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dray.core.errors import DrayError, printable
from dray.hosts import Question

_SERVICE = "dray login"
PASSWORD, PASSPHRASE = "password", "passphrase"  # kinds of questions


class LoginSecrets:
    """The secrets of one DRAY_HOME."""

    def __init__(self, home: Path) -> None:
        self._file = home / "login-secrets.json"

    def look_up(self, question: Question) -> str | None:
        """What was kept for exactly this question."""
        return self.get(question.kind, question.about)

    def get(self, kind: str, about: str) -> str | None:
        """The secret of that kind for `user@host`, or for a key file."""
        key = _key(kind, about)
        kept = self._kept().get(key)
        if isinstance(kept, str):
            return kept
        keyring = _keyring()
        if keyring is None:
            return None
        with _quietly():
            found = keyring.get_password(_SERVICE, key)
            return found if isinstance(found, str) else None
        return None

    def keep(self, kind: str, about: str, secret: str) -> str:
        """Keep it; says where it is now."""
        key = _key(kind, about)
        keyring = _keyring()
        if keyring is not None:
            with _quietly():
                keyring.set_password(_SERVICE, key, secret)
                if keyring.get_password(_SERVICE, key) == secret:
                    self._write({name: text for name, text in self._kept().items() if name != key})
                    return "the keyring of this system"
        self._write({**self._kept(), key: secret})
        return f"{printable(str(self._file))}, which only you can read (this system has no keyring)"

    def forget(self, kind: str, about: str) -> None:
        """Keep it no longer."""
        key = _key(kind, about)
        kept = self._kept()
        if key in kept:
            self._write({name: text for name, text in kept.items() if name != key})
        keyring = _keyring()
        if keyring is not None:
            with _quietly():
                keyring.delete_password(_SERVICE, key)

    def _kept(self) -> dict[str, Any]:
        try:
            file = os.open(self._file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            return {}
        with open(file) as text:
            if os.name == "posix" and os.fstat(file).st_mode & 0o077:
                raise DrayError(
                    "others may read the file of passwords",
                    why=f"the permissions of {printable(str(self._file))} were changed",
                    hint=f"chmod 600 {printable(str(self._file))}, and change those passwords",
                )
            try:
                found = json.load(text)
            except ValueError:
                return {}
        return found if isinstance(found, dict) else {}

    def _write(self, kept: dict[str, Any]) -> None:
        if not kept:
            self._file.unlink(missing_ok=True)
            return
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self._file.with_name(f".{self._file.name}.{os.urandom(4).hex()}")
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(kept, file)
        beside.replace(self._file)


def _key(kind: str, about: str) -> str:
    return f"{kind} {os.path.realpath(os.path.expanduser(about)) if kind == PASSPHRASE else about}"


def _keyring() -> Any:
    """The library, when it is there and has a keyring to talk to."""
    import importlib

    try:
        keyring: Any = importlib.import_module("keyring")
    except ImportError:
        return None
    with _quietly():
        # Those that keep nothing have the priority zero, or less.
        if keyring.get_keyring().priority > 0:
            return keyring
    return None


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """A keyring that is locked, or has lost its daemon, is as good as none."""
    try:
        yield
    except Exception:
        return
