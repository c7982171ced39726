"""A person's project on a machine that has GPUs, as far as its driver says."""

from __future__ import annotations

from pathlib import Path

from tests.gpu.fake import FakeNvml
from tests.workspace.worlds import World


class Machine(World):
    """One person's project on a machine with that driver."""

    def __init__(self, folder: Path, driver: FakeNvml) -> None:
        super().__init__(folder)
        self.driver = driver

    @property
    def env(self) -> dict[str, str]:
        return {**super().env, **self.driver.environ(), "DRAY_LEASES": str(self.leases)}

    @property
    def leases(self) -> Path:
        """The folder of this machine's leases, and of no other test's."""
        folder = self.home.parent / "leases"
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o1777)
        return folder
