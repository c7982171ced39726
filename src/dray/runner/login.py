"""The machine's own set-up: what the user's login shell makes of the environment, and the set-up text kept with the compute.

The login shell writes its environment to a file of ours, so whatever profiles print, and however they end, is no part of it.
Read `LoginShell` first. Why a login shell at all: docs/decisions/0018.
"""

from __future__ import annotations

import os
from typing import Any

from .files import read_text
from .machine import user_of

LIMIT_S = 20.0
SET_UP_LIMIT_S = 600.0  # loading modules from a busy network disk takes minutes, never ten
_MOST_NOISE = 16 << 20
_MOST = 8 << 20  # no exec takes a larger environment

_TO = "DRAY_SETUP_TO"
_STATUS = "DRAY_SETUP_STATUS"
# A run sets these itself; the ones of another run, where this one was started from, are not its own.
_OF_A_RUN = ("RUN_ID", "ATTEMPT", "STREAMS", "OUTPUTS", "EXPERIMENT", "SECRETS")
_NOT_OURS = {"DRAY_" + name for name in _OF_A_RUN} | {_TO, _STATUS}
# What a shell keeps for itself, and what says where it stood.
_OF_THE_SHELL = {"_", "SHLVL", "PWD", "OLDPWD"}
_NO_SHELLS = ("nologin", "false", "true", "sync")

# After the set-up; its last command decides. /proc/self/environ is exactly what a program started there would get.
_HAND_OUT = {
    "sh": '%s=$?; [ "$%s" = 0 ] || exit "$%s"\nexec {cat} /proc/self/environ > "$%s"'
    % (_STATUS, _STATUS, _STATUS, _TO),
    "fish": 'set -l %s $status; test $%s = 0; or exit $%s\nexec {cat} /proc/self/environ > "$%s"'
    % (_STATUS, _STATUS, _STATUS, _TO),
    # A one-line `if` of csh redirects even when it does not hold, and its `exit` ends nothing under `-c`.
    "csh": 'test $status = 0 && exec {cat} /proc/self/environ > "$%s:q"\nfalse' % _TO,
}
# tcsh says by a variable that it is a login shell; the csh of BSD is none under `-c`, whatever it is called.
_GREET = {"csh": 'if (! $?loginsh && -r "$home/.login") source "$home/.login"'}
_DIALECTS = {"fish": "fish", "csh": "csh", "tcsh": "csh"}


def own_environment() -> dict[str, str]:
    """This process's variables, less those that belong to another run."""
    return {name: value for name, value in os.environ.items() if name not in _NOT_OURS}


class LoginShell:
    """One start of the user's login shell on this machine; leaves two files in `folder` until `forget`."""

    def __init__(self, folder: str, setup: str | None) -> None:
        self.setup = (setup or "").strip()
        self.noise = os.path.join(folder, "setup.log")
        self._to = os.path.join(folder, "setup.environ")
        self._base = own_environment()
        user, home, shell = user_of(os.getuid())
        for name, value in (("USER", user), ("LOGNAME", user), ("HOME", home)):
            if value:
                self._base.setdefault(name, value)
        self.shell = _usable([self._base.get("SHELL", ""), shell])
        self._base["SHELL"] = self.shell

    @property
    def limit_s(self) -> float:
        """How long it may take."""
        return SET_UP_LIMIT_S if self.setup else LIMIT_S

    def step(self, mark: dict[str, str]) -> dict[str, Any]:
        """The order to the guard; `mark` goes into the environment and comes not out again."""
        name = os.path.basename(self.shell)
        dialect = _DIALECTS.get(name, "sh")
        hand_out = _HAND_OUT[dialect]
        cat = next((p for p in ("/bin/cat", "/usr/bin/cat") if os.access(p, os.X_OK)), "cat")
        lines = [_GREET.get(dialect, ""), self.setup or "true", hand_out.replace("{cat}", cat)]
        word = "\n".join(line for line in lines if line)
        home = self._base.get("HOME", "/")
        return {
            "step": "environment",
            "program": self.shell,
            # A dash in front makes any shell a login shell, whatever its options are called: login(1) and sshd do the same.
            "argv": ["-" + name, "-c", word],
            "env": dict(self._base, **dict(mark, **{_TO: self._to})),
            "cwd": home if os.access(home, os.X_OK) else "/",
            "log": self.noise,
            "mask": [],
        }

    def is_too_loud(self) -> bool:
        """Whether it has printed more than anyone will read."""
        try:
            return os.stat(self.noise).st_size > _MOST_NOISE
        except OSError:
            return False

    def environment(self) -> dict[str, str] | None:
        """What it handed out; None when it did not come to that."""
        try:
            with open(self._to, "rb") as file:
                data = file.read(_MOST + 1)
        except OSError:
            return None
        return parse(data) if len(data) <= _MOST else None

    def forget(self) -> None:
        """Remove both files: profiles may export tokens."""
        for path in (self._to, self.noise):
            try:
                os.unlink(path)
            except OSError:
                continue


def parse(data: bytes) -> dict[str, str] | None:
    """NUL-separated variables -> environment; None when it is cut, or none at all."""
    if not data.endswith(b"\0"):
        return None
    found = {}
    for row in data[:-1].split(b"\0"):
        name, equals, value = os.fsdecode(row).partition("=")
        if name and equals and name not in _NOT_OURS and name not in _OF_THE_SHELL:
            found[name] = value
    return found or None


def _usable(shells: list[str]) -> str:
    """The first that can be started and does run commands."""
    for shell in shells:
        runs = os.path.isabs(shell) and os.path.basename(shell) not in _NO_SHELLS
        if runs and os.path.isfile(shell) and os.access(shell, os.X_OK):
            return shell
    return "/bin/sh"


def why_not(shell: LoginShell, late: bool, seen: dict[str, Any], words: str) -> str:
    """Why there is no environment, in a sentence."""
    what = "the login shell (%s)" % shell.shell
    if shell.setup:
        shown = " ".join(shell.setup.split())
        what = "the set-up `%s`" % (shown[:117] + "..." if len(shown) > 120 else shown)
    if "cannot" in seen:
        how = "could not be started: %s" % os.strerror(seen["cannot"])
    elif late:
        how = "printed without end" if shell.is_too_loud() else "took more than %g s" % shell.limit_s
    elif seen.get("signal"):
        how = "was ended by signal %d" % seen["signal"]
    elif seen.get("code"):
        how = "failed with exit code %d" % seen["code"]
    else:
        how = "ended before it told its environment"
    return "%s %s%s" % (what, how, ": " + words if words else "")


def told(noise: str) -> bytes:
    """What it printed, for the log of the environment."""
    return read_text(noise)[:_MOST_NOISE].encode("utf-8", "replace")
