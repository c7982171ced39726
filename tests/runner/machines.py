"""The runner protocol spoken by hand, below the workspace: submit code, follow it, look into its folder."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from dray.core.ids import new_run_id
from dray.core.interfaces import ByteChannel, Host
from dray.hosts import Connection, LocalHost, ProcessChannel

USER = "drayelse"


class Followed:
    """All that was heard of one run."""

    def __init__(self) -> None:
        self.streams: dict[str, bytes] = {}
        self.end: dict[str, Any] | None = None
        self.other: list[dict[str, Any]] = []

    @property
    def log(self) -> bytes:
        return self.streams.get("log.script", b"")

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.streams.get("state.jsonl", b"").splitlines()
        return [e["data"] for e in map(json.loads, lines) if e["type"] == kind]

    @property
    def states(self) -> list[str]:
        lines = self.streams.get("state.jsonl", b"").splitlines()
        events = [json.loads(line) for line in lines]
        return [e["data"]["state"] for e in events if e["type"] == "state"]

    @property
    def kind(self) -> str:
        assert self.end is not None
        return str(self.end["reason"]["kind"])


class Place:
    """A machine: a host and a root folder on it."""

    host: Any
    root: str | None
    python: str | None
    runs_python: str
    near: Mapping[str, str] = {}
    """What the client says that it has at hand."""

    def connect(self) -> Connection:
        return Connection(self.host, self.root, self.python)

    def submit(
        self,
        code: str,
        *,
        secrets: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        beside: Mapping[str, Any] | None = None,
        brought: Mapping[str, bytes] | None = None,
        **spec: Any,
    ) -> str:
        """Claim and start; returns the run's id. `beside` stands in the frame, `brought` are contents that it names."""
        contents = {"script.py": code, **(files or {})}
        blobs = {hashlib.sha256(text.encode()).hexdigest(): text.encode() for text in contents.values()}
        rows = [
            [name, hashlib.sha256(text.encode()).hexdigest(), len(text.encode()), 0]
            for name, text in sorted(contents.items())
        ]
        whole = {
            "id": new_run_id(),
            "token": os.urandom(8).hex(),
            "command": ["script.py"],
            "script": True,
            "python": self.runs_python,
            **spec,
        }
        with self.connect() as connection:
            manifest = {"v": 1, "files": rows, "links": [], "dirs": []}
            blobs.update(brought or {})
            answer = self.hand_over(connection, whole, manifest, blobs, secrets, beside)
        assert answer.get("claimed"), answer
        return str(whole["id"])

    def hand_over(
        self,
        connection: Connection,
        spec: Mapping[str, Any],
        manifest: Mapping[str, Any],
        blobs: Mapping[str, bytes],
        secrets: Mapping[str, str] | None = None,
        beside: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        request = {
            **(beside or {}),
            "op": "submit",
            "spec": dict(spec),
            "manifest": dict(manifest),
            "near": dict(self.near),
            "secrets": dict(secrets or {}),
        }
        connection.ask(request)
        header, _ = connection.receive()
        for digest in header.get("lacks", []):
            connection.ask({"blobs": [[digest, 0, len(blobs[digest])]]}, blobs[digest])
        return connection.receive()[0] if "lacks" in header else header

    def follow(self, run: str, cursor: Mapping[str, int] | None = None, *, wait: bool = True) -> Followed:
        heard = Followed()
        with self.connect() as connection:
            connection.ask(
                {"op": "follow", "run": run, "cursor": dict(cursor or {}), "wait": wait, "streams": [""]}
            )
            while True:
                header, body = connection.receive()
                if "stream" in header:
                    known = heard.streams.get(header["stream"], b"")
                    start = (cursor or {}).get(f"{header['attempt']}/{header['stream']}", 0)
                    assert header["offset"] == start + len(known), "a byte was lost or doubled"
                    heard.streams[header["stream"]] = known + body
                elif "end" in header:
                    heard.end = header["end"]
                elif "idle" in header:
                    if heard.end or not wait:
                        return heard
                else:
                    heard.other.append(header)
                    return heard

    def run(self, code: str, **spec: Any) -> Followed:
        return self.follow(self.submit(code, **spec))

    def folder(self, run: str) -> Path:
        found = list(Path(self.root_path()).glob(f"*/runs/{run}"))
        assert len(found) == 1, found
        return found[0]

    def root_path(self) -> str:
        assert self.root
        return self.root

    def clean(self) -> None:
        """End what a test may have left."""


class Here(Place):
    """The machine under our own feet."""

    def __init__(self, folder: Path) -> None:
        self.host = LocalHost()
        self.root = str(folder / "machine")
        self.python = sys.executable
        self.runs_python = sys.executable


class _OtherUsersShell(Host):
    """`sh -c` as another user, elsewhere, with nothing of ours in its environment: what an ssh login would be."""

    name = "elsewhere"

    def __init__(self, home: str) -> None:
        self.home = home
        self.env: dict[str, str] = {}
        """What the connection brings beside a bare login's."""

    def open(self, word: str, *, without: Collection[str] = ()) -> ByteChannel:
        env = {"HOME": self.home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C", **self.env}
        banner = "echo Welcome to elsewhere; echo; "
        return ProcessChannel(["sh", "-c", banner + word], env=env, cwd=self.home, user=USER, group=USER)

    def describe(self) -> str:
        return f"{USER}@elsewhere"


class Elsewhere(Place):
    """Another user's home, its default root, its own python3."""

    def __init__(self) -> None:
        make_user(USER)
        self.home = tempfile.mkdtemp(prefix="dray else where ")
        shutil.chown(self.home, USER, USER)
        self.host = _OtherUsersShell(self.home)
        self.root = None
        self.python = None
        self.runs_python = "/usr/bin/python3"

    def write(self, path: str, text: str, mode: int = 0o644) -> Path:
        """A file in the user's home."""
        file = Path(self.home) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        for made in (file, *file.parents):
            if made == Path(self.home):
                break
            shutil.chown(made, USER, USER)
        return file

    def root_path(self) -> str:
        return f"{self.home}/.local/share/dray/machine"

    def clean(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)


def make_user(name: str) -> None:
    """Make that user, once. Needs root, as the machine's tests have."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", name], check=True)


def wait_until(fact: Callable[[], Any], limit_s: float = 15.0) -> Any:
    """Wait for a fact, not for a time; returns it."""
    deadline = time.monotonic() + limit_s
    while True:
        value = fact()
        if value:
            return value
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def people_of(script_pid: int) -> tuple[int, int]:
    """(runner, guard) of the script with that pid."""
    guard = parent_of(script_pid)
    return parent_of(guard), guard


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
