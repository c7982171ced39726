"""A machine with GPUs and several users: real users, real runners, one folder of leases."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from dray.core.interfaces import ByteChannel, Host
from dray.hosts import ProcessChannel
from dray.runner.queue.desk import Desk
from dray.runner.queue.turn import Ticket
from tests.gpu.fake import FakeNvml, library
from tests.runner.machines import Place, make_user

PYTHON = "/usr/bin/python3"

# Holds its GPUs, each by a lock of its own beside dray's: whoever is given one that another process still has says so.
WORKS = """
import fcntl, os, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])
for uuid in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
    file = os.open(os.path.join(folder, uuid), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        os.fchmod(file, 0o666)
    except OSError:
        pass
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.open(os.path.join(folder, "DOUBLE"), os.O_RDWR | os.O_CREAT, 0o666)
log = os.open(os.path.join(folder, "started"), os.O_WRONLY | os.O_APPEND)
os.write(log, ("%s %d\\n" % (os.environ["DRAY_RUN_ID"], os.getpid())).encode())
print("begun", os.getpid())
time.sleep(seconds)
"""


class _Shell(Host):
    """`sh -c` as that user, as a login would be."""

    def __init__(self, user: str, home: str, env: dict[str, str]) -> None:
        self.name = user
        self._home = home
        self._env = env

    def open(self, word: str, *, without: Collection[str] = ()) -> ByteChannel:
        env = {"HOME": self._home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C", **self._env}
        return ProcessChannel(["sh", "-c", word], env=env, cwd=self._home, user=self.name, group=self.name)

    def describe(self) -> str:
        return self.name


class Person(Place):
    """One user of the machine."""

    def __init__(self, user: str, folder: Path, env: dict[str, str]) -> None:
        make_user(user)
        home = folder / user
        home.mkdir()
        shutil.chown(home, user, user)
        self.user = user
        self.host = _Shell(user, str(home), env)
        self.root = str(home / "machine")
        self.python = PYTHON
        self.runs_python = PYTHON

    def granted_at(self, run: str) -> float:
        """When the run got what it waited for; 0 for never."""
        lines = self.follow(run, wait=False).streams.get("state.jsonl", b"").splitlines()
        return next((one["t"] for one in map(json.loads, lines) if one["type"] == "lease"), 0.0)

    def queued(self, run: str) -> list[dict[str, Any]]:
        """What the run said of its place, as it came."""
        lines = self.follow(run, wait=False).streams.get("state.jsonl", b"").splitlines()
        said = [json.loads(line) for line in lines]
        return [one["data"] for one in said if one["type"] == "state" and one["data"]["state"] == "queued"]


class SharedMachine:
    """Its users, its GPUs as the driver tells of them, and its folder of leases."""

    def __init__(self, gpus: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dray-shared-"))
        self.folder.chmod(0o755)
        library().parent.chmod(0o755)
        self.driver = FakeNvml(self.folder / "driver")
        self.uuids = [f"GPU-{n}0000000-0000-4000-8000-000000000000" for n in range(gpus)]
        for uuid in self.uuids:
            self.driver.gpu(uuid)
        var = self.folder / "var"
        var.mkdir()
        var.chmod(0o1777)  # as /var/tmp is
        self.leases = var / "leases"
        self.work = self.folder / "work"
        self.work.mkdir()
        self.work.chmod(0o777)
        (self.work / "started").touch()
        (self.work / "started").chmod(0o666)
        self.env = {**self.driver.environ(), "DRAY_LEASES": str(self.leases)}

    def person(self, user: str) -> Person:
        return Person(user, self.folder, self.env)

    def job(self, person: Person, seconds: float, **spec: Any) -> str:
        """A run that holds what it is given for so long."""
        wishes = {"gpus": {"count": 1}, **spec}
        return person.submit(WORKS, command=["script.py", str(self.work), str(seconds)], **wishes)

    def tickets(self) -> list[Ticket]:
        return Desk(str(self.leases)).tickets()

    def ticket(self, run: str) -> Ticket | None:
        return next((ticket for ticket in self.tickets() if ticket.run == run), None)

    def started(self) -> dict[str, int]:
        """Run -> pid, in the order in which they started."""
        rows = (self.work / "started").read_text().splitlines()
        return {row.split()[0]: int(row.split()[1]) for row in rows}

    def was_ever_double(self) -> bool:
        return (self.work / "DOUBLE").exists()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
