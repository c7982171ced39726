"""`vm`: a machine behind ssh. Host: ssh. Scheduler: starts at once. Launcher: a process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dray.core.container_wish import ContainerWish
from dray.core.errors import UsageError, printable
from dray.hosts import Answers
from dray.hosts.ssh import SshHost, SshOptions


@dataclass(frozen=True, slots=True)
class VmOptions:
    """What `dray attach vm` and `dray compute update` can say; each field is a flag of the same name."""

    address: str = field(
        default="", metadata={"help": "USER@HOST, HOST, or a `Host` of ~/.ssh/config; default: NAME."}
    )
    username: str | None = field(
        default=None, metadata={"help": "The user there; default: what ~/.ssh/config says."}
    )
    port: int | None = field(
        default=None, metadata={"help": "The port; default: what ~/.ssh/config says, else 22."}
    )
    identity_file: str | None = field(
        default=None, metadata={"help": "The private key; default: those that ssh finds."}
    )
    setup: str | None = field(
        default=None,
        metadata={"help": "A line for the login shell there, before builder and script: 'module load cuda'."},
    )
    host_python: str | None = field(
        default=None,
        metadata={"help": "The Python (3.8+) that runs dray's runner there; `uv`: one that uv brings."},
    )
    folder: str | None = field(
        default=None, metadata={"help": "dray's folder there; default: ~/.local/share/dray/machine."}
    )
    default_gpus: int | None = field(
        default=None,
        metadata={"help": "GPUs of a run that asks for none; default: 1 where the machine has GPUs, else 0."},
    )
    needs_person: bool = False
    """Logging in asks for something that cannot be stored. Found out at attach; no flag."""

    def checked(self, name: str) -> VmOptions:
        """With `user@` taken out of the address, and the name for an address where there is none."""
        user, at, host = _plain(self.address).rpartition("@")
        if at and self.username and user != self.username:
            raise UsageError(
                f"two users: `{printable(user)}` in the address, and `{printable(self.username)}`"
            )
        for text in (self.setup, self.host_python, self.folder):
            if text is not None and (not text.strip() or "\0" in text or "\n" in text):
                raise UsageError(f"`{printable(text[:80])}` has to be one line")
        if self.default_gpus is not None and not 0 <= self.default_gpus <= 64:
            raise UsageError("a run has 0 to 64 GPUs", hint="--default-gpus 1")
        if self.folder is not None and not self.folder.startswith(("/", "~/")):
            raise UsageError(
                f"`{printable(self.folder)}` is no absolute folder", hint="/scratch/ana/dray, or ~/dray"
            )
        made = replace(self, address=host or name, username=(user if at else self.username) or None)
        made.ssh().checked()
        return made

    def ssh(self) -> SshOptions:
        """The part that is the way there."""
        return SshOptions(self.address, self.username, self.port, self.identity_file, self.needs_person)


def _plain(address: str) -> str:
    """USER@HOST. Refuses an address with more in it, and does not repeat what may be a password."""
    rest = address.removeprefix("ssh://").rstrip("/")
    user, at, host = rest.rpartition("@")
    if ":" in user:
        raise UsageError(
            "there is a password in the address",
            why="every process of this machine can read it there, and the shell keeps it in its history",
            hint="leave it out: dray asks for it on a terminal; in a script --password-stdin",
        )
    host, colon, port = host.partition(":")
    if colon and port.isdigit() and ":" not in port:
        raise UsageError(
            "there is a port in the address", hint=f"--address {printable(user + at + host)} --port {port}"
        )
    return rest


class VmTarget:
    """A machine behind ssh."""

    kind = "vm"
    is_here = False
    container: ContainerWish | None = None

    def __init__(self, name: str, options: VmOptions, home: Path, answers: Answers | None = None) -> None:
        self.name = name
        self.options = options
        self.host = SshHost(name, options.ssh(), home, answers)
        self.root = options.folder
        self.python = options.host_python
        self.setup = options.setup
        self.default_gpus = options.default_gpus

    def near(self) -> dict[str, Any]:
        """Nothing of ours is at hand there."""
        return {}
