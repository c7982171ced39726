"""A real git repository for tests, undisturbed by anybody's configuration."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class Git:
    """git in one working tree."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self("init", "-q")

    def __call__(
        self, *words: str, folder: Path | None = None, stdin: bytes = b"", ok: tuple[int, ...] = (0,)
    ) -> bytes:
        done = subprocess.run(
            ["git", "-c", "core.excludesFile=/dev/null", *words],
            cwd=folder or self.top,
            env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
            input=stdin,
            capture_output=True,
            check=False,
        )
        assert done.returncode in ok, done.stderr
        return done.stdout

    def travelling(self, folder: Path) -> list[str]:
        """The files below `folder` that git would add."""
        out = self("ls-files", "-o", "--exclude-standard", "-z", folder=folder)
        return sorted(os.fsdecode(name) for name in out.split(b"\0") if name)

    def verdict(self, path: str) -> str | None:
        """Which line decides about `path`, as dray writes it; None when none does."""
        out = self(
            "check-ignore", "-v", "-z", "--no-index", "--stdin", stdin=os.fsencode(path) + b"\0", ok=(0, 1)
        )
        if not out:
            return None
        source, line, pattern, _ = out.decode("utf-8", "surrogateescape").split("\0", 3)
        return f"{source}:{line} ({pattern})"

    def clear(self) -> None:
        """Empty the working tree."""
        for entry in self.top.iterdir():
            if entry.name == ".git":
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
