"""Real shells on a terminal, into which words are typed with the tabulator key."""

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
from pathlib import Path
from typing import Self

LIMIT_S = 30.0
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
READY = {
    "bash": 'eval "$(dray completion bash)"; touch ready',
    "zsh": 'autoload -Uz compinit && compinit -u -D; eval "$(dray completion zsh)"; touch ready',
    "fish": "dray completion fish | source; touch ready",
}
# The real dray completes; what else is typed only has its words written down.
DRAY = """#!/bin/sh
case $1 in _complete | completion) exec "{python}" -I -m dray "$@" ;; esac
{{ for word; do printf '%s\\n' "$word"; done; }} > "{folder}/words.new"
mv "{folder}/words.new" "{folder}/words"
"""


class TypingShell:
    """A shell of that kind in `folder`, with dray's words in it and a history in `home`."""

    def __init__(self, kind: str, folder: Path, home: Path) -> None:
        self.folder = folder
        self.seen = b""
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        dray = bin_folder / "dray"
        dray.write_text(DRAY.format(python=sys.executable, folder=folder))
        dray.chmod(0o755)
        env = {
            "PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": str(folder), "DRAY_HOME": str(home),
            "TERM": "xterm", "LANG": "C.UTF-8", "PS1": "$ ", "ZDOTDIR": str(folder),
        }  # fmt: skip
        self._fd, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self._process = subprocess.Popen(
            START[kind],
            cwd=folder,
            env=env,
            preexec_fn=lambda: os.login_tty(inner),  # noqa: PLW1509 # tests have no threads of their own
        )
        os.close(inner)
        self._type(READY[kind].encode() + b"\r")
        self._until(folder / "ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._fd)

    def words(self, keys: str) -> list[str]:
        """The words of `dray` when those keys are typed, Return last. A tabulator is a tabulator."""
        done = self.folder / "words"
        done.unlink(missing_ok=True)
        self._type(keys.encode() + b"\r")
        self._until(done)
        return done.read_text().splitlines()

    def shown(self, keys: str) -> str:
        """What the terminal shows when those keys are typed; the line is then thrown away."""
        self._pause()
        self.seen = b""
        self._type(keys.encode())
        self._pause()
        shown = self.seen.decode(errors="replace")
        self._type(b"\x03")
        self._pause()
        return shown

    def _type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def _pause(self) -> None:
        """Wait until nothing more is shown."""
        while self._read(1.0):
            continue

    def _until(self, path: Path) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not path.exists():
            self._read(0.05)
            assert time.monotonic() < deadline, self.seen

    def _read(self, patience_s: float) -> bool:
        if not select.select([self._fd], [], [], patience_s)[0]:
            return False
        self.seen += os.read(self._fd, 65536)
        return True
