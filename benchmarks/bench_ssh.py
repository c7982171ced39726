"""Machines behind ssh, beside the plain tools that people use: ssh, scp, tar and rsync, all over one kept connection.

The "machine" is an sshd of our own on this computer: round trips cost nothing here, so what is measured is the work. Transfers are measured over a link
of 1 Gbit/s, too. All files lie in memory, if there is enough of it: how busy a disk is says nothing about any of these tools.
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import DRAY, Row, free_port, percentile, ray_head, timed
from tests.ssh.world import Server, World

HELLO = "print('hello', flush=True)\n"
CLOCK = "import random, time\nfor _ in range({lines}):\n    time.sleep(random.uniform(0.01, 0.05))\n    print(time.time_ns(), flush=True)\n"
COVALENT = """\
import asyncio, sys
from covalent._shared_files.config import update_config
from covalent_ssh_plugin import ssh

# What its dispatcher does when it finds the plugin.
update_config({"executors": {"ssh": ssh._EXECUTOR_PLUGIN_DEFAULTS}})

def hello():
    return "hello"

user, key, python, folder = sys.argv[1:]
# It asks every 15 s by default; one second is the least that it takes.
box = ssh.SSHExecutor(username=user, hostname="box", ssh_key_file=key, python_path=python, cache_dir=folder, poll_freq=1)
meta = {"dispatch_id": "d", "node_id": 0, "results_dir": folder}
assert asyncio.run(box.run(hello, [], {}, meta)) == "hello"
print("hello", flush=True)
"""
TICKS = os.sysconf("SC_CLK_TCK")


def rows(quick: bool) -> list[Row]:
    """Attach, submit, transfers, latency, silence."""
    with _world() as (here, box):
        return [
            *_attach(here, box, quick),
            *_submit(here, box, quick),
            *(row for place in _places(here, box) for row in _first_files(here, place, quick)),
            *(row for place in _places(here, box) for row in _one_file(here, place, quick)),
            *_again(here, box, quick),
            *_latency(here, box, quick),
            *_silence(here, quick),
        ]


class Here:
    """The client: a project folder, its variables, and plain ssh over a connection of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.project = world.folder / "project"
        self.project.mkdir()
        self.env = {**os.environ, **world.client.env, "VIRTUAL_ENV": sys.prefix}
        self.env.pop("DRAY_COMPUTE", None)
        self._far: Server | None = None
        # scp starts the system's own ssh, and not the one on PATH that reads this client's configuration.
        self.scp = ["scp", "-q", "-F", str(world.client.config)]

    def know(self, name: str, server: Server) -> None:
        """Let ssh know that machine as `name`, and as `plain-NAME` for plain tools."""
        where = f"  HostName {server.address}\n  Port {server.port}\n  User {server.user}\n"
        kept = f"  ControlMaster auto\n  ControlPath {self.world.client.runtime}/plain-{name}\n  ControlPersist 10m\n"
        config = self.world.client.config
        config.write_text(f"Host {name}\n{where}Host plain-{name}\n{where}{kept}{config.read_text()}")
        self.time(["ssh", f"plain-{name}", "true"])

    def far(self) -> Server:
        """A machine behind a link of 1 Gbit/s, attached as `far`."""
        if self._far is None:
            self._far = self.world.far()
            link = self._far.link
            assert link is not None
            shape = ["root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms"]
            subprocess.run(["tc", "qdisc", "add", "dev", link.cable, *shape], check=True)
            there = ["ip", "netns", "exec", link.name, "tc", "qdisc", "add", "dev", "eth0", *shape]
            subprocess.run(there, check=True)
            self.know("far", self._far)
            self.time([DRAY, "attach", "vm", "far"])
        return self._far

    def fresh(self, name: str) -> Path:
        """An empty folder."""
        folder = self.world.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def time(self, command: Sequence[str], cwd: Path | None = None) -> float:
        """Seconds of a command of the client's."""
        return timed(command, cwd=cwd or self.project, env=self.env)

    def shell(self, text: str, cwd: Path) -> float:
        """Seconds of a line of shell."""
        return self.time(["sh", "-c", text], cwd)


@dataclass(frozen=True, slots=True)
class Place:
    """A machine at the end of some link."""

    link: str
    name: str
    """As dray knows it; `plain-NAME` is the same for plain ssh, over a kept connection of its own."""
    server: Server


def _places(here: Here, box: Server) -> list[Place]:
    return [Place("over loopback", "box", box), Place("over 1 Gbit/s", "far", here.far())]


@contextmanager
def _world() -> Iterator[tuple[Here, Server]]:
    folder = Path(tempfile.mkdtemp(prefix="dray-bench-", dir=_memory()))
    folder.chmod(0o755)
    made = World(folder)
    try:
        box = made.known()
        made.client.configure(f'Host *\n  IdentityFile "{made.client.key}"\n')
        here = Here(made)
        here.know("box", box)
        yield here, box
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> str | None:
    """A folder in memory with room for all of it; None: where temporary files are."""
    try:
        return "/dev/shm" if shutil.disk_usage("/dev/shm").free > 8e9 else None  # a folder of our own below
    except OSError:
        return None


def _attach(here: Here, box: Server, quick: bool) -> list[Row]:
    taken = []
    for number in range(2 if quick else 5):
        taken.append(here.time([DRAY, "attach", "vm", f"new{number}", "--address", "box"]))
        here.time([DRAY, "compute", "rm", f"new{number}", "--purge", "-y"])
    found = statistics.median(taken)
    here.time([DRAY, "attach", "vm", "box"])
    return [Row(what="`dray attach` of a new host with its check, the runner going over", dray=found, peers={}, ratio=None,
                goal="at most 3 s", met=found <= 3)]  # fmt: skip


def _submit(here: Here, box: Server, quick: bool) -> list[Row]:
    folder = here.fresh("hello")
    (folder / "hello.py").write_text(HELLO)
    here.time([*here.scp, str(folder / "hello.py"), "plain-box:hello.py"])
    there = f"{box.home}/sync/"
    commands: dict[str, list[str]] = {
        "dray": [DRAY, "submit", "-c", "box", "hello.py"],
        "ssh box python3 hello.py": ["ssh", "plain-box", "python3 hello.py"],
        "rsync + ssh": [
            "sh",
            "-c",
            f"rsync -a ./ plain-box:{there} && ssh plain-box 'cd {there} && python3 hello.py'",
        ],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(3 if quick else 15):
        for name, command in commands.items():
            seconds = _first_line(command, here, folder)
            if turn:
                taken[name].append(seconds)
    taken |= _slow_peers(here, box, folder, 2 if quick else 6)
    found = {name: statistics.median(seconds) for name, seconds in taken.items()}
    added = found["dray"] - found["ssh box python3 hello.py"]
    beside: dict[str, float | str] = {name: seconds for name, seconds in found.items() if name != "dray"}
    return [Row(what="warm `dray submit -c box hello.py` to the script's first line", dray=found["dray"], peers=beside,
                ratio=found["dray"] / found["rsync + ssh"], goal="at most 0.25 s more than ssh", met=added <= 0.25)]  # fmt: skip


def _slow_peers(here: Here, box: Server, folder: Path, times: int) -> dict[str, list[float]]:
    """Seconds of the peers that are installed; the first turn warms them up and does not count."""
    found: dict[str, list[float]] = {}
    if ray := peers.tool("ray"):
        with ray_head(ray) as address:
            near, far = free_port(), address["RAY_ADDRESS"].rpartition(":")[2]
            here.time(["ssh", "-O", "forward", "-L", f"127.0.0.1:{near}:127.0.0.1:{far}", "plain-box"])
            # The head is this computer's, under the machine's address: the way there is the tunnel.
            env = address | {"RAY_ADDRESS": f"http://127.0.0.1:{near}"}
            job = [ray, "job", "submit", "--", "python3", str(folder / "hello.py")]
            found["Ray job over a tunnel"] = [_until(job, b"hello", folder, env) for _ in range(times)][1:]
    if python := peers.covalent():
        script = here.world.folder / "covalent_hello.py"
        script.write_text(COVALENT)
        there = _cloudpickle_there(box, python)
        words = [box.user, str(here.world.client.key), there, str(here.fresh("covalent"))]
        found["covalent's SSH executor"] = [
            _until([str(python), str(script), *words], b"hello", folder, here.env) for _ in range(times)
        ][1:]
    return found


def _cloudpickle_there(box: Server, python: Path) -> str:
    """covalent needs cloudpickle on the machine; the path of a Python there that has it."""
    import_it = "import cloudpickle, os; print(os.path.dirname(cloudpickle.__file__))"
    package = subprocess.run(
        [python, "-c", import_it], capture_output=True, text=True, check=True
    ).stdout.strip()
    shutil.copytree(package, box.home / "lib" / "cloudpickle")
    program = box.home / "python-with-cloudpickle"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(box.home / "lib"))} exec python3 "$@"\n')
    program.chmod(0o755)
    return str(program)


def _until(command: Sequence[str], line: bytes, folder: Path, env: Mapping[str, str]) -> float:
    """Seconds until a line ends with those words, among whatever else is said."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as client:
        assert client.stdout is not None
        for said in client.stdout:
            if said.rstrip().endswith(line):
                seconds = time.perf_counter() - began
                client.stdout.read()
                return seconds
    raise RuntimeError(f"{' '.join(command)} did not say {line!r}")


def _first_line(command: Sequence[str], here: Here, folder: Path) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, env=here.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as client:
        assert client.stdout is not None
        line = client.stdout.readline()
        seconds = time.perf_counter() - began
        client.stdout.read()
    if line != b"hello\n":
        raise RuntimeError(f"{' '.join(command)} said {line!r}")
    return seconds


def _compared(here: Here, place: Place, what: str, times: int, prepare: Callable[[], Path],
              beside_it: dict[str, str], beside: str, goal: float) -> Row:  # fmt: skip
    """dray's whole submit of a folder that is new each time, beside lines of shell that carry the same folder."""
    taken: dict[str, list[float]] = {name: [] for name in ("dray", *beside_it)}
    for _ in range(times):
        folder = prepare()
        subprocess.run(["rm", "-rf", f"{place.server.home}/there"], check=True)
        os.sync()
        taken["dray"].append(here.time([DRAY, "submit", "-c", place.name, "--", "true"], folder))
        for name, text in beside_it.items():
            os.sync()
            taken[name].append(here.shell(text.replace("plain", f"plain-{place.name}"), folder))
            subprocess.run(["rm", "-rf", f"{place.server.home}/there"], check=True)
    found = {name: statistics.median(seconds) for name, seconds in taken.items()}
    ratio = found["dray"] / found[beside]
    others: dict[str, float | str] = {name: found[name] for name in beside_it}
    return Row(
        what=what,
        dray=found["dray"],
        peers=others,
        ratio=ratio,
        goal=f"at most {goal} x {beside}",
        met=ratio <= goal,
    )


def _first_files(here: Here, place: Place, quick: bool) -> list[Row]:
    count = 200 if quick else 2000

    def prepare() -> Path:
        folder = here.fresh("many")
        for number in range(count):
            file = folder / f"d{number % 20}" / f"f{number}.txt"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(os.urandom(2000).hex().encode())  # new each time: nothing of it is there
        return folder

    others = {
        "tar to ssh tar": "ssh plain mkdir there && tar c . | ssh plain tar x -C there",
        "rsync": "rsync -a ./ plain:there",
    }
    what = f"first submit of {count:,} small files, {place.link}"
    return [_compared(here, place, what, 2 if quick else 5, prepare, others, "tar to ssh tar", 1.2)]


def _one_file(here: Here, place: Place, quick: bool) -> list[Row]:
    size = 50_000_000 if quick else 500_000_000

    def prepare() -> Path:
        folder = here.fresh("big")
        with (folder / "weights").open("wb") as file:
            for _ in range(size // 1_000_000):
                file.write(os.urandom(1_000_000))
        return folder

    others = {
        "scp": f"ssh plain mkdir there && {shlex.join(here.scp)} weights plain:there/",
        "rsync": "rsync -a ./ plain:there",
    }
    what = f"first submit of one file of {size // 1_000_000} MB that does not compress, {place.link}"
    return [_compared(here, place, what, 1 if quick else 3, prepare, others, "scp", 1.3)]


def _again(here: Here, box: Server, quick: bool) -> list[Row]:
    count = 1000 if quick else 10_000
    folder = here.fresh("again")
    for number in range(count):
        place = folder / f"d{number % 100}" / f"f{number}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"# {number}\n" * 20)
    here.time([DRAY, "submit", "-c", "box", "--", "true"], folder)
    here.shell("rsync -a ./ plain-box:kept", folder)
    taken: dict[str, list[float]] = {"dray": [], "rsync + cp -r": []}
    for turn in range(2 if quick else 7):
        (folder / "d0" / "f0.py").write_text(f"# edited {turn}\n")
        os.sync()
        taken["dray"].append(here.time([DRAY, "submit", "-c", "box", "--", "true"], folder))
        os.sync()
        taken["rsync + cp -r"].append(
            here.shell(f"rsync -a ./ plain-box:kept && ssh plain-box cp -r kept run{turn}", folder)
        )
        subprocess.run(["rm", "-rf", f"{box.home}/run{turn}"], check=True)
    found = {name: statistics.median(seconds) for name, seconds in taken.items()}
    ratio = found["dray"] / found["rsync + cp -r"]
    beside: dict[str, float | str] = {"rsync + cp -r": found["rsync + cp -r"]}
    return [Row(what=f"submit again after a one-line edit in {count:,} files", dray=found["dray"], peers=beside, ratio=ratio,
                goal="at most 1.2 x (rsync + cp -r)", met=ratio <= 1.2)]  # fmt: skip


def _latency(here: Here, box: Server, quick: bool) -> list[Row]:
    lines = 50 if quick else 300
    folder = here.fresh("clock")
    (folder / "clock.py").write_text(CLOCK.format(lines=lines))
    here.time([*here.scp, str(folder / "clock.py"), "plain-box:clock.py"])
    seen = _delays([DRAY, "submit", "-c", "box", "clock.py"], here, folder, lines)
    tail = "python3 clock.py > clock.log 2>&1 & tail -n +1 -s 0.01 --pid=$! -f clock.log"
    beside = _delays(["ssh", "plain-box", f"rm -f clock.log; touch clock.log; {tail}"], here, folder, lines)
    table: list[Row] = []
    for name, share, goal in (("median", 0.5, 0.1), ("p99", 0.99, 0.3)):
        found, other = percentile(seen, share), percentile(beside, share)
        table.append(
            Row(what=f"from print on the machine to print at the client, {name}", dray=found, peers={"ssh box tail -f": other},
                ratio=found / other, goal=f"at most {goal * 1000:g} ms", met=found <= goal)
        )  # fmt: skip
    return table


def _delays(command: Sequence[str], here: Here, folder: Path, lines: int) -> list[float]:
    with subprocess.Popen(
        command, cwd=folder, env=here.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as client:
        assert client.stdout is not None
        found = [(time.time_ns() - int(line)) / 1e9 for line in iter(client.stdout.readline, b"")]
    if len(found) != lines:
        raise RuntimeError(f"{len(found)} lines of {lines} arrived")
    return found


def _silence(here: Here, quick: bool) -> list[Row]:
    """What it costs the client to follow 20 silent runs on 5 hosts."""
    seconds = 5 if quick else 20
    folder = here.fresh("silent")
    (folder / "silent.py").write_text(f"import time; time.sleep({seconds + 60})\n")
    names, lines = [], []
    for number in range(5):
        server = here.world.known()
        names.append(f"host{number}")
        lines.append(
            f"Host host{number}\n  HostName {server.address}\n  Port {server.port}\n  User {server.user}\n"
        )
    config = here.world.client.config
    config.write_text("".join(lines) + config.read_text())
    for name in names:
        here.time([DRAY, "attach", "vm", name])
    clients = [
        subprocess.Popen([DRAY, "submit", "-c", names[number % 5], "silent.py"], cwd=folder, env=here.env,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for number in range(20)
    ]  # fmt: skip
    try:
        time.sleep(10)  # until all are running and followed
        before = _cpu(here)
        time.sleep(seconds)
        share = (_cpu(here) - before) / seconds
    finally:
        for client in clients:
            client.kill()
            client.wait()
    return [Row(what="20 silent runs on 5 hosts followed by 20 clients: their CPU, ssh included", dray=f"{share:.1%} of a core",
                peers={}, ratio=None, goal="at most 5 % of a core", met=share <= 0.05)]  # fmt: skip


def _cpu(here: Here) -> float:
    """Seconds that all processes of the client have used: dray's, and the ssh below them."""
    mark = f"DRAY_HOME={here.world.client.dray_home}".encode()
    total = 0.0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / TICKS
        except OSError:
            continue  # it has just ended
    return total
