"""What a submit can bring beside the code, for the building of its environment: uv for a machine that has none, and packages.

The machine says what of it it lacks (docs/design.md, "The wire"); until then nothing is fetched and nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dray.core.interfaces import Target
from dray.core.spec import RunSpec

Tell = Callable[[str], None]


class Along:
    """Of one submit. `files` holds the contents of its wheels by digest."""

    def __init__(
        self, home: Path, target: Target, spec: RunSpec, files: Mapping[str, Path], tell: Tell
    ) -> None:
        self._home = home
        self._files = files
        self._tell = tell
        self._tools: dict[str, list[Any]] = {}
        if spec.environment is not None:
            from dray.hosts import carried_uv

            self._tools = {platform: list(row) for platform, row in carried_uv.offer().items()}
        self.sizes: dict[str, int] = {str(row[0]): int(row[1]) for row in self._tools.values()}
        """Of everything that could be asked for, by digest."""
        self.sizes |= {digest: path.stat().st_size for digest, path in files.items()}

    def request(self) -> dict[str, Any]:
        """For the submit's frame."""
        return {"tools": {"uv": self._tools}} if self._tools else {}

    def path_of(self, digest: str) -> Path | None:
        """Where that content lies, fetched now if need be; None: it is none of these. Raises UvNotFetched."""
        if digest in self._files:
            return self._files[digest]
        if digest not in self.sizes:
            return None
        from dray.hosts import carried_uv

        platform = carried_uv.platform_of(digest)
        if platform is None:
            return None
        self._tell(f"the machine has no uv: bringing {carried_uv.VERSION} along")
        return carried_uv.program(self._home, platform)
