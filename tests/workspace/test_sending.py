"""The code on its way to a machine over links that are slow, and that break."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray import Workspace
from dray.core.errors import NotStarted
from dray.core.states import RunState
from dray.workspace.sending import Pace, pays
from tests.workspace.links import FarTarget
from tests.workspace.worlds import wait_until

MB = 1_000_000
NOISE = random.Random(3).randbytes(8 * MB)
TEXT = b"".join(b"row %d of a table that shrinks well\n" % i for i in range(200_000))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def target(tmp_path: Path) -> FarTarget:
    return FarTarget(tmp_path / "far")


@pytest.fixture
def workspace(tmp_path: Path, target: FarTarget) -> Iterator[Workspace]:
    with Workspace(tmp_path / "home", targets=[target]) as made:
        yield made


def submit(workspace: Workspace, project: Path) -> None:
    run = workspace.submit(command=["true"], folder=str(project), compute="far").wait()
    assert run.status is RunState.COMPLETED


def test_over_a_slow_link_what_shrinks_is_packed(
    workspace: Workspace, target: FarTarget, project: Path
) -> None:
    (project / "table").write_bytes(TEXT)
    target.link.bytes_per_s = 5e6
    submit(workspace, project)

    assert target.link.sent < len(TEXT) * 0.7


def test_for_this_machine_nothing_is_packed_however_slow_it_is(
    workspace: Workspace, target: FarTarget, project: Path
) -> None:
    (project / "table").write_bytes(TEXT)
    target.link.bytes_per_s = 20e6
    target.is_here = True
    submit(workspace, project)

    assert len(TEXT) < target.link.sent < len(TEXT) + 300_000


@pytest.mark.parametrize(
    ("link", "packer", "shrinks_to", "packs"),
    [
        (1e6, 60e6, 0.3, True),
        (1e6, 60e6, 0.95, False),
        (30e6, 60e6, 0.2, True),
        (60e6, 60e6, 0.2, False),
        (1e9, 60e6, 0.01, False),
    ],
)
def test_packing_has_to_pay(link: float, packer: float, shrinks_to: float, packs: bool) -> None:
    assert pays(link, 1 / packer, shrinks_to) is packs


def test_the_pace_is_that_of_the_last_megabytes() -> None:
    pace = Pace()
    assert pace.bytes_per_s() is None
    pace.took(4 * MB, 0.001)  # into the buffers on the way
    for _ in range(8):
        pace.took(MB, 1.0)
    assert pace.bytes_per_s() == MB


def test_what_does_not_shrink_is_sent_as_it_is(
    workspace: Workspace, target: FarTarget, project: Path
) -> None:
    (project / "noise").write_bytes(NOISE)
    target.link.bytes_per_s = 10e6
    submit(workspace, project)

    assert len(NOISE) < target.link.sent < len(NOISE) + 300_000


def test_a_link_that_breaks_again_and_again_is_taken_up_at_the_byte(
    workspace: Workspace, target: FarTarget, project: Path
) -> None:
    (project / "noise").write_bytes(NOISE)
    for i in range(500):
        (project / f"small{i}").write_text(f"{i}" * 100)
    target.link.cuts_sending = [2 * MB, 3 * MB, 3 * MB]
    submit(workspace, project)

    assert target.link.opened >= 4
    # What was in the pipes at a cut goes over again; never the whole.
    assert target.link.sent < 14 * MB


def test_a_link_that_never_brings_anything_over_is_given_up(
    workspace: Workspace, target: FarTarget, project: Path
) -> None:
    (project / "noise").write_bytes(NOISE)
    # Enough for the greeting, the runner and the request, and for nothing more.
    target.link.cuts_sending = [400_000] * 50
    with pytest.raises(NotStarted):
        submit(workspace, project)
    assert 3 <= target.link.opened <= 8


def test_a_killed_submit_is_gone_on_with_by_the_next(
    workspace: Workspace, target: FarTarget, project: Path, tmp_path: Path
) -> None:
    big = random.Random(4).randbytes(50 * MB)
    (project / "big").write_bytes(big)
    words = [sys.executable, "-m", "tests.workspace.links", str(tmp_path), "40e6", "submit"]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    with client:
        wait_until(lambda: int(client.stdout.readline()) > 25 * MB)
        client.kill()

    submit(workspace, project)
    assert target.link.sent < 35 * MB
    (laid_out,) = [p for p in (tmp_path / "far").glob("*/runs/*/code/big") if p.stat().st_size == len(big)]
    assert laid_out.read_bytes() == big
