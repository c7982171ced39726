"""A client that is killed between any two changes of the disk, or in the middle of one, loses nothing it was told is stored."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dray.core.where import parse_columns
from dray.store import Store
from tests.store import crash_series

_HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    library = tmp_path_factory.mktemp("shim") / "crash_shim.so"
    words: list[str | Path] = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Werror",
        "-o",
        library,
        _HERE / "crash_shim.c",
        "-ldl",
    ]
    subprocess.run(words, check=True)
    return library


def _run_series(shim: Path, home: Path, at: int, torn: bool) -> tuple[int, list[str], int]:
    """Exit status, the runs whose creation had returned, and how many changes were made."""
    count = home.parent / f"{home.name}.count"
    shimmed = {
        "LD_PRELOAD": shim,
        "CRASH_HOME": home,
        "CRASH_AT": at,
        "CRASH_TORN": int(torn),
        "CRASH_COUNT": count,
    }
    done = subprocess.run(
        [sys.executable, _HERE / "crash_series.py", home],
        env={**os.environ, **{name: str(value) for name, value in shimmed.items()}},
        stdout=subprocess.PIPE,
        check=False,
    )
    made = [line.split()[1] for line in done.stdout.decode().splitlines()]
    return done.returncode, made, int(count.read_text()) if count.exists() else -1


def _export(home: Path) -> dict[str, Any]:
    with Store.open(home) as store:
        return {record.id: _known(store, record.id) for record in store.runs()}


def _known(store: Store, run_id: str) -> dict[str, Any]:
    """All of a run, what was said afterwards and the summaries included."""
    fields = parse_columns(
        "name,note,tags.seen,tags.stage,params.lr,metrics.loss,metrics.loss.min,metrics.acc.max"
    )
    columns = store.columns([run_id], fields)[run_id]
    return {
        **store.export_state(run_id),
        "columns": {str(field): value for field, value in columns.items()},
        "edits": [edit[:3] for edit in store.edits(run_id)],
    }


def _survives(shim: Path, folder: Path, moments: Iterable[int], undisturbed: dict[str, Any]) -> int:
    """Crash at each of `moments`; how many there were."""
    done = 0
    for at in moments:
        home = folder / f"killed-{at}"
        status, made, _ = _run_series(shim, home, at, torn=at % 2 == 0)
        assert status == -signal.SIGKILL, f"change {at} was never reached"

        # Every run whose creation returned is listed and whole, except the one that is removed in the end.
        with Store.open(home) as store:
            listed = {record.id for record in store.runs()}
            for run_id in listed:
                _known(store, run_id)
        assert set(made) - listed <= {crash_series.REMOVED}, f"killed at change {at}"

        crash_series.work(home)
        assert _export(home) == undisturbed, f"killed at change {at}"
        assert sorted(os.listdir(home / "logs")) == sorted(undisturbed), f"killed at change {at}"
        shutil.rmtree(home)
        done += 1
    return done


@pytest.fixture
def undisturbed(shim: Path, tmp_path: Path) -> tuple[dict[str, Any], int]:
    """The history of a series that nobody killed, and how many changes of the disk it took."""
    status, made, changes = _run_series(shim, tmp_path / "calm", 0, torn=False)
    assert (status, made) == (0, [*crash_series.KEPT, crash_series.REMOVED])
    export = _export(tmp_path / "calm")
    assert sorted(export) == list(crash_series.KEPT)
    assert len(export["aaaaaaaaaa"]["metrics"]["loss"]["values"]) == 300
    assert export["aaaaaaaaaa"]["columns"] == {
        "name": "n-aaaaaaaaaa",
        "tags.seen": "yes",
        "params.lr": 1,
        "metrics.loss": 299 / 7,
        "metrics.loss.min": 0.0,
        "metrics.acc.max": 299.0,
    }
    return export, changes


def test_a_kill_at_any_of_some_moments_loses_nothing(
    shim: Path, tmp_path: Path, undisturbed: tuple[dict[str, Any], int]
) -> None:
    export, changes = undisturbed
    # The first ones make the history, the last ones remove a run and close; the rest is spread evenly.
    moments = sorted(
        {*range(1, 13, 2), *range(13, changes - 14, max(changes // 14, 1)), *range(changes - 14, changes, 2)}
    )

    assert _survives(shim, tmp_path, moments, export) >= 20


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_kill_at_every_moment_loses_nothing(
    shim: Path, tmp_path: Path, undisturbed: tuple[dict[str, Any], int]
) -> None:
    export, changes = undisturbed

    assert _survives(shim, tmp_path, range(1, changes + 1), export) == changes
