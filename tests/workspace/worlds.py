"""A person's world: a home for the history, a project folder, the command line, and a second machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class World:
    """One person with one project."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.project.mkdir(parents=True)

    @property
    def env(self) -> dict[str, str]:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("DRAY_") and k not in ("VIRTUAL_ENV", "CONDA_PREFIX")
        }
        # The user's `python` is on PATH; dray's own is found by its path alone.
        return {**kept, "DRAY_HOME": str(self.home), "PATH": f"{self.bin}:{kept['PATH']}"}

    @property
    def bin(self) -> Path:
        """A folder with the user's `python` in it."""
        folder = self.home.parent / "bin"
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "python").symlink_to(os.path.realpath(sys.executable))
        return folder

    def write(self, name: str, text: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """`dray WORDS`, as typed in the project folder."""
        settings: dict[str, Any] = {
            "cwd": self.project,
            "env": self.env,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        return subprocess.Popen([sys.executable, "-m", "dray", *words], **settings)

    def dray(
        self, *words: str, env: Mapping[str, str] | None = None, timeout: float = 90, **options: Any
    ) -> Said:
        """The same, to its end."""
        if env:
            options["env"] = {**self.env, **env}
        process = self.start(*words, **options)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"dray {words} took too long\n{out!r}\n{err!r}") from None
        return Said(process.returncode, out or b"", (err or b"").decode(errors="replace"))

    def show(self, run: str = "@last") -> dict[str, Any]:
        said = self.dray("show", run, "--json")
        assert said.code == 0, said.err
        document: dict[str, Any] = json.loads(said.out)
        return document

    def runs(self) -> list[dict[str, Any]]:
        said = self.dray("runs", "--json")
        assert said.code == 0, said.err
        listed: list[dict[str, Any]] = json.loads(said.out)
        return listed

    def clean(self) -> None:
        """End every run that is still alive here."""
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    mark = Path(f"/proc/{name}/environ").read_bytes()
                except OSError:
                    continue
                if f"DRAY_HOME={self.home}".encode() in mark.split(b"\0"):
                    with_suppressed_kill(int(name))


class Said:
    """How a command ended and what it said."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out.decode(errors='replace')}\n--- stderr\n{self.err}"


def with_suppressed_kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_until(fact: Callable[[], Any], limit_s: float = 20.0) -> Any:
    """Wait for a fact, not for a time; returns it."""
    deadline = time.monotonic() + limit_s
    while True:
        value = fact()
        if value:
            return value
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


class SmallDisk:
    """A tmpfs of a few megabytes."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.folder / "filler").open("wb") as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        os.write(file.fileno(), b"x" * size)
                except OSError:
                    continue

    def empty(self) -> None:
        (self.folder / "filler").unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)
