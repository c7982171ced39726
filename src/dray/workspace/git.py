"""Which commit the code folder stands on, and whether it differs from it. One subprocess, in the background."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

_PATIENCE_S = 5.0


class GitQuestion:
    """Asked at once, answered when needed."""

    def __init__(self, folder: Path) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
            return
        try:
            self._process = subprocess.Popen(
                [
                    "git",
                    "-C",
                    str(folder),
                    "status",
                    "--porcelain=v2",
                    "--branch",
                    "--untracked-files=normal",
                    "--",
                    ".",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # A question must not take the lock that a `git commit` in another window wants.
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            )
        except OSError:
            return

    def answer(self) -> dict[str, Any] | None:
        """commit, branch and dirty; None outside a repository, or when git does not answer in time."""
        if self._process is None:
            return None
        try:
            text, _ = self._process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return None
        return parse_status(text.decode(errors="replace")) if self._process.returncode == 0 else None


def parse_status(text: str) -> dict[str, Any]:
    """Read `git status --porcelain=v2 --branch`."""
    facts: dict[str, Any] = {"commit": None, "branch": None, "dirty": False}
    for line in text.splitlines():
        if line.startswith("# branch.oid "):
            oid = line.removeprefix("# branch.oid ")
            facts["commit"] = None if oid == "(initial)" else oid
        elif line.startswith("# branch.head "):
            facts["branch"] = line.removeprefix("# branch.head ")
        elif not line.startswith("#"):
            facts["dirty"] = True
    return facts
