"""A real Docker engine of the test's own, beside any other, and a base image made from Debian's packages. Needs root and dockerd."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCKERD = "/usr/sbin/dockerd"
DOCKER = "/usr/bin/docker"
BASE = "dray-test/base:1"
_CACHE = Path("/var/tmp/dray-tests")
_DEBOOTSTRAP = ("--variant=minbase", "--include=python3,python3-venv,ca-certificates", "bookworm")
_NEEDLESS = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/zoneinfo",
             "var/cache/apt", "var/lib/apt/lists")  # fmt: skip
_LIMIT_S = 60.0


def require(name: str, why: str) -> None:
    """Skip where something is missing, and fail where it has to be there."""
    if name in os.environ.get("DRAY_REQUIRE", "").split(","):
        pytest.fail(f"{name} is required here: {why}")
    pytest.skip(f"{why}; CI has it")


def base_tar() -> Path:
    """The base image's files, made once on this machine and kept; the recipe is part of the name."""
    recipe = hashlib.sha256(repr((_DEBOOTSTRAP, _NEEDLESS)).encode()).hexdigest()[:12]
    tar = _CACHE / f"base-{recipe}.tar"
    if tar.exists():
        return tar
    if shutil.which("debootstrap") is None:
        require("docker", "debootstrap is missing")
    _CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tar.exists():
            with tempfile.TemporaryDirectory(dir=_CACHE) as folder:
                root = Path(folder) / "root"
                done = subprocess.run(
                    ["debootstrap", *_DEBOOTSTRAP, root], check=False, capture_output=True, text=True
                )
                assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
                for path in _NEEDLESS:
                    shutil.rmtree(root / path, ignore_errors=True)
                beside = tar.with_suffix(f".{os.getpid()}")
                subprocess.run(["tar", "-C", root, "-cf", beside, "."], check=True)
                beside.rename(tar)
    return tar


class Docker:
    """One dockerd with files, socket and images of its own. Its containers have no network of their own."""

    def __init__(self, *options: str) -> None:
        # Sockets need short paths; and other users have to get to it.
        self.folder = Path(tempfile.mkdtemp(prefix="dk"))
        self.folder.chmod(0o755)
        self.socket = self.folder / "sock"
        self.options = options
        self.env = {"DOCKER_HOST": f"unix://{self.socket}"}
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Begin to answer."""
        (self.folder / "daemon.json").write_text("{}")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    DOCKERD, "--data-root", self.folder / "data", "--exec-root", self.folder / "exec",
                    "-H", f"unix://{self.socket}", "-p", self.folder / "pid", "--bridge", "none",
                    "--iptables=false", "--ip-masq=false", "--config-file", self.folder / "daemon.json", *self.options,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _LIMIT_S
        while subprocess.run(
            [DOCKER, "version"], env=self._env(), check=False, capture_output=True
        ).returncode:
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        self.socket.chmod(0o666)

    def _env(self) -> dict[str, str]:
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.folder), **self.env}

    def docker(self, *words: object, stdin: bytes | None = None, check: bool = True) -> str:
        """What that command of the engine says."""
        done = subprocess.run(
            [DOCKER, *map(str, words)], env=self._env(), input=stdin, check=False, capture_output=True
        )
        assert not check or done.returncode == 0, (words, done.stderr.decode())
        return done.stdout.decode().strip()

    def build(self, tag: str, dockerfile: str) -> str:
        """An image from the text of a Dockerfile without any files."""
        self.docker("build", "--tag", tag, "-", stdin=dockerfile.encode())
        return tag

    def containers(self) -> list[str]:
        """The names of all there are, ended ones too."""
        return self.docker("ps", "--all", "--format", "{{.Names}}").split()

    def images(self) -> list[str]:
        """Names of all images."""
        return self.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split()

    def inspect(self, container: str) -> dict[str, Any]:
        """What the engine knows of a container."""
        found: dict[str, Any] = json.loads(self.docker("container", "inspect", container))[0]
        return found

    def log(self) -> str:
        """What dockerd said last."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        """End the engine; its containers end with it."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
                return
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Leave nothing behind."""
        self.stop()
        with open("/proc/mounts") as file:
            mounts = [line.split()[1] for line in file]
        for place in sorted(mounts, key=len, reverse=True):
            if place.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def new_docker(*options: str) -> Iterator[Docker]:
    """For a fixture: an engine with the base image in it."""
    if os.geteuid() != 0 or not os.access(DOCKERD, os.X_OK):
        require("docker", "root and dockerd are needed")
    tar = base_tar()
    made = Docker(*options)
    try:
        made.docker("import", tar, BASE)
        yield made
    finally:
        made.close()
