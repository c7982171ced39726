"""Where the values of `--secret` come from. They are returned and kept nowhere.

`NAME=@FILE` reads the file. `NAME` looks, in this order, in the environment, in the keyring (service "dray"), and
asks on the terminal. `NAME=VALUE` is refused.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence

from dray.cli.voice import can_ask
from dray.core.errors import UsageError, printable

SERVICE = "dray"
LARGEST = 1 << 17  # Linux refuses longer variables (MAX_ARG_STRLEN)


def sources(words: Sequence[str]) -> dict[str, str | None]:
    """NAME -> file, or None, for each `--secret`; refuses what does not fit before anybody is asked."""
    found: dict[str, str | None] = {}
    for word in words:
        name, equals, source = word.partition("=")
        if not name:
            raise UsageError("`--secret` needs a name", hint="--secret HF_TOKEN")
        if equals and not source.startswith("@"):
            raise _seen_by_all(name)
        found[name] = source[1:] if equals else None
    return found


def collect(found: Mapping[str, str | None], *, may_ask: bool) -> dict[str, str]:
    """NAME -> value."""
    return {name: _value(name, path, may_ask=may_ask) for name, path in found.items()}


def _seen_by_all(name: str) -> UsageError:
    shown = printable(name)
    # The value is not repeated: this message may end up in a log.
    return UsageError(
        f"the value of the secret `{shown}` may not stand on the command line",
        why="every process on this machine can read it there, and the shell keeps it in its history",
        hint=f"`--secret {shown}` (environment, keyring or a prompt) or `--secret {shown}=@FILE`",
    )


def _value(name: str, path: str | None, *, may_ask: bool) -> str:
    value = _look(name, may_ask=may_ask) if path is None else _from_file(name, path)
    too_long = len(os.fsencode(value)) >= LARGEST - len(os.fsencode(name)) - 2
    for is_so, trouble in (
        (not value, "is empty"),
        ("\0" in value, "holds a NUL byte"),
        (too_long, "is too long"),
    ):
        if is_so:
            raise UsageError(f"the value of the secret `{printable(name)}` {trouble}")
    return value


def _from_file(name: str, path: str) -> str:
    """The file's content without its last newline, which editors and `echo` add."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            data = file.read(LARGEST + 2)
    except OSError as error:
        raise UsageError(
            f"the file of the secret `{printable(name)}` cannot be read: {printable(path)}",
            why=error.strerror,
        ) from error
    return os.fsdecode(data.removesuffix(b"\n").removesuffix(b"\r"))


def _look(name: str, *, may_ask: bool) -> str:
    shown = printable(name)
    if name in os.environ:
        return os.environ[name]
    kept = _from_keyring(name)
    if kept is not None:
        return kept
    if may_ask and can_ask():
        from getpass import getpass

        return getpass(f"Value of the secret {shown}: ")
    raise UsageError(
        f"the secret `{shown}` has no value",
        why="it is not in the environment nor in the keyring, and there is nobody to ask",
        hint=f"`export {shown}=...`, `--secret {shown}=@FILE`, or `keyring set {SERVICE} {shown}`",
    )


def _from_keyring(name: str) -> str | None:
    """What the system's keyring has; None without the `keyring` package, without a keyring, or without an entry."""
    try:
        keyring = importlib.import_module("keyring")
        errors = importlib.import_module("keyring.errors")
    except ImportError:
        return None
    try:
        value = keyring.get_password(SERVICE, name)
    except (errors.KeyringError, OSError):
        return None
    return None if value is None else str(value)
