"""A program of its own: installs conda packages by `py-rattler`, under the Python that has it. Its order is a file of JSON.

Not a part of the runner: nothing imports it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any


class Reporter:
    """Says how far the installation is, in lines that `said` reads."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.entries: dict[int, int] = {}
        self.done: dict[int, int] = {}
        self.total: dict[int, int] = {}
        self.operations = 0
        self.last = 0.0

    def on_transaction_start(self, total_operations: int) -> None:
        """All that is to be done is known."""
        self.operations = total_operations
        print(f"Prepared {total_operations} packages", flush=True)

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        """A package is looked for in the cache."""
        self.names[operation] = package_name
        return operation

    def on_download_start(self, cache_entry: int) -> int:
        """It was not there."""
        return cache_entry

    def on_download_progress(self, download_idx: int, progress: int, total: int | None) -> None:
        """At most five lines a second."""
        self.done[download_idx] = progress
        self.total[download_idx] = total or progress
        if time.monotonic() - self.last > 0.2:
            self.last = time.monotonic()
            name = self.names.get(download_idx, "")
            print(f"dray: bytes {sum(self.done.values())} of {sum(self.total.values())} {name}", flush=True)

    def on_transaction_complete(self) -> None:
        """All of it is done."""
        print(f"Installed {self.operations} packages", flush=True)

    def __getattr__(self, name: str) -> Any:
        """Of all other callbacks we take no notice."""
        if name.startswith("on_"):
            return lambda *words, **more: 0
        raise AttributeError(name)


async def install(order: dict[str, Any]) -> None:
    """Solve, compare with what was frozen, and install."""
    import rattler  # type: ignore[import-not-found,unused-ignore]

    print(f"solving for {', '.join(order['specs'])} from {', '.join(order['channels'])}", flush=True)
    platform = str(rattler.Subdir.current() if hasattr(rattler.Subdir, "current") else _platform())
    records = await rattler.solve(
        [rattler.Channel(channel) for channel in order["channels"]],
        order["specs"],
        platforms=[platform, "noarch"],
        gateway=rattler.Gateway(cache_dir=order["cache"]),
        virtual_packages=rattler.VirtualPackage.detect(),
        channel_priority=rattler.ChannelPriority.Strict,
    )
    frozen = {url.rpartition("/")[2] for url, _ in order["exactly"]}
    if frozen:
        records = [record for record in records if record.file_name in frozen]
    print(f"Resolved {len(records)} packages", flush=True)
    await rattler.install(
        records,
        order["prefix"],
        cache_dir=order["cache"],
        show_progress=False,
        reporter=Reporter(),
        execute_link_scripts=True,
    )
    for record in records:
        print(f" + {record.name.normalized}={record.version}={record.build}", flush=True)


def _platform() -> str:
    import platform

    return {"x86_64": "linux-64", "aarch64": "linux-aarch64", "ppc64le": "linux-ppc64le"}[platform.machine()]


def main() -> int:
    """0, or 1 after a sentence that says why not."""
    with open(sys.argv[1], encoding="utf-8") as file:
        order = json.load(file)
    try:
        asyncio.run(install(order))
    except Exception as trouble:  # whatever it is, its sentence is what the user needs
        words = " ".join(str(trouble).split())
        print(f"error: {words or type(trouble).__name__}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of the library's own are still at work, and may crash while Python tidies up
