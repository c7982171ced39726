"""Keeps runs alive on machines whose login manager ends all processes of a user at logout (`KillUserProcesses=yes` of logind).

`look` asks it when the machine is attached; a run then moves out of the login's session (`leave`). Decision 0023. Elsewhere
none of this is done, and nothing is started.
"""

from __future__ import annotations

import os
import time
from typing import Any

from .environments.pythons import find_program
from .files import read_text, replace
from .machine import Machine, user_of

_PATIENCE_S = 5.0
_MOVED_WITHIN_S = 2.0
_MANAGER = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_SERVICES = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
_OURS = "lingering by dray"


def look(machine: Machine, *, may_linger: bool) -> dict[str, Any]:
    """{} where logging out ends nothing; else {"lingers": whether runs survive it}. With `may_linger` it is switched on if need be."""
    marker = _marker(machine)
    user = user_of(os.getuid())[0]
    if not _kills(user):
        if os.path.exists(marker):
            os.unlink(marker)
        return {}
    lingers, ours = _lingers(user), _OURS in read_text(marker)
    if not lingers and may_linger:
        _said(["loginctl", "enable-linger"])
        lingers = ours = _lingers(user)
    replace(marker, (_OURS if ours else "found").encode() + b"\n")
    return {"lingers": lingers}


def leave(machine: Machine, run_id: str) -> str | None:
    """Move this process out of the session of its login, where that is needed; a sentence when it did not work."""
    if not os.path.exists(_marker(machine)):
        return None
    runtime = os.environ.get("XDG_RUNTIME_DIR") or "/run/user/%d" % os.getuid()
    env = dict(os.environ, XDG_RUNTIME_DIR=runtime)
    env.setdefault("DBUS_SESSION_BUS_ADDRESS", "unix:path=%s/bus" % runtime)
    scope = ["dray-%s.scope" % run_id, "fail", "1", "PIDs", "au", "1", str(os.getpid()), "0"]
    call = ["busctl", "--user", "call", *_SERVICES, "StartTransientUnit", "ssa(sv)a(sa(sv))", *scope]
    if _said(call, env) is not None:
        until = time.monotonic() + _MOVED_WITHIN_S
        while _in_session():
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        else:
            return None
    return (
        "this machine ends your processes when your last login ends, this run too; as an administrator: loginctl enable-linger %s"
        % (user_of(os.getuid())[0])
    )


def undo(machine: Machine) -> None:
    """Lingering as it was before dray came."""
    if _OURS in read_text(_marker(machine)):
        _said(["loginctl", "disable-linger"])


def _marker(machine: Machine) -> str:
    return os.path.join(machine.folder, "logout-ends-processes")


def _kills(user: str) -> bool:
    """Whether the login manager ends this user's processes at logout."""
    said = _said(
        ["busctl", "get-property", *_MANAGER, "KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers"]
    )
    # Three lines: `b true`, `as 0`, `as 1 "root"`.
    lines = (said or "").splitlines()
    if len(lines) != 3 or lines[0].split() != ["b", "true"]:
        return False
    only, spared = ([word.strip('"') for word in line.split()[2:]] for line in lines[1:])
    return user not in spared and (not only or user in only)


def _lingers(user: str) -> bool:
    return (_said(["loginctl", "show-user", user, "--property=Linger"]) or "").strip() == "Linger=yes"


def _in_session() -> bool:
    return any("/session-" in line for line in read_text("/proc/self/cgroup").splitlines())


def _said(command: list[str], env: dict[str, str] | None = None) -> str | None:
    """What that program says on stdout; None when it is not there, fails or hangs."""
    program = find_program(command[:1], os.environ.get("PATH", os.defpath))
    if program is None:
        return None
    import subprocess  # 5 ms that every start would wait for, and nearly none needs

    try:
        done = subprocess.run(
            [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S, check=False, env=env,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None
