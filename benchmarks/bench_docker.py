"""Runs in containers, beside `docker run` on this machine and over ssh, and beside MLflow's docker projects where that is installed.

The engine and the ssh server are of our own, on this computer; the image is at hand.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import DRAY, Row
from tests.docker.world import BASE, Docker, base_tar
from tests.ssh.world import World

HELLO = "print('hello', flush=True)\n"
PROJECT = (
    "name: hello\ndocker_env:\n  image: {image}\nentry_points:\n  main:\n    command: python3 hello.py\n"
)


def rows(quick: bool) -> list[Row]:
    """Here, and behind ssh."""
    with _engine() as docker, _folder() as folder:
        return [_here(docker, folder, quick), _over_ssh(docker, folder, quick)]


@contextmanager
def _engine() -> Iterator[Docker]:
    made = Docker()
    try:
        made.docker("import", base_tar(), BASE)
        yield made
    finally:
        made.close()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dray-bench-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _here(docker: Docker, folder: Path, quick: bool) -> Row:
    project = folder / "here"
    project.mkdir()
    (project / "hello.py").write_text(HELLO)
    env = {**os.environ, **docker.env, "DRAY_HOME": str(folder / "home"), "VIRTUAL_ENV": sys.prefix}
    env["PATH"] = f"/usr/bin:{env['PATH']}"  # the engine's own command before any other
    plain = ["docker", "run", "--rm", "-v", f"{project}:/x", "-w", "/x", BASE, "python3", "hello.py"]
    commands = {"dray": [DRAY, "submit", "--image", BASE, "hello.py"], "docker run --rm": plain}
    if mlflow := peers.tool("mlflow"):
        (project / "MLproject").write_text(PROJECT.format(image=BASE))
        project_run = [mlflow, "run", "."]
        try:
            _first_line(project_run, project, env)
            commands["mlflow run"] = project_run
        except (
            RuntimeError
        ) as trouble:  # it builds an image of its own, for which it wants more than an engine
            print(f"mlflow does not run here: {trouble}"[-500:], file=sys.stderr)
    found = _medians(commands, lambda words: _first_line(words, project, env), quick)
    return _row(
        "warm `dray submit --image I hello.py` to the script's first line", found, "docker run --rm", 0.3
    )


def _over_ssh(docker: Docker, folder: Path, quick: bool) -> Row:
    world = World(folder)
    try:
        box = world.known()
        where = f"  HostName {box.address}\n  Port {box.port}\n  User {box.user}\n  IdentityFile {world.client.key}\n"
        kept = f"  ControlMaster auto\n  ControlPath {world.client.runtime}/plain\n  ControlPersist 10m\n"
        world.client.configure(f"Host box\n{where}Host plain\n{where}{kept}")
        (box.home / ".profile").write_text(
            f"export DOCKER_HOST={docker.env['DOCKER_HOST']} PATH=/usr/bin:/bin\n"
        )
        (box.home / "hello.py").write_text(HELLO)
        project = folder / "there"
        project.mkdir()
        (project / "hello.py").write_text(HELLO)
        env = {**os.environ, **world.client.env, "VIRTUAL_ENV": sys.prefix}
        subprocess.run(
            [DRAY, "attach", "remotedocker", "box", "--image", BASE], env=env, check=True, capture_output=True
        )
        inside = f"DOCKER_HOST={docker.env['DOCKER_HOST']} /usr/bin/docker run --rm -v $HOME:/x -w /x {BASE} python3 hello.py"
        commands = {
            "dray": [DRAY, "submit", "-c", "box", "hello.py"],
            "ssh box docker run --rm": ["ssh", "plain", inside],
        }
        found = _medians(commands, lambda words: _first_line(words, project, env), quick)
    finally:
        world.close()
    what = "warm `dray submit -c box hello.py` in a container behind ssh, to the first line"
    return _row(what, found, "ssh box docker run --rm", 0.4)


def _row(what: str, found: dict[str, float], beside: str, most: float) -> Row:
    peers_of_it: dict[str, float | str] = {name: seconds for name, seconds in found.items() if name != "dray"}
    return Row(what=what, dray=found["dray"], peers=peers_of_it, ratio=found["dray"] / found[beside],
               goal=f"at most {most} s more than {beside}", met=found["dray"] - found[beside] <= most)  # fmt: skip


def _medians(
    commands: Mapping[str, Sequence[str]], measure: Callable[[Sequence[str]], float], quick: bool
) -> dict[str, float]:
    """In turns, so that what else the machine does meets all alike; the first turn warms up and does not count."""
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(3 if quick else 15):
        for name, command in commands.items():
            seconds = measure(command)
            if turn:
                taken[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def _first_line(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> float:
    """Seconds until the script's first line is here."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        for line in client.stdout:
            if line == b"hello\n":
                seconds = time.perf_counter() - began
                client.stdout.read()
                return seconds
        raise RuntimeError(f"{' '.join(command)}: {client.stderr.read().decode()}")
