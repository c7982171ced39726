"""Outputs on their way home: over links that break, past clients that are killed, from machines that do not keep their word."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray import Workspace
from dray.core.errors import DrayError, LinkLost
from dray.hosts import Connection
from dray.runner.frames import Frame
from dray.workspace import Run
from dray.workspace.errors import BadAnswer, NoRoomForOutputs
from dray.workspace.fetching import Fetching
from tests.workspace.links import FarTarget
from tests.workspace.worlds import SmallDisk, wait_until

MB = 1_000_000
BIG = random.Random(8).randbytes(20 * MB)


@pytest.fixture
def target(tmp_path: Path) -> FarTarget:
    return FarTarget(tmp_path / "far")


@pytest.fixture
def workspace(tmp_path: Path, target: FarTarget) -> Iterator[Workspace]:
    with Workspace(tmp_path / "home", targets=[target]) as made:
        yield made


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Run:
    """A run that has left one large file and many small ones."""
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "big").write_bytes(BIG)
    (project / "train.sh").write_text(
        f"cp '{tmp_path}/big' outputs/big; for i in $(seq 40); do echo $i > outputs/small$i; done"
    )
    made = workspace.submit("train.sh", compute="far", cwd=str(project)).wait()
    assert made.exit_code == 0
    return made


@pytest.fixture
def to(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def on_the_machine(target: FarTarget, name: str) -> Path:
    (found,) = Path(str(target.root)).glob(f"*/runs/*/code/outputs/{name}")
    return found


def check(to: Path) -> None:
    assert (to / "big").read_bytes() == BIG
    assert [(to / f"small{i}").read_text() for i in range(1, 41)] == [f"{i}\n" for i in range(1, 41)]
    assert len(list(to.iterdir())) == 41, "nothing else is left"


def test_a_link_that_breaks_is_taken_up_at_the_byte(run: Run, target: FarTarget, to: Path) -> None:
    target.link.received = 0
    target.link.cuts_receiving = [5 * MB, 7 * MB, 3 * MB]
    run.outputs.fetch_all(None, to)

    check(to)
    assert target.link.received < len(BIG) + 2 * MB


def test_a_link_that_brings_nothing_any_more_is_given_up_and_what_came_is_kept(
    run: Run, target: FarTarget, to: Path
) -> None:
    target.link.cuts_receiving = [6 * MB, *[200] * 20]
    with pytest.raises(LinkLost) as lost:
        run.outputs.fetch_all(None, to)

    assert "goes on where it stopped" in str(lost.value.hint)
    (part,) = to.glob(".big.*.part")
    assert part.read_bytes() == BIG[: part.stat().st_size]
    target.link.received, target.link.cuts_receiving = 0, []
    run.outputs.fetch_all(None, to)
    check(to)
    assert target.link.received < 16 * MB


def killed_fetch(run: Run, tmp_path: Path, to: Path) -> Path:
    """A client that is killed when a good part has come; the part it left."""
    words = [sys.executable, "-m", "tests.workspace.links", str(tmp_path), "20e6", "fetch", run.id, str(to)]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    with client:
        wait_until(lambda: int(client.stdout.readline()) > 6 * MB)
        client.send_signal(signal.SIGKILL)
    (part,) = to.glob(".big.*.part")
    assert part.stat().st_size > 6 * MB
    return part


def test_what_a_killed_client_left_is_gone_on_with(
    run: Run, target: FarTarget, tmp_path: Path, to: Path
) -> None:
    kept = killed_fetch(run, tmp_path, to).stat().st_size
    target.link.received = 0
    run.outputs.fetch_all(None, to)

    check(to)
    assert target.link.received < len(BIG) - kept + MB


def test_a_part_of_another_version_is_begun_anew(
    run: Run, target: FarTarget, tmp_path: Path, to: Path
) -> None:
    killed_fetch(run, tmp_path, to)
    other = random.Random(9).randbytes(len(BIG))
    on_the_machine(target, "big").write_bytes(other)

    assert run.outputs.fetch("big", to).read_bytes() == other
    assert [file.name for file in to.iterdir()] == ["big"]


def test_a_part_that_was_damaged_is_begun_anew(run: Run, tmp_path: Path, to: Path) -> None:
    part = killed_fetch(run, tmp_path, to)
    with part.open("r+b") as file:
        file.write(b"damaged")

    assert run.outputs.fetch("big", to).read_bytes() == BIG


def test_what_is_here_already_does_not_travel_again(run: Run, target: FarTarget, to: Path) -> None:
    run.outputs.fetch_all(None, to)
    target.link.received = 0
    fetched = [*run.outputs.fetch_each(None, to, may_replace=lambda place: False)]

    assert all(one.was_there for one in fetched)
    assert target.link.received < 50_000
    check(to)


def test_a_different_file_of_the_same_size_is_not_replaced_and_does_not_travel(
    run: Run, target: FarTarget, to: Path
) -> None:
    (to / "big").write_bytes(bytes(len(BIG)))
    target.link.received = 0
    fetched = {one.path: one for one in run.outputs.fetch_each(None, to, may_replace=lambda place: False)}

    assert "a different file" in str(fetched["big"].trouble)
    assert (to / "big").read_bytes() == bytes(len(BIG))
    assert all(one.trouble is None for name, one in fetched.items() if name != "big")
    assert target.link.received < 12 * MB


def test_two_clients_that_fetch_the_same_at_once_do_not_disturb_each_other(run: Run, to: Path) -> None:
    seen: list[int] = []

    def other(event: Any) -> None:
        if not seen:
            seen.append(1)
            run.outputs.fetch_all(["big"], to, force=True)

    run.outputs.fetch_all(["big"], to, other, force=True)
    assert (to / "big").read_bytes() == BIG
    assert [file.name for file in to.iterdir()] == ["big"]


def test_a_file_that_grew_since_the_run_ended_comes_as_it_is_now(
    run: Run, target: FarTarget, to: Path
) -> None:
    with on_the_machine(target, "small1").open("a") as file:
        file.write("and more\n")
    assert run.outputs.fetch("small1", to).read_text() == "1\nand more\n"


def test_what_does_not_fit_is_refused_before_it_is_fetched(run: Run, target: FarTarget, to: Path) -> None:
    disk = SmallDisk(to / "disk", 8)
    try:
        target.link.received = 0
        with pytest.raises(NoRoomForOutputs, match="do not fit"):
            run.outputs.fetch_all(None, disk.folder)
        assert target.link.received == 0
        assert list(disk.folder.iterdir()) == []
        run.outputs.fetch("small7", disk.folder)
    finally:
        disk.unmount()


# -- machines that do not keep their word


class Machine:
    """What a machine would answer, frame by frame; its requests are kept."""

    where = "odd machine"

    def __init__(self, answers: Callable[[Mapping[str, Any]], list[Frame]]) -> None:
        self.answers = answers
        self.asked: list[Mapping[str, Any]] = []
        self.most_waiting = 0
        self._ahead: list[Frame] = []
        self._waiting = 0

    def ask(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        self.asked.append(header)
        self._waiting += 1
        self.most_waiting = max(self.most_waiting, self._waiting)
        self._ahead += self.answers(header)

    def receive(self) -> Frame:
        if not self._ahead:
            raise LinkLost("the connection to odd machine broke")
        header, body = self._ahead.pop(0)
        self._waiting -= "fetched" in header
        return header, body

    def close(self) -> None:
        self._ahead, self._waiting = [], 0


def honest(data: bytes) -> Callable[[Mapping[str, Any]], list[Frame]]:
    return lambda asked: [
        ({"fetching": asked["path"], "offset": 0, "bytes": len(data)}, b""),
        ({"piece": asked["path"], "offset": 0}, data),
        ({"fetched": asked["path"], "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}, b""),
    ]


def fetch(machine: Machine, to: Path, wanted: list[tuple[str, str, int]]) -> list[Any]:
    work = Fetching(
        lambda: cast("Connection", machine),
        "abcdefghjk",
        to,
        lambda place: True,
        lambda name, came: None,
        lambda text: None,
    )
    return [*work.each(wanted)]


def test_many_files_are_asked_for_ahead(to: Path) -> None:
    machine = Machine(honest(b"abc"))
    fetch(machine, to, [(f"f{i}", f"outputs/f{i}", 3) for i in range(100)])

    assert machine.most_waiting >= 10
    assert len(machine.asked) == len(list(to.iterdir())) == 100


def test_a_machine_that_sends_more_than_it_said_is_cut_off(to: Path) -> None:
    def endless(asked: Mapping[str, Any]) -> list[Frame]:
        first = ({"fetching": asked["path"], "offset": 0, "bytes": 10}, b"")
        return [first, *[({"piece": asked["path"], "offset": i * 10}, b"x" * 10) for i in range(1000)]]

    with pytest.raises(BadAnswer, match="cannot be trusted"):
        fetch(Machine(endless), to, [("f", "outputs/f", 10)])
    assert list(to.iterdir()) == []


def test_a_machine_that_says_that_it_has_more_than_the_disk_holds_is_refused(to: Path) -> None:
    huge = Machine(lambda asked: [({"fetching": asked["path"], "offset": 0, "bytes": 1 << 60}, b"")])
    (outcome,) = fetch(huge, to, [("f", "outputs/f", 10)])

    assert isinstance(outcome.trouble, NoRoomForOutputs)
    assert list(to.iterdir()) == []


def test_what_arrives_damaged_twice_is_told_and_not_kept(to: Path) -> None:
    def damaged(asked: Mapping[str, Any]) -> list[Frame]:
        first, piece, last = honest(b"abc")(asked)
        return [first, (piece[0], b"abd"), last]

    machine = Machine(damaged)
    (outcome,) = fetch(machine, to, [("f", "outputs/f", 3)])

    assert "arrived damaged" in str(outcome.trouble)
    assert len(machine.asked) == 2
    assert list(to.iterdir()) == []


_VALUE = st.one_of(st.integers(-5, 50), st.none(), st.text(max_size=3), st.booleans())
_HEADER = st.dictionaries(
    st.sampled_from(["fetching", "piece", "fetched", "offset", "bytes", "sha256"]), _VALUE, max_size=6
)


@given(answers=st.lists(st.tuples(_HEADER, st.binary(max_size=20)), max_size=6))
def test_no_answer_makes_a_file_that_is_not_what_it_should_be(
    tmp_path_factory: pytest.TempPathFactory, answers: list[Frame]
) -> None:
    to = tmp_path_factory.mktemp("to")
    os.makedirs(to, exist_ok=True)
    given_once = iter([answers])
    try:
        outcomes = fetch(Machine(lambda asked: next(given_once, [])), to, [("f", "outputs/f", 3)])
    except DrayError:
        outcomes = []
    for outcome in outcomes:
        assert outcome.trouble is not None or outcome.place.exists()
    assert not [file for file in to.iterdir() if file.name != "f"]
