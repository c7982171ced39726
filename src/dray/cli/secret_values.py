"""Where the values of `--secret` come from. They are returned and kept nowhere.

`NAME=@FILE` reads the file. `NAME` looks, in this order, in the environment, in the keyring (service "dray"), and
asks on the terminal. `NAME=VALUE` is refused.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence

from dray.cli.voice import can_ask
from dray.core.errors import UsageError, printable

SERVICE = "dray"
LARGEST = 1 << 17  # Linux refuses longer variables (MAX_ARG_STRLEN)


def collect(words: Sequence[str], *, may_ask: bool) -> dict[str, str]:
    """NAME -> value for each `--secret`."""
    return dict(_one(word, may_ask=may_ask) for word in words)


def _one(word: str, *, may_ask: bool) -> tuple[str, str]:
    name, equals, source = word.partition("=")
    shown = printable(name)
    if not name or "\0" in name:
        raise UsageError("`--secret` needs a name", hint="--secret HF_TOKEN")
    if equals and not source.startswith("@"):
        # The value is not repeated: this message may end up in a log.
        raise UsageError(
            f"the value of the secret `{shown}` may not stand on the command line",
            why="every process on this machine can read it there, and the shell keeps it in its history",
            hint=f"`--secret {shown}` (environment, keyring or a prompt) or `--secret {shown}=@FILE`",
        )
    value = _from_file(shown, source[1:]) if equals else _look(name, may_ask=may_ask)
    if not value or "\0" in value or len(os.fsencode(value)) >= LARGEST - len(os.fsencode(name)) - 2:
        trouble = (
            "is empty" if not value else "holds a NUL byte" if "\0" in value else "is longer than 128 kB"
        )
        raise UsageError(f"the value of the secret `{shown}` {trouble}")
    return name, value


def _from_file(shown: str, path: str) -> str:
    """The file's content without its last newline, which editors and `echo` add."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            data = file.read(LARGEST + 2)
    except OSError as error:
        raise UsageError(
            f"the file of the secret `{shown}` cannot be read: {printable(path)}", why=error.strerror
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
