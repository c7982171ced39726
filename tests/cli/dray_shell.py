"""A shell to try the command line in: real processes, a history of their own, and a real terminal where one matters."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Self

LIMIT_S = 60.0
_BASE = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL") if name in os.environ}


class Shell:
    """Runs `python -m dray` in `folder`, with its history in `home`."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.home = home
        self.python = sys.executable
        self.env = {**_BASE, "DRAY_HOME": str(home), "VIRTUAL_ENV": sys.prefix}

    def write(self, name: str, text: str) -> Path:
        """A file in the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        out: IO[bytes] | int = subprocess.PIPE,
        err: IO[bytes] | int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Begin a command whose output is piped, or goes to `out` and `err`; with `stdin` its input is piped too."""
        return subprocess.Popen(
            [sys.executable, "-m", "dray", *words],
            cwd=self.folder,
            env={**self.env, **(env or {})},
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )

    def dray(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end."""
        with self.start(*words, env=env) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def detached(self, *words: str) -> str:
        """Submit and leave; the id."""
        done = self.dray("submit", "--detach", *words)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def terminal(self, *words: str, env: Mapping[str, str] | None = None, columns: int = 100) -> Terminal:
        """Begin a command on a terminal of its own."""
        return Terminal(self, words, env or {}, columns)


class Terminal:
    """A terminal with one command on it. Everything it shows is in `seen`."""

    def __init__(self, shell: Shell, words: tuple[str, ...], env: Mapping[str, str], columns: int) -> None:
        self.seen = b""
        self.fd, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dray", *words],
            cwd=shell.folder,
            env={**shell.env, "TERM": "xterm-256color", **env},
            preexec_fn=lambda: os.login_tty(inner),  # noqa: PLW1509 # tests have no threads of their own
        )
        os.close(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.fd)

    def until(self, text: bytes) -> None:
        """Wait until the terminal has shown `text`."""
        deadline = time.monotonic() + LIMIT_S
        while text not in self.seen:
            if not self._read(deadline):
                raise AssertionError(f"the command ended without {text!r}: {self.seen!r}")

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self.fd, keys)

    def ended(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + LIMIT_S
        while self._read(deadline):
            continue
        return self.process.wait(LIMIT_S)

    def _read(self, deadline: float) -> bool:
        if not select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"nothing more came: {self.seen!r}")
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            return False
        self.seen += data
        return bool(data)


def wait_until(holds: Callable[[], object]) -> None:
    """Ask until it holds."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError("it never came")
        time.sleep(0.05)
