"""Debian's docker-registry on a port of this machine: open to all, or only to `USER` with `PASSWORD`."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.docker.world import require

PROGRAM = "/usr/bin/docker-registry"
USER, PASSWORD = "ana", "sesame-registry"
_HTPASSWD = "ana:$2b$04$8Q42/okobWjXEySCzl1NXOiycccZecY1l1SB/iaT7mRm83lhYbMD.\n"


def new_registry(folder: Path, *, is_private: bool = False) -> Iterator[str]:
    """For a fixture: HOST:PORT of one that keeps what tests push."""
    if not Path(PROGRAM).exists():
        require("docker", "docker-registry is missing")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }  # fmt: skip
    if is_private:
        (folder / "htpasswd").write_text(_HTPASSWD)
        settings["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(json.dumps(settings))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, "serve", folder / "config.yml"], stdout=log, stderr=log)
    deadline = time.monotonic() + 20
    while not _listens(port):
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
