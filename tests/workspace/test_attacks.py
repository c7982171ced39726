"""What scripts and crowds of clients can do to the history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.core.spec import RunSpec
from dray.store import Store
from dray.workspace import Workspace
from dray.workspace.following import Follower
from tests.workspace.worlds import World


@pytest.fixture
def workspace(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.chdir(world.project)
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    with Workspace(world.home) as made:
        yield made


def test_two_followers_set_a_torn_last_line_aside_once(world: World, workspace: Workspace) -> None:
    code = (
        "import os\nopen(os.environ['DRAY_STREAMS'] + '/events.00000000.jsonl', 'w').write('{\"v\":1, torn')"
    )
    world.write("torn.py", code)
    run = workspace.submit("torn.py")
    run.detach()
    followers = [Follower(workspace.store, run.id, ()) for _ in range(2)]

    for follower in followers:
        with workspace.connect("local") as connection:
            list(follower.events(connection, wait=True))

    assert len(workspace.store.broken(run.id)) == 1
    assert workspace.store.cursors(run.id)["1/events.00000000.jsonl"] == 12


def test_a_line_without_end_is_not_waited_for(world: World, workspace: Workspace) -> None:
    code = (
        "import dray, os\nwith open(os.environ['DRAY_STREAMS'] + '/events.00000000.jsonl', 'w') as file:\n"
        "    for _ in range(40): file.write('x' * 1000000)\n"
        "dray.log(loss=0.5)\n"
    )
    world.write("endless.py", code)

    run = workspace.submit("endless.py").wait()

    assert run.metrics["loss"].values == [0.5]
    aside = workspace.store.broken(run.id)
    assert sum(line.length for line in aside) == 40_000_000
    assert max(line.length for line in aside) < 10_000_000


def test_words_nested_without_end_are_set_aside(world: World, workspace: Workspace) -> None:
    code = "import os\nopen(os.environ['DRAY_STREAMS'] + '/state.jsonl', 'a').write('[' * 200000 + '\\n')"
    world.write("nested.py", code)

    assert workspace.submit("nested.py").wait().status == "completed"


def test_a_script_that_empties_its_log_is_told_so(world: World, workspace: Workspace) -> None:
    world.write("cut.sh", "echo before\nsleep 0.5\necho after > /dev/stderr\nsleep 0.5\n")

    run = workspace.submit("cut.sh").wait()

    assert any("emptied its own log" in note for note in run.record.notes)


def test_a_run_is_marked_as_being_submitted_before_others_can_see_it(
    world: World, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("one.py", "print(1)")
    marked: list[bool] = []

    class Watched(Store):
        def create_run(self, spec: RunSpec) -> None:
            marked.append(self.is_submitting(spec.id))
            super().create_run(spec)

    workspace._store = Watched.open(Path(world.home))
    workspace.submit("one.py").wait()

    assert marked == [True]
