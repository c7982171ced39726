"""Real ssh servers, each with a user of its own, and a client with a configuration of its own. Needs root and OpenSSH."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

SSHD = "/usr/sbin/sshd"
LIMIT_S = 15.0


class Server:
    """One sshd on a loopback address: a "host". It has one user, with a password and a home."""

    def __init__(
        self,
        folder: Path,
        number: int,
        *,
        shell: str = "/bin/bash",
        home: str = "home",
        settings: Sequence[str] = (),
        program: str = SSHD,
        link: Link | None = None,
        disguise: str = "",
        lives_with: Server | None = None,
    ) -> None:
        """`disguise` is a line of `sh` that makes it look like another machine, in namespaces of its own.

        `lives_with` is another host, with the same user and the same home: as on machines with a home on the network.
        """
        self.folder = folder
        self.link = link
        self.address = link.address if link else f"127.0.0.{number}"
        self.program = program
        self._settings = settings
        self._disguise = disguise
        self._is_guest = lives_with is not None
        self.user: str = lives_with.user if lives_with else f"dray{os.urandom(4).hex()}"
        self.password: str = lives_with.password if lives_with else f"pw-{os.urandom(6).hex()}"
        self.home: Path = lives_with.home if lives_with else folder / home
        if not lives_with:
            self._settle(shell)
        self.uid = pwd.getpwnam(self.user).pw_uid
        self.port = 22 if link else _free_port(self.address)
        self._key("hostkey")
        self.authorized = folder / "authorized_keys"
        self.authorized.touch()
        self.start()

    def _settle(self, shell: str) -> None:
        words = ["useradd", "--no-create-home", "--home-dir", str(self.home), "--shell", shell, self.user]
        subprocess.run(words, check=True)
        account = pwd.getpwnam(self.user)
        self.home.mkdir(mode=0o700)
        os.chown(self.home, account.pw_uid, account.pw_gid)
        self.change_password(self.password)

    def _key(self, name: str) -> None:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)

    def start(self) -> None:
        """Begin to listen, and wait for it."""
        Path("/run/sshd").mkdir(exist_ok=True)
        lines = [
            f"Port {self.port}", f"ListenAddress {self.address}", f"HostKey {self.folder}/hostkey",
            f"PidFile {self.folder}/sshd.pid", f"AuthorizedKeysFile {self.authorized}", "StrictModes no", "UsePAM yes",
            "UseDNS no", "MaxStartups 100:30:200", "PrintMotd no", "Subsystem sftp internal-sftp", *self._settings, "PasswordAuthentication yes",
            "KbdInteractiveAuthentication yes",
        ]  # fmt: skip
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")
        command = [self.program, "-f", str(self.folder / "sshd_config"), "-E", str(self.folder / "sshd.log")]
        if self._disguise:
            command = ["unshare", "-m", "-u", "sh", "-ec", f'{self._disguise}; exec "$0" "$@"', *command]
        if self.link:
            command = ["ip", "netns", "exec", self.link.name, *command]
        subprocess.run(command, check=True)
        wait_until(self._listens, self.log)

    def stop(self) -> None:
        """End the listener; connections stay."""
        pid = self.folder / "sshd.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
            wait_until(lambda: not self._listens(), self.log)

    def kill(self) -> None:
        """As with `kill -9` of every sshd: the listener and all that serve somebody."""
        pid = self.folder / "sshd.pid"
        os.kill(int(pid.read_text()), signal.SIGKILL)
        self.cut()
        wait_until(lambda: not self._listens(), self.log)

    def cut(self) -> None:
        """End all connections at once, as a reboot of a router would. Runs go on: they belong to no connection."""
        for pid in self.connections():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def connections(self) -> list[int]:
        """The processes of sshd that serve somebody here."""
        marks = (f"sshd: {self.user}".encode(), f"sshd: {self.user} [priv]".encode())
        return [pid for pid, line in _command_lines() if line.startswith(marks)]

    def processes(self) -> list[int]:
        """All processes of its user."""
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and os.stat(f"/proc/{name}").st_uid == self.uid:
                    found.append(int(name))
        return found

    def change_password(self, password: str) -> None:
        """From now on that one lets its user in."""
        subprocess.run(["chpasswd"], input=f"{self.user}:{password}\n".encode(), check=True)
        self.password = password

    def let_in(self, public_key: Path) -> None:
        """Accept that key."""
        with self.authorized.open("a") as file:
            file.write(public_key.read_text())

    def new_host_key(self) -> None:
        """Be another machine from now on, as after a new installation."""
        self.stop()
        for name in ("hostkey", "hostkey.pub"):
            (self.folder / name).unlink()
        self._key("hostkey")
        self.start()

    def files(self) -> list[str]:
        """All that is in the home, sorted."""
        return sorted(str(path.relative_to(self.home)) for path in self.home.rglob("*"))

    def log(self) -> str:
        """What sshd said."""
        path = self.folder / "sshd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(OSError, ValueError):
            self.stop()
        self.cut()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self._is_guest:
            subprocess.run(["userdel", "--force", self.user], check=False, capture_output=True)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((self.address, self.port)) == 0


class Link:
    """A network of one machine, and the cable to it, which can be pulled."""

    def __init__(self, number: int) -> None:
        self.name = f"dray{os.getpid() % 100000}n{number}"
        self.cable = f"dr{os.getpid() % 100000}n{number}"
        net = f"10.{77 + os.getpid() % 100}.{number}"
        self.address = f"{net}.2"
        for command in (
            f"ip netns add {self.name}",
            f"ip link add {self.cable} type veth peer name eth0 netns {self.name}",
            f"ip addr add {net}.1/24 dev {self.cable}",
            f"ip link set {self.cable} up",
            f"ip -n {self.name} addr add {net}.2/24 dev eth0",
            f"ip -n {self.name} link set eth0 up",
            f"ip -n {self.name} link set lo up",
        ):
            subprocess.run(command.split(), check=True)

    def pull(self) -> None:
        """Silence: nobody is told."""
        subprocess.run(["ip", "link", "set", self.cable, "down"], check=True)

    def plug(self) -> None:
        """All is well again."""
        subprocess.run(["ip", "link", "set", self.cable, "up"], check=True)

    def reset(self) -> None:
        """Every connection is refused from one moment to the next."""
        subprocess.run(
            ["ip", "netns", "exec", self.name, "ss", "-K", "sport", "=", ":22"],
            check=True,
            capture_output=True,
        )

    def close(self) -> None:
        """Gone, with all that runs in it."""
        done = subprocess.run(["ip", "netns", "pids", self.name], check=False, capture_output=True, text=True)
        for pid in done.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.cable], check=False, capture_output=True)


class Client:
    """A person's computer: a home with `.ssh/config`, and an `ssh` that reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "client"
        self.dray_home = folder / "dray home"
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        self.config = self.home / ".ssh" / "config"
        # Sockets need short paths.
        self.runtime = Path(tempfile.mkdtemp(prefix="dr"))
        programs = folder / "programs"
        programs.mkdir()
        known = self.home / ".ssh" / "known_hosts"
        self.known_hosts = known
        self.configure("")
        # OpenSSH looks its user's home up in the system's list of users; this one's is somewhere else.
        ssh = programs / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {shlex.quote(str(self.config))} "$@"\n')
        ssh.chmod(0o755)
        self.key = self.new_key("id_test")
        self.env = {
            "HOME": str(self.home),
            "DRAY_HOME": str(self.dray_home),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PATH": f"{programs}:{os.environ['PATH']}",
        }

    def configure(self, text: str) -> None:
        """Write ~/.ssh/config. The lines that every host shares come last, as ssh wants it."""
        shared = f'Host *\n  UserKnownHostsFile "{self.known_hosts}"\n  GlobalKnownHostsFile /dev/null\n'
        self.config.write_text(text + shared)

    def new_key(self, name: str, passphrase: str = "") -> Path:
        """A key pair in ~/.ssh."""
        path = self.home / ".ssh" / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", path], check=True)
        return path

    def trust(self, server: Server) -> None:
        """Have its host key in the user's own known_hosts already."""
        key = " ".join((server.folder / "hostkey.pub").read_text().split()[:2])
        where = server.address if server.port == 22 else f"[{server.address}]:{server.port}"
        with self.known_hosts.open("a") as file:
            file.write(f"{where} {key}\n")

    def close(self) -> None:
        """End the connections that are kept."""
        for pid, line in _command_lines():
            if str(self.runtime).encode() in line or str(self.home).encode() in line:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.runtime, ignore_errors=True)


class World:
    """Servers and a client, all gone afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = Client(folder)
        self.servers: list[Server] = []
        self.links: list[Link] = []

    def far(self, **how: Any) -> Server:
        """A host at the other end of a cable, known to the client."""
        self.links.append(Link(1 + len(self.links)))
        return self.known(link=self.links[-1], **how)

    def server(self, **how: Any) -> Server:
        """One more host, at an address of its own."""
        number = 2 + len(self.servers) + 10 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:] or 0)
        folder = self.folder / f"host{len(self.servers)}"
        folder.mkdir(mode=0o755)
        made = Server(folder, number, **how)
        self.servers.append(made)
        return made

    def known(self, **how: Any) -> Server:
        """One more host, which the client knows and may enter with its key."""
        made = self.server(**how)
        self.client.trust(made)
        made.let_in(self.client.key.with_suffix(".pub"))
        return made

    def close(self) -> None:
        """Leave nothing behind."""
        self.client.close()
        for server in self.servers:
            server.close()
        for link in self.links:
            link.close()


def new_world() -> Iterator[World]:
    """For a fixture."""
    if os.geteuid() != 0 or not os.access(SSHD, os.X_OK):
        if "sshd" in os.environ.get("DRAY_REQUIRE", "").split(","):
            pytest.fail("sshd is required here, and root to start it")
        pytest.skip("needs root and OpenSSH's sshd; CI has both")
    # Not below pytest's folders: other users have to get to their homes.
    folder = Path(tempfile.mkdtemp(prefix="dray-ssh-"))
    folder.chmod(0o755)
    made = World(folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(
    fact: Callable[[], object], explain: Callable[[], str] = str, limit_s: float = LIMIT_S
) -> None:
    """Wait for a fact; when it does not come, say what `explain` says."""
    deadline = time.monotonic() + limit_s
    while not fact():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.02)


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _command_lines() -> Iterator[tuple[int, bytes]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                yield int(name), Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").strip()
