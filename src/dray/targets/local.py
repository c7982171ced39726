"""`local`: this machine, always there, nothing to attach."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dray.core.container_wish import ContainerWish
from dray.hosts import LocalHost


class LocalTarget:
    """Host: this machine. Scheduler: starts at once. Launcher: a process."""

    kind = "local"
    is_here = True
    setup: str | None = None
    container: ContainerWish | None = None

    def __init__(self, home: Path) -> None:
        self.name = "local"
        self.host = LocalHost()
        self.root: str | None = str(home / "machine")
        # dray's own interpreter runs the runner: it is there, and new enough.
        self.python: str | None = sys.executable
        self._home = home

    @property
    def default_gpus(self) -> int | None:
        """As `dray compute update local` has set it."""
        try:
            return int((self._home / "computes" / "local.default-gpus").read_text())
        except (OSError, ValueError):
            return None

    def set_default_gpus(self, count: int | None) -> None:
        """None: the machine knows."""
        file = self._home / "computes" / "local.default-gpus"
        if count is None:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(f"{count}\n")

    def near(self) -> dict[str, Any]:
        """The snapshot store can be read from here, and dray brings uv along."""
        beside = Path(sys.executable).parent / "uv"
        # Without one beside us, the machine looks on its PATH, which is ours.
        return {"blobs": str(self._home / "blobs"), "uv": str(beside) if beside.exists() else None}
