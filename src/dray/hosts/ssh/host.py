"""A machine behind ssh: the channel is the user's own `ssh`, over a connection that is kept for the next command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from dray.core.errors import DrayError, UsageError, printable
from dray.core.interfaces import ByteChannel, Host
from dray.hosts.errors import HostUnreachable, NoSsh, SshConfigBroken
from dray.hosts.process import ProcessChannel
from dray.hosts.questions import SECRET_VARIABLES, Answers, Question, nobody
from dray.hosts.ssh import words
from dray.hosts.ssh.asking import Asking
from dray.hosts.ssh.place import runtime_folder

_KEPT = "4h"
_ADDRESS = re.compile(r"[A-Za-z0-9_.:%\[\]\u00a1-\U0010ffff][-A-Za-z0-9_.:%\[\]\u00a1-\U0010ffff]*")
_USER = re.compile(r"[A-Za-z0-9_\\.][-A-Za-z0-9_.\\$@+]*")
_PATIENCE_S = 3.0
# A dead link is noticed in 20 s, and a new connection costs nothing; but not where it costs a person a one-time password.
_ALIVE = {"ServerAliveInterval": "5", "ServerAliveCountMax": "4"}
_ALIVE_PRECIOUS = {"ServerAliveInterval": "15", "ServerAliveCountMax": "40"}
_LINK_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How to reach a machine, beside what ~/.ssh/config says."""

    address: str
    """A host name, an address, or a `Host` of ~/.ssh/config."""
    username: str | None = None
    port: int | None = None
    identity_file: str | None = None
    needs_person: bool = False
    """Logging in asks for something that cannot be stored: an open connection is precious."""

    def checked(self) -> SshOptions:
        """Itself; refuses what ssh, or a shell on the way, could take for something else."""
        if not _ADDRESS.fullmatch(self.address):
            raise UsageError(
                f"`{printable(self.address)}` is no address",
                why="it looks like gpu1, 10.0.0.5 or gpu1.example.org",
            )
        if self.username is not None and not _USER.fullmatch(self.username):
            raise UsageError(f"`{printable(self.username)}` is no user name")
        if self.port is not None and not 0 < self.port < 65536:
            raise UsageError(f"`{self.port}` is no port", why="ports are numbers from 1 to 65535")
        return self


class SshHost(Host):
    """A machine that the user's `ssh` reaches."""

    greeting_patience_s = _PATIENCE_S
    patience_s = _LINK_PATIENCE_S

    def __init__(self, name: str, options: SshOptions, home: Path, answers: Answers | None = None) -> None:
        """`home` is where pinned host keys lie; `answers` is asked what ssh asks."""
        self.name = name
        self.options = options.checked()
        self._home = home
        self._answers = answers or nobody
        self._config: words.Config | None = None

    def describe(self) -> str:
        """For people: "ana@10.0.0.5:2222"."""
        user = f"{self.options.username}@" if self.options.username else ""
        port = f":{self.options.port}" if self.options.port not in (None, 22) else ""
        return f"{user}{self.options.address}{port}"

    def open(self, word: str, *, without: Collection[str] = ()) -> ByteChannel:
        """Start `sh -c word` over there. Returns at once; what goes wrong is told by the channel."""
        folder = runtime_folder()
        # ssh writes a new key down there, and does not complain where it cannot.
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = [*self.command(folder), "-T", *self._destination(), word]
        asking = Asking(folder, self._answers)
        hidden = SECRET_VARIABLES.union(without)
        env = {name: value for name, value in os.environ.items() if name not in hidden} | asking.env()
        try:
            return SshChannel(argv, env, asking, self.name, self.describe())
        except OSError as trouble:
            asking.close()
            raise HostUnreachable(self.describe(), str(trouble)) from None

    def renew(self) -> bool:
        """Drop the kept connection, which does not seem to lead anywhere any more; False when there is none to drop."""
        path = (
            self.config().values.get("controlpath", "none") if self.options.needs_person else self._control()
        )
        if self.options.needs_person or path is None or not os.path.exists(path):
            return False
        self.hang_up()
        return True

    def hang_up(self) -> None:
        """Close the kept connection, if there is one. Channels over it break; runs go on."""
        path = self._control()
        if path is None or not os.path.exists(path):
            return
        # The user's own connection may carry shells of theirs: it takes no new ones, and ends with the last of them.
        word = "stop" if self.config().has("controlpath") else "exit"
        argv = [*self.command(runtime_folder()), "-O", word, *self._destination()]
        try:
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=2.0, check=False)
        except subprocess.TimeoutExpired:
            pass  # it hangs as well; without its socket nobody finds it, and it ends by itself
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # it tidied up

    def log_in(self) -> None:
        """Open the connection that will be kept, asking what has to be asked. Raises what went wrong."""
        channel = self.open("exit 0")
        try:
            while channel.read(65536):
                continue  # banners
            trouble = channel.trouble()
        finally:
            channel.close()
        if trouble is not None:
            raise trouble

    def is_connected(self) -> bool:
        """Whether a kept connection is there: the next channel needs no login."""
        path = self._control()
        if path is None or not os.path.exists(path):
            return False
        argv = [*self.command(runtime_folder()), "-O", "check", *self._destination()]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=2.0, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def shell(self, command: Collection[str] = ()) -> list[str]:
        """The words of an `ssh` for a person: a shell there, over the kept connection."""
        return [*self.command(runtime_folder(), for_person=True), *self._destination(), *command]

    def config(self) -> words.Config:
        """The user's configuration for this address, as ssh itself understands it. Raises NoSsh, SshConfigBroken."""
        if self._config is None:
            self._config = words.read_config(self._ask_config([]))
        return self._config

    def command(self, folder: str, *, for_person: bool = False) -> list[str]:
        """`ssh` with its options; the destination and what to do come behind."""
        config = self.config()
        options = {
            "StrictHostKeyChecking": "ask",
            "UserKnownHostsFile": self._known_hosts(config),
            "NumberOfPasswordPrompts": "3",
        }
        if not for_person:
            options |= {"ClearAllForwardings": "yes", "ForwardX11": "no", "RemoteCommand": "none"}
            options |= {"LogLevel": "ERROR", "BatchMode": "no"}
        if not config.has("connecttimeout"):
            options["ConnectTimeout"] = "10"
        if not config.has("serveraliveinterval", "0"):
            options |= _ALIVE_PRECIOUS if self.options.needs_person else _ALIVE
        if not config.has("controlpath"):
            options["ControlPath"] = os.path.join(folder, "%C")
        if not config.has("controlmaster", "false", "no"):
            options["ControlMaster"] = "auto"
        if not config.has("controlpersist", "no", "false"):
            options["ControlPersist"] = _KEPT
        if self.options.identity_file:
            options["IdentitiesOnly"] = "yes"
        return [
            _ssh(),
            *self._where(),
            *(word for pair in options.items() for word in ("-o", "=".join(pair))),
        ]

    def _where(self) -> list[str]:
        argv = []
        if self.options.port is not None:
            argv += ["-p", str(self.options.port)]
        if self.options.username is not None:
            argv += ["-l", self.options.username]
        if self.options.identity_file:
            argv += ["-i", os.path.expanduser(self.options.identity_file)]
        return argv

    def _destination(self) -> list[str]:
        return ["--", self.options.address]

    def _known_hosts(self, config: words.Config) -> str:
        """Ours first: there ssh writes a new key down. Then those that the user's ssh reads."""
        return " ".join(f'"{path}"' for path in (str(self._home / "known_hosts"), *config.known_hosts))

    def _control(self) -> str | None:
        """Path of the kept connection's socket, as ssh spells it out."""
        config = self.config()
        if config.has("controlpath"):
            return config.values["controlpath"]
        spelled = words.read_config(self._ask_config(["-o", f"ControlPath={runtime_folder()}/%C"]))
        return spelled.values.get("controlpath")

    def _ask_config(self, more: list[str]) -> str:
        argv = [_ssh(), "-G", *more, *self._where(), *self._destination()]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
        if done.returncode != 0:
            raise SshConfigBroken(done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="surrogateescape")


class SshChannel(ProcessChannel):
    """A channel that can tell why it broke."""

    def __init__(
        self, argv: list[str], env: Mapping[str, str], asking: Asking, name: str, where: str
    ) -> None:
        super().__init__(argv, env=env)
        self._asking = asking
        self._name = name
        self._where = where

    def greeted(self) -> None:
        """The login is over: nothing more will be asked."""
        self._asking.close()

    def trouble(self) -> DrayError | None:
        """What ssh said, in our words; None while it lives, or when its words explain nothing."""
        said = self.last_words()
        code = self._process.poll()
        if not code:
            return None
        asked = self._asking
        return words.trouble(said, code, self._name, self._where, asked.unanswered, was_wrong=asked.was_wrong)

    def close(self) -> None:
        """Close the pipes; the kept connection stays."""
        self._asking.close()
        super().close()


class Stored:
    """Answers with what is stored, each secret to its own question only and once; asks `otherwise` after that."""

    def __init__(self, look_up: Callable[[Question], str | None], otherwise: Answers = nobody) -> None:
        self._look_up = look_up
        self._otherwise = otherwise
        self._given: set[tuple[str, str]] = set()

    def __call__(self, question: Question) -> str | None:
        """The answer, or None."""
        asked = (question.kind, question.about)
        if question.kind in ("password", "passphrase") and question.about and asked not in self._given:
            self._given.add(asked)
            secret = self._look_up(question)
            if secret is not None:
                return secret
        return self._otherwise(question)


def _ssh() -> str:
    found = shutil.which("ssh")
    if found is None:
        raise NoSsh
    return found
