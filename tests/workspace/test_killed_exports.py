"""kill -9 between any two changes of the disk, or in the middle of one: an export, and an imported run, are there whole or not at all."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from dray import Workspace
from dray.workspace.listing import NAME, Place
from tests.store.test_store_crash import shim
from tests.workspace.exports import exported, facts, keep_code, make_run, tree
from tests.workspace.worlds import World

__all__ = ["shim"]  # a fixture

IMPORT = "import sys; from dray import Workspace; Workspace(sys.argv[1]).import_runs(sys.argv[2])"
EXPORT = (
    "import sys; from dray import Workspace; ws = Workspace(sys.argv[1]);"
    " ws.export_runs(ws.runs(refresh_within_s=None), sys.argv[2], force=True)"
)


def _killed(shim: Path, program: str, home: Path, folder: Path, *, below: Path, at: int) -> tuple[int, int]:
    """Run `program` and kill it at its change number `at` below that folder: status, and the number of changes."""
    count = below.parent / f"{below.name}.count"
    settings = {
        "LD_PRELOAD": shim,
        "CRASH_HOME": below,
        "CRASH_AT": at,
        "CRASH_TORN": at % 2,
        "CRASH_COUNT": count,
    }
    done = subprocess.run(
        [sys.executable, "-c", program, home, folder],
        env={**os.environ, **{name: str(value) for name, value in settings.items()}},
        check=False,
    )
    return done.returncode, int(count.read_text()) if count.exists() else -1


def _moments(changes: int, every: int) -> Iterable[int]:
    return sorted({*range(1, changes + 1, every), *range(max(changes - 10, 1), changes + 1)})


def _imports(shim: Path, tmp_path: Path, every: int) -> int:
    folder = exported(tmp_path / "from", tmp_path / "archive")
    origin = tmp_path / "origin"
    with Workspace(origin) as workspace:
        make_run(workspace.store, 4)
    calm = shutil.copytree(origin, tmp_path / "calm")
    status, changes = _killed(shim, IMPORT, calm, folder, below=calm, at=0)
    undisturbed = facts(calm)
    assert (status, len(undisturbed)) == (0, 2)

    for at in _moments(changes, every):
        home = shutil.copytree(origin, tmp_path / f"killed-{at}")
        status, _ = _killed(shim, IMPORT, home, folder, below=home, at=at)
        assert status == -signal.SIGKILL, f"change {at} was never reached"

        left = facts(home)
        assert left in (undisturbed, facts(origin)), f"killed at change {at}"
        with Workspace(home) as workspace:
            (again,) = workspace.import_runs(folder)
            assert again.outcome == ("already here" if len(left) == 2 else "imported")
        assert facts(home) == undisturbed, f"killed at change {at}"
        assert [path.name for path in (home / "imported").iterdir()] == [folder.name], (
            f"killed at change {at}"
        )
        assert tree(home / "imported") == tree(calm / "imported")
        shutil.rmtree(home)
    return changes


def test_an_import_killed_at_some_moments_is_whole_or_not_there(shim: Path, tmp_path: Path) -> None:
    assert _imports(shim, tmp_path, 7) > 40


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_an_import_killed_at_every_moment_is_whole_or_not_there(shim: Path, tmp_path: Path) -> None:
    assert _imports(shim, tmp_path, 1) > 40


def _exports(shim: Path, tmp_path: Path, every: int) -> int:
    home = tmp_path / "home"
    with Workspace(home) as workspace:
        digest = keep_code(home)
        for number in range(2):
            make_run(workspace.store, number, snapshot=digest)
    calm = tmp_path / "calm"
    status, changes = _killed(shim, EXPORT, home, calm, below=calm, at=0)
    assert status == 0
    undisturbed = tree(calm)
    older = shutil.copytree(calm, tmp_path / "older")
    for listing in older.glob(f"*/{NAME}"):  # other exports, to be replaced
        listing.write_text("{}")

    for at in _moments(changes, every):
        for origin in (None, older):
            archive = tmp_path / f"killed-{at}"
            if origin:
                shutil.copytree(origin, archive)
            status, _ = _killed(shim, EXPORT, home, archive, below=archive, at=at)
            assert status == -signal.SIGKILL, f"change {at} was never reached"

            for folder in archive.glob("[a-z]*"):
                if not origin or (folder / NAME).read_text() != "{}":
                    with Place(folder) as place:
                        place.check(place.listing())
            with Workspace(home) as workspace:
                workspace.export_runs(workspace.runs(refresh_within_s=None), archive, force=True)
            assert tree(archive) == undisturbed, f"killed at change {at}"
            assert len(os.listdir(archive)) == 2
            shutil.rmtree(archive)
    return changes


def test_an_export_killed_at_some_moments_is_whole_or_not_there(shim: Path, tmp_path: Path) -> None:
    assert _exports(shim, tmp_path, 9) > 30


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_an_export_killed_at_every_moment_is_whole_or_not_there(shim: Path, tmp_path: Path) -> None:
    assert _exports(shim, tmp_path, 1) > 30


@pytest.mark.timeout(300)
def test_commands_killed_at_random_moments_leave_whole_runs_only(world: World, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with Workspace(tmp_path / "from") as workspace:
        digest = keep_code(workspace.home)
        for number in range(100):
            make_run(workspace.store, number, snapshot=digest)
        workspace.export_runs(workspace.runs(refresh_within_s=None), archive)
    whole = facts(tmp_path / "from")
    rng = random.Random(5)

    for _ in range(5):
        client = world.start("import", str(archive))
        time.sleep(rng.uniform(0.1, 0.5))  # the moment is the test
        client.kill()
        client.communicate()
        found = facts(world.home)
        assert found == {run_id: whole[run_id] for run_id in found}
        time.sleep(0.01)

    assert world.dray("import", str(archive)).code == 0
    assert facts(world.home) == whole
    assert sorted(p.name for p in (world.home / "imported").iterdir()) == sorted(whole)


def test_two_imports_at_once_take_each_run_in_once(world: World, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with Workspace(tmp_path / "from") as workspace:
        for number in range(30):
            make_run(workspace.store, number)
        workspace.export_runs(workspace.runs(refresh_within_s=None), archive)

    clients = [world.start("import", str(archive)) for _ in range(3)]
    said = [client.communicate(timeout=90) for client in clients]

    assert [client.returncode for client in clients] == [0, 0, 0], said
    lines = [line for out, _ in said for line in out.decode().splitlines()]
    assert len(lines) == 90
    assert sum(line.endswith("\timported") for line in lines) == 30
    assert facts(world.home) == facts(tmp_path / "from")
