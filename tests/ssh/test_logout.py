"""Machines whose login manager ends a user's processes at logout. `busctl` and `loginctl` are small programs that keep their contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell
from tests.ssh.test_machines import words
from tests.ssh.world import Server, World

BUSCTL = """#!/bin/sh
case "$1 $2" in
"get-property org.freedesktop.login1") printf '%s\\n' "b $KILLS" "as 0" 'as 1 "root"' ;;
"--user call") test -e "$HOME/lingers" || exit 1; echo "$DBUS_SESSION_BUS_ADDRESS $*" >> "$HOME/moved"; echo 'o "/job/1"' ;;
*) exit 1 ;;
esac
"""
LOGINCTL = """#!/bin/sh
case "$1" in
show-user) if test -e "$HOME/lingers"; then echo Linger=yes; else echo Linger=no; fi ;;
enable-linger) test -z "$DENIES" && touch "$HOME/lingers" ;;
disable-linger) rm "$HOME/lingers" ;;
esac
"""


def managed(world: World, kills: str, denies: str = "") -> Server:
    """A machine with such a login manager."""
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    folder = server.home / "bin"
    folder.mkdir()
    for name, text in (("busctl", BUSCTL), ("loginctl", LOGINCTL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (server.home / ".bashrc").write_text(f"export PATH={folder}:$PATH KILLS={kills} DENIES={denies}\n")
    return server


def test_lingering_is_switched_on_and_runs_leave_the_session(world: World, shell: Shell) -> None:
    server = managed(world, kills="true")
    done = shell.dray("attach", "vm", "box", *words(server))
    assert done.returncode == 0, done.stderr.decode()
    assert b"lingering is on" in done.stderr
    shell.write("who.py", "import os; print(os.environ['DRAY_RUN_ID'])")

    run_id = shell.dray("submit", "-c", "box", "who.py").stdout.decode().strip()
    moved = (server.home / "moved").read_text()
    assert f"dray-{run_id}.scope fail 1 PIDs au 1 " in moved
    assert f"unix:path=/run/user/{server.uid}/bus " in moved
    assert "StartTransientUnit ssa(sv)a(sa(sv)) " in moved

    shell.dray("compute", "rm", "box", "--purge", "-y")
    assert not (server.home / "lingers").exists()  # as it was before


def test_who_may_not_linger_is_told_at_attach_at_check_and_by_each_run(world: World, shell: Shell) -> None:
    server = managed(world, kills="true", denies="yes")
    command = f"loginctl enable-linger {server.user}".encode()
    done = shell.dray("attach", "vm", "box", *words(server))
    assert done.returncode == 0, done.stderr.decode()
    assert command in done.stderr
    assert command in shell.dray("compute", "check", "box").stdout

    run = shell.dray("submit", "-c", "box", "--", "true")
    assert run.returncode == 0
    assert command in run.stderr


@pytest.mark.parametrize("kills", ["false", "nonsense"])
def test_elsewhere_nothing_is_done(world: World, shell: Shell, kills: str) -> None:
    server = managed(world, kills=kills)
    assert shell.dray("attach", "vm", "box", *words(server)).returncode == 0
    assert shell.dray("submit", "-c", "box", "--", "true").returncode == 0

    shown = json.loads(shell.dray("compute", "show", "box", "--json").stdout)
    assert shown["machine"]["logout"] == {}
    assert not Path(server.home / "lingers").exists()
    assert not Path(server.home / "moved").exists()
