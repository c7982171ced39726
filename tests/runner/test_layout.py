"""Laying out a code folder: every file as it was, by as many hands as pay, and nothing goes on when it is to end."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

from dray.runner import layout, processes
from dray.runner.machine import Machine
from tests.runner.machines import is_alive, kill, wait_until


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(str(tmp_path / "root"))


@pytest.fixture
def to(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


def keep(machine: Machine, contents: dict[str, bytes]) -> dict[str, Any]:
    """The blobs of those files on the machine, and their manifest."""
    rows = []
    for path, data in sorted(contents.items()):
        digest = hashlib.sha256(data).hexdigest()
        blob = Path(machine.blob(digest))
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        rows.append([path, digest, len(data), int(path.endswith(".sh"))])
    return {"v": 1, "files": rows, "links": [["link", "f1"]], "dirs": ["empty/one"]}


def many(count: int) -> dict[str, bytes]:
    return {f"d{i % 37}/e{i % 3}/f{i}": b"%d" % i * (i % 50) for i in range(count)}


@pytest.mark.parametrize("count", [0, 1, 999, 2500, 5001])
def test_every_file_is_there_as_it_was(machine: Machine, to: Path, count: int) -> None:
    contents = many(count)
    assert layout.lay_out(machine, None, keep(machine, contents), str(to), lambda: True)

    found = {str(p.relative_to(to)): p.read_bytes() for p in to.rglob("f*") if p.is_file()}
    assert found == contents
    assert os.readlink(to / "link") == "f1"
    assert (to / "empty" / "one").is_dir()
    assert (to / "outputs").is_dir()


@pytest.mark.parametrize("size", [128 * 1024 - 1, 128 * 1024, 128 * 1024 + 1, 3 << 20, (64 << 20) + 5])
def test_large_files_are_copies_too(machine: Machine, to: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    manifest = keep(machine, {"big.sh": data})
    layout.lay_out(machine, None, manifest, str(to), lambda: True)

    assert (to / "big.sh").read_bytes() == data
    assert os.access(to / "big.sh", os.X_OK)
    (to / "big.sh").write_bytes(b"changed by the script")
    assert Path(machine.blob(manifest["files"][0][1])).read_bytes() == data


@pytest.mark.parametrize("cut", [b"", b"short", b"longer than it should be"])
def test_a_content_of_another_size_is_none(machine: Machine, to: Path, cut: bytes) -> None:
    manifest = keep(machine, many(3000) | {"z": b"this one is cut"})
    Path(machine.blob(manifest["files"][-1][1])).write_bytes(cut)
    with pytest.raises(OSError, match="not on this machine any more"):
        layout.lay_out(machine, None, manifest, str(to), lambda: True)


def test_what_a_helper_could_not_do_is_told(machine: Machine, to: Path) -> None:
    manifest = keep(machine, many(3000))
    before = processes.descendants(os.getpid())
    (to / Path(manifest["files"][-1][0]).parent).mkdir(parents=True)
    (to / manifest["files"][-1][0]).write_text("in the way")
    with pytest.raises(FileExistsError):
        layout.lay_out(machine, None, manifest, str(to), lambda: True)
    assert set(processes.descendants(os.getpid())) <= set(before)


def test_nobody_goes_on_when_it_is_to_end(machine: Machine, to: Path) -> None:
    manifest = keep(machine, many(5000))
    before = processes.descendants(os.getpid())
    asked = iter([True, True])

    assert not layout.lay_out(machine, None, manifest, str(to), lambda: next(asked, False))
    assert set(processes.descendants(os.getpid())) <= set(before)


def test_the_helpers_of_a_killed_runner_die_with_it(machine: Machine, to: Path) -> None:
    manifest = keep(machine, many(3000) | {"z": b"never comes"})
    endless = machine.blob(manifest["files"][-1][1])
    os.unlink(endless)
    os.mkfifo(endless)  # a helper that opens it waits for ever
    runner = os.fork()
    if runner == 0:
        layout.lay_out(machine, None, manifest, str(to), lambda: True)
        os._exit(0)
    (helper,) = wait_until(lambda: processes.descendants(runner))[-1:]
    kill(runner)
    os.waitpid(runner, 0)
    wait_until(lambda: not is_alive(helper))
