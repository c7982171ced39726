"""Secrets of logins and of runs: 20 are planted, and looked for in every command line, file, log and history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.dray_shell import Shell
from tests.ssh.world import Server, World

ROUNDS = 5  # four secrets each
# Reads the secrets from stdin: they are to be in no command line, its own included. The last line tells it to stop.
WATCH = """
import os, select, sys, time
login, runs = [[one.encode() for one in sys.stdin.readline().split()] for _ in range(2)]
print("on", flush=True)
found, seen = set(), 0
while not select.select([sys.stdin], [], [], 0.01)[0]:
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        seen += 1
        for name, secrets in (("cmdline", login + runs), ("environ", login)):
            try:
                data = open("/proc/%s/%s" % (pid, name), "rb").read()
            except OSError:
                continue
            found.update("%s in %s: %r" % (one, name, data[:200]) for one in secrets if one in data)
print(seen)
print(sorted(found))
"""
# It does with its secrets all that careless scripts do.
CARELESS = """
import os, sys, urllib.parse, dray
token, login = os.environ["TOKEN"], os.environ["LOGIN"]
print("token", token, file=sys.stderr)
print("https://ana:%s@data.example.org/set" % urllib.parse.quote(login, safe=""))
print("https://ana:%s@data.example.org/set" % login)
dray.log_params(token=token, address="https://ana:%s@data.example.org" % login)
dray.tag(login=login)
print("the words beside it")
"""


@contextmanager
def watched(login: list[str], runs: list[str]) -> Iterator[None]:
    """Every process of this machine is looked at, all the time; at the end, nothing must have been seen."""
    with subprocess.Popen(
        [sys.executable, "-c", WATCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdin
        assert watcher.stdout
        watcher.stdin.write(" ".join(login) + "\n" + " ".join(runs) + "\n")
        watcher.stdin.flush()
        assert watcher.stdout.readline() == "on\n"
        try:
            yield
        finally:
            seen, found = watcher.communicate("stop\n", timeout=30)[0].splitlines()
        assert int(seen) > 1000  # it has looked
        assert found == "[]"


def holding(folder: Path, secrets: list[str]) -> set[str]:
    """The files below `folder` with one of them, plain or as it stands in an address."""
    from urllib.parse import quote

    marks = [form.encode() for one in secrets for form in (one, quote(one, safe=""))]
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.name for path in files if any(mark in path.read_bytes() for mark in marks)}


def secret(kind: str) -> str:
    return f"{kind}/{os.urandom(9).hex()}+x"


def log_in(shell: Shell, server: Server, name: str, *words: str, line: str) -> bytes:
    where = ("--address", f"{server.user}@{server.address}", "--port", str(server.port))
    with shell.start("attach", "vm", name, *where, *words, stdin=True) as process:
        out, err = process.communicate(f"{line}\n".encode())
    assert process.returncode == 0, err.decode() + server.log()
    return out + err


def test_20_planted_secrets_are_found_nowhere(world: World, shell: Shell) -> None:
    server = world.server()
    world.client.trust(server)
    shell.write("careless.py", CARELESS)
    passwords, passphrases, tokens, logins = (
        [secret(kind) for _ in range(ROUNDS)] for kind in ("pass", "phrase", "token", "login")
    )
    keys = []
    for number, passphrase in enumerate(passphrases):
        keys.append(world.client.new_key(f"id{number}", passphrase))
    said = b""
    with watched([*passwords, *passphrases], [*tokens, *logins]):
        for number in range(ROUNDS):
            server.change_password(passwords[number])
            said += log_in(shell, server, f"by-password{number}", "--password-stdin", line=passwords[number])
            server.authorized.write_text(keys[number].with_suffix(".pub").read_text())
            key = ("--identity-file", str(keys[number]), "--passphrase-stdin")
            said += log_in(shell, server, f"by-key{number}", *key, line=passphrases[number])
            server.authorized.write_text("")
            run = shell.dray(
                *("submit", "-c", f"by-key{number}", "--secret", "TOKEN", "--secret", "LOGIN", "careless.py"),
                env={"TOKEN": tokens[number], "LOGIN": logins[number]},
            )
            assert run.returncode == 0, run.stderr.decode()
            assert run.stdout.endswith(b"the words beside it\n")
            said += run.stdout + run.stderr
        for words in (("show", "--json"), ("logs",), ("runs",), ("doctor",), ("compute", "list", "--json")):
            done = shell.dray(*words)
            said += done.stdout + done.stderr

    everything = [*passwords, *passphrases, *tokens, *logins]
    assert len(everything) == 20
    assert not [one for one in everything if one.encode() in said]
    # The file of last resort holds the secrets of logins, for this user's eyes alone; nothing else holds any.
    assert holding(world.folder, everything) == {"login-secrets.json"}
    assert holding(world.folder, [*tokens, *logins]) == set()
    assert (world.client.dray_home / "login-secrets.json").stat().st_mode & 0o777 == 0o600
    assert holding(world.client.runtime, everything) == set()
    kept = json.loads((world.client.dray_home / "login-secrets.json").read_text())
    assert sorted(kept.values()) == sorted([passwords[-1], *passphrases])


def test_a_password_in_an_address_is_refused_and_not_repeated(world: World, shell: Shell) -> None:
    for address in ("ana:se-cret@10.0.0.5", "ssh://ana:se-cret@10.0.0.5", "ssh://ana@10.0.0.5:2222"):
        done = shell.dray("attach", "vm", "box", "--address", address)
        assert done.returncode == 2
        assert b"se-cret" not in done.stdout + done.stderr
        assert b"--" in done.stderr  # the flag that is meant
    assert b"--password-stdin" in shell.dray("attach", "vm", "box", "--address", "a:b@c").stderr
    assert b"--port 2222" in done.stderr
