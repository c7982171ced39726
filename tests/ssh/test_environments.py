"""Environments on a machine behind ssh that has a Python and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell
from tests.runner.environments.world import Index, texts_below
from tests.ssh.test_links import attached
from tests.ssh.world import World, wait_until

SCRIPT = "import apple, sys\nprint(apple.VERSION, sys.prefix)\n"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """On the loopback, which the client and its machines share."""
    made = Index(tmp_path / "packages", password="ind3x-w0rd")
    made.add("apple", "1.0")
    made.add("pear", "1.0", requires=["apple"])
    yield made
    made.stop()


def test_a_bare_machine_gets_uv_once_and_builds_from_a_private_index(
    world: World, shell: Shell, index: Index
) -> None:
    server = world.known()
    attached(world, shell, server)
    shell.write("requirements.txt", "pear\n")
    shell.write("train.py", SCRIPT)
    address = f"http://ana:ind3x-w0rd@{index.where}/simple"
    words = ("submit", "-c", "box", "--index-url", address, "train.py")
    first = shell.dray(*words)
    asked = len(index.asked)
    second = shell.dray(*words)

    assert first.returncode == 0, first.stderr.decode()
    assert first.stdout.startswith(b"1.0 " + bytes(server.home))
    assert b"the machine has no uv: bringing" in first.stderr
    assert second.returncode == 0
    assert b"bringing" not in second.stderr
    assert len(index.asked) == asked
    assert len(list(server.home.glob(".local/share/dray/machine/*/tools/uv-*"))) == 1
    assert not (server.home / ".cache").exists()
    for root in (str(server.home), str(world.client.dray_home)):
        assert not [path for path, data in texts_below(root) if b"ind3x-w0rd" in data]
    assert b"ind3x-w0rd" not in first.stderr + first.stdout


def test_a_link_that_breaks_during_the_build_ends_nothing(world: World, shell: Shell, index: Index) -> None:
    server = world.known()
    attached(world, shell, server)
    shell.write("requirements.txt", "pear\n")
    shell.write("train.py", SCRIPT)
    index.silent = lambda path: path.startswith("/files/")
    address = f"http://ana:ind3x-w0rd@{index.where}/simple"
    run = shell.detached("-c", "box", "--index-url", address, "train.py")
    wait_until(lambda: any(path.startswith("/files/") for path in index.asked))

    server.cut()
    index.silent = lambda path: False
    index.given_up.set()

    done = shell.dray("follow", run)
    assert done.returncode == 0, done.stderr.decode()
    assert shell.dray("logs", run).stdout.startswith(b"1.0 ")


def test_a_build_that_fails_says_why_in_one_sentence(world: World, shell: Shell, index: Index) -> None:
    server = world.known()
    attached(world, shell, server)
    shell.write("requirements.txt", "pear\napple>=2\n")
    shell.write("train.py", SCRIPT)
    address = f"http://ana:ind3x-w0rd@{index.where}/simple"
    done = shell.dray("submit", "-c", "box", "--index-url", address, "train.py")

    assert done.returncode != 0
    assert b"Because " in done.stderr
    assert b"apple" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_machine_without_an_index_gets_its_packages_along(world: World, shell: Shell, index: Index) -> None:
    server = world.far()  # its loopback is another one
    attached(world, shell, server)
    shell.write("requirements.txt", "pear\n")
    shell.write("train.py", SCRIPT)
    address = f"http://ana:ind3x-w0rd@{index.where}/simple"
    words = ("submit", "-c", "box", "--index-url", address)
    alone = shell.dray(*words, "train.py", env={"UV_HTTP_RETRIES": "0"})
    together = shell.dray(*words, "--offline-host", "train.py")
    asked = len(index.asked)
    again = shell.dray(*words, "--offline-host", "train.py")

    assert alone.returncode != 0
    assert together.returncode == 0, together.stderr.decode()
    assert together.stdout.startswith(b"1.0 ")
    assert again.returncode == 0
    assert len(index.asked) == asked
    for root in (str(server.home), str(world.client.dray_home)):
        assert not [path for path, data in texts_below(root) if b"ind3x-w0rd" in data]


def test_what_cannot_be_sent_along_says_so(world: World, shell: Shell, index: Index) -> None:
    server = world.known()
    attached(world, shell, server)
    shell.write("train.py", SCRIPT)
    shell.write("requirements.txt", "no-such-thing\n")
    address = f"http://ana:ind3x-w0rd@{index.where}/simple"
    done = shell.dray("submit", "-c", "box", "--offline-host", "--index-url", address, "train.py")

    assert done.returncode == 125
    assert b"could not be gathered here" in done.stderr
    assert b"no-such-thing was not found" in done.stderr
    assert b"ind3x-w0rd" not in done.stderr


def test_an_existing_python_is_used_as_it_is_or_refused_by_name(world: World, shell: Shell) -> None:
    server = world.known()
    attached(world, shell, server)
    shell.write("train.py", "import sys\nprint(sys.executable)\n")
    shell.write("requirements.txt", "no-such-package-of-dray\n")  # not read: nothing is installed

    good = shell.dray("submit", "-c", "box", "--python", "/usr/bin/python3", "train.py")
    absent = shell.dray("submit", "-c", "box", "--python", "/nowhere/python", "train.py")
    other = shell.dray("submit", "-c", "box", "--python", "/bin/true", "train.py")

    assert good.stdout == b"/usr/bin/python3\n", good.stderr.decode()
    assert (absent.returncode, other.returncode) == (125, 125)
    assert b"there is no `/nowhere/python` on this machine; on PATH there is /" in absent.stderr
    assert b"`/bin/true` is a program, but no Python" in other.stderr
