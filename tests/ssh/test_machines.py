"""Machines as they are found: without a fitting python3, with one-time passwords, with few sessions, with strangers' files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell
from tests.ssh.test_links import attached
from tests.ssh.world import SSHD, Server, World, wait_until

_TOOLS = ("sh", "ls", "env", "cat", "mkdir", "rm")


def bare(server: Server, **programs: str) -> None:
    """A PATH with a few tools and those `programs` (name -> text of a script, or the path of a real one)."""
    folder = server.home / "bin"
    folder.mkdir()
    for name in _TOOLS:
        (folder / name).symlink_to(shutil.which(name) or name)
    for name, text in programs.items():
        place = folder / name.replace("_", ".")
        if text.startswith("#!"):
            place.write_text(text)
            place.chmod(0o755)
        else:
            place.symlink_to(text)
    for name in (".bashrc", ".bash_profile"):
        (server.home / name).write_text(f"export PATH='{folder}'\n")


def words(server: Server) -> list[str]:
    return ["--address", f"{server.user}@{server.address}", "--port", str(server.port)]


def test_a_python_under_another_name_is_found_and_remembered(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    bare(server, python3_11="/usr/bin/python3")
    done = shell.dray("attach", "vm", "box", *words(server))

    assert done.returncode == 0, done.stderr.decode()
    assert b"bin/python3.11" in done.stderr
    assert shell.dray("submit", "-c", "box", "--", "sh", "-c", "echo in").stdout == b"in\n"


def test_a_python_that_is_too_old_is_passed_over(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    # What calls itself 3.6 runs the channel's first program, and says so.
    old = "import sys; sys.version_info = (3, 6, 9); sys.version = '3.6.9 (old)'; exec(sys.argv[1])"
    bare(server, python3=f'#!/bin/sh\nexec /usr/bin/python3 -c "{old}" "$4"\n', python3_11="/usr/bin/python3")
    done = shell.dray("attach", "vm", "box", *words(server))

    assert done.returncode == 0, done.stderr.decode()
    assert b"bin/python3.11" in done.stderr


def test_a_python_that_was_named_is_used(world: World, shell: Shell) -> None:
    server = world.known()
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    bare(server, my_python="/usr/bin/python3")
    named = f"{server.home}/bin/my.python"

    assert (
        shell.dray("attach", "vm", "box", *words(server), "--host-python", "/no/such/python").returncode == 1
    )
    done = shell.dray("attach", "vm", "box", *words(server), "--host-python", named)
    assert done.returncode == 0, done.stderr.decode()


def no_local_programs(world: World) -> str:
    """A disguise: what this machine has beside the system's own programs is not seen."""
    nothing = world.folder / "nothing"
    nothing.mkdir()
    return f"mount --bind '{nothing}' /usr/local; mount --bind '{nothing}' /opt"


UV = """#!/bin/sh
test "$1 $2 $3" = "python install --install-dir" || { echo "error: what is $*?" >&2; exit 2; }
test "$UV_PYTHON_INSTALL_BIN" = 0 || exit 3
mkdir -p "$4/cpython-$5.9-linux/bin" && ln -s /usr/bin/python3 "$4/cpython-$5.9-linux/bin/python3"
"""


def test_where_there_is_no_python_uv_is_offered_and_brings_one(world: World, shell: Shell) -> None:
    server = world.known(home="a home with spaces", disguise=no_local_programs(world))
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    bare(server, uv=UV, ln=str(shutil.which("ln")))
    refused = shell.dray("attach", "vm", "box", *words(server))
    assert refused.returncode == 1
    assert b"has no Python 3.8 or newer" in refused.stderr
    assert b"--host-python uv" in refused.stderr

    done = shell.dray("attach", "vm", "box", *words(server), "--host-python", "uv")
    assert done.returncode == 0, done.stderr.decode()
    assert b"uv brought Python 3." in done.stderr
    assert shell.dray("attach", "vm", "box", *words(server), "--host-python", "uv").returncode == 0
    assert shell.dray("submit", "-c", "box", "--", "sh", "-c", "echo in").stdout == b"in\n"
    assert shell.dray("compute", "rm", "box", "--purge", "-y").returncode == 0
    assert not [name for name in server.files() if "dray" in name]


@pytest.mark.slow
def test_our_own_uv_goes_over_and_its_trouble_is_shown(world: World, shell: Shell) -> None:
    server = world.far(disguise=no_local_programs(world))  # it reaches nobody but us
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    bare(server, head=str(shutil.which("head")), chmod=str(shutil.which("chmod")))
    done = shell.dray("attach", "vm", "box", *words(server), "--host-python", "uv")

    assert done.returncode == 1
    assert b"uv brought no Python" in done.stderr
    assert b"it said nothing" not in done.stderr


def test_more_clients_than_a_connection_has_sessions(world: World, shell: Shell) -> None:
    server = world.known(settings=["MaxSessions 2"])
    attached(world, shell, server)
    shell.write("slow.py", "import time; time.sleep(1); print('done')")
    clients = [shell.start("submit", "-c", "box", "slow.py") for _ in range(5)]

    assert [client.communicate(timeout=60)[0] for client in clients] == [b"done\n"] * 5


def test_a_shell_over_the_kept_connection(world: World, shell: Shell) -> None:
    server = world.known()
    attached(world, shell, server)
    logins = server.log().count("Accepted")

    assert shell.dray("ssh", "box", "echo $HOME; exit 3").returncode == 3
    assert shell.dray("ssh", "box", "--", "exit 4").returncode == 4
    with shell.terminal("ssh", "box") as terminal:
        terminal.press(b"tty && echo we-are-$((40 + 2)) ; exit\n")
        terminal.until(b"we-are-42")
        terminal.ended()
    assert server.log().count("Accepted") == logins


def test_a_one_time_password_is_asked_once_and_the_connection_is_kept(world: World, shell: Shell) -> None:
    program = world.folder / f"sshd-{os.getpid()}"
    shutil.copy(SSHD, program)
    service = Path("/etc/pam.d") / program.name
    secret = "3132333435363738393031323334353637383930"  # the test vector of RFC 4226
    codes = ["755224", "287082", "359152", "969429"]
    users = world.folder / "users.oath"
    service.write_text(
        f"auth required pam_oath.so usersfile={users} window=5 digits=6\naccount required pam_permit.so\n"
        "session required pam_permit.so\n"
    )
    try:
        server = world.server(program=str(program), settings=["PubkeyAuthentication no"])
        world.client.trust(server)
        users.write_text(f"HOTP\t{server.user}\t-\t{secret}\n")
        users.chmod(0o600)
        alone = shell.dray("attach", "vm", "box", *words(server))
        assert alone.returncode == 1
        assert b"One-time password" in alone.stderr

        with shell.terminal("attach", "vm", "box", *words(server), columns=200) as terminal:
            terminal.until(b"One-time password")
            terminal.press(codes[0].encode() + b"\n")
            assert terminal.ended() == 0, terminal.seen.decode() + server.log()
        shell.write("hello.py", "print('in')")
        assert shell.dray("submit", "-c", "box", "hello.py").stdout == b"in\n"  # nobody was asked

        world.client.close()
        world.client.runtime.mkdir(mode=0o700)
        refused = shell.dray("submit", "-c", "box", "hello.py")
        assert refused.returncode == 125
        assert b"dray ssh box" in refused.stderr
        with shell.terminal("ssh", "box", "true", columns=200) as terminal:
            terminal.until(b"One-time password")
            terminal.press(codes[1].encode() + b"\n")
            assert terminal.ended() == 0, terminal.seen.decode() + server.log()
        assert shell.dray("submit", "-c", "box", "hello.py").stdout == b"in\n"
        assert not (world.client.dray_home / "login-secrets.json").exists()  # a code is good for once
    finally:
        service.unlink()


def test_a_control_path_of_the_users_is_used_and_its_shells_live_on(world: World, shell: Shell) -> None:
    server = world.known()
    path = world.folder / "mine"
    world.client.configure(
        f'IdentityFile "{world.client.key}"\nHost box\n  HostName {server.address}\n  Port {server.port}\n'
        f"  User {server.user}\n  ControlPath {path}\n  ControlMaster auto\n  ControlPersist yes\n"
    )
    env = {**os.environ, **world.client.env}
    with subprocess.Popen(["ssh", "box", "cat"], env=env, stdin=-1, stdout=-1) as theirs:
        assert theirs.stdin
        assert theirs.stdout
        wait_until(path.exists, server.log)
        logins = server.log().count("Accepted")

        assert shell.dray("attach", "vm", "box").returncode == 0
        assert shell.dray("submit", "-c", "box", "--", "echo", "in").stdout == b"in\n"
        assert server.log().count("Accepted") == logins
        assert not list(world.client.runtime.glob("dray/" + "?" * 40))
        assert shell.dray("compute", "rm", "box").returncode == 0

        theirs.stdin.write(b"still here\n")
        theirs.stdin.close()
        assert theirs.stdout.read() == b"still here\n"


def test_a_password_that_is_asked_for_by_keyboard_interactive(world: World, shell: Shell) -> None:
    server = world.server(settings=["PasswordAuthentication no", "PubkeyAuthentication no"])
    world.client.trust(server)
    with shell.start("attach", "vm", "box", *words(server), "--password-stdin", stdin=True) as process:
        _, err = process.communicate(server.password.encode() + b"\n")
    assert process.returncode == 0, err.decode() + server.log()
    world.client.close()
    world.client.runtime.mkdir(mode=0o700)

    assert shell.dray("submit", "-c", "box", "--", "echo", "in").stdout == b"in\n"
    assert "keyboard-interactive" in server.log()


def test_two_machines_with_one_home_never_judge_each_others_runs(world: World, shell: Shell) -> None:
    one = world.known()
    other_id = world.folder / "machine-id"
    other_id.write_text("0123456789abcdef0123456789abcdef\n")
    disguise = f"hostname other; test ! -e /etc/machine-id || mount --bind '{other_id}' /etc/machine-id"
    other = world.known(lives_with=one, disguise=disguise)
    attached(world, shell, one, "one")
    done = shell.dray("attach", "vm", "other", *words(other))
    assert done.returncode == 0, done.stderr.decode()
    assert b"same machine" not in done.stderr
    shell.write("long.py", "import time; print('on', flush=True); time.sleep(300)")

    there = shell.detached("-c", "one", "long.py")
    assert shell.dray("submit", "-c", "other", "--", "hostname").stdout == b"other\n"
    assert shell.dray("adopt", "other").stdout == b""
    assert shell.dray("gc", "-c", "other", "--keep", "0", "-y").returncode == 0
    assert shell.dray("compute", "rm", "other", "--purge", "-y").returncode == 0
    runs = {run["id"]: run["status"] for run in json.loads(shell.dray("runs", "--json").stdout)}
    assert runs[there] == "running"
    assert shell.dray("cancel", there, "--grace", "0").returncode == 0
    assert shell.dray("wait", there).returncode == 143
    assert shell.dray("logs", there).stdout == b"on\n"
    assert shell.dray("submit", "-c", "one", "--", "echo", "in").stdout == b"in\n"


def test_nothing_of_one_user_can_be_read_by_another(world: World, shell: Shell) -> None:
    server, stranger = world.known(), world.known()
    attached(world, shell, server)
    shell.write("secret.py", "open('outputs/model', 'w').write('weights'); print('private words')")
    assert shell.dray("submit", "-c", "box", "secret.py").returncode == 0
    server.home.chmod(0o755)  # as homes are on many machines

    look = f"import os\nfor p, d, f in os.walk({str(server.home)!r}):\n    for n in f: print(open(os.path.join(p, n)).read())"
    done = subprocess.run(
        ["/usr/bin/python3", "-c", look], user=stranger.user, capture_output=True, check=False, cwd="/"
    )
    assert b"private words" not in done.stdout
    assert b"weights" not in done.stdout


@pytest.mark.parametrize("where", ["a run folder's file name", "a link"])
def test_a_hostile_machine_writes_nowhere_but_where_it_is_told(
    world: World, shell: Shell, where: str
) -> None:
    server = world.known()
    attached(world, shell, server)
    evil = {
        "a run folder's file name": "import os; os.makedirs('outputs/..x'); open('outputs/..x/f', 'w'); "
        "open('outputs/\\x1b]0;owned\\x07', 'w').write('x')",
        "a link": "import os; os.symlink('/etc/passwd', 'outputs/passwd'); os.symlink('/etc', 'outputs/etc')",
    }[where]
    shell.write("evil.py", evil)
    shell.dray("submit", "-c", "box", "evil.py")
    target = world.folder / "fetched"
    done = shell.dray("outputs", "--to", str(target))

    assert b"\x1b]0" not in done.stdout + done.stderr
    for path in target.rglob("*") if target.exists() else []:
        assert path.resolve().is_relative_to(target.resolve())
        assert not path.is_symlink()
        assert b"root:" not in (path.read_bytes() if path.is_file() else b"")


def test_the_secrets_of_a_login_are_in_no_argument_and_no_environment(world: World, shell: Shell) -> None:
    server = world.server()
    world.client.trust(server)
    watch = world.folder / "watch.py"
    watch.write_text(
        "import os, sys, time\n"
        "mark, seen, me = sys.argv[1].encode()[::-1], 0, os.getpid()\n"  # reversed: it must not find itself
        "print('on', flush=True)\n"
        "while not os.path.exists(sys.argv[2]):\n"
        "    for pid in os.listdir('/proc'):\n"
        "        for name in ('cmdline', 'environ'):\n"
        "            try: seen += mark in open(f'/proc/{pid}/{name}', 'rb').read()\n"
        "            except OSError: pass\n"
        "print(seen)\n"
    )
    stop = world.folder / "stop"
    with subprocess.Popen(
        [sys.executable, watch, server.password[::-1], stop], stdout=subprocess.PIPE
    ) as watcher:
        assert watcher.stdout
        assert watcher.stdout.readline() == b"on\n"
        with shell.start("attach", "vm", "box", *words(server), "--password-stdin", stdin=True) as process:
            process.communicate((server.password + "\n").encode())
        assert process.returncode == 0
        shell.write("hello.py", "print('in')")
        assert shell.dray("submit", "-c", "box", "hello.py").returncode == 0
        stop.touch()
        assert watcher.stdout.read() == b"0\n"
