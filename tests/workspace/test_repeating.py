"""Restore, rerun and compare from Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.core.errors import UnknownName, UsageError
from dray.workspace import Run, Workspace
from dray.workspace.errors import FolderNotEmpty, SecretMissing
from tests.workspace.worlds import World


@pytest.fixture
def workspace(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.chdir(world.project)
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    with Workspace(world.home) as made:
        yield made


@pytest.fixture
def run(world: World, workspace: Workspace) -> Run:
    world.write("train.py", "import os, sys\nprint(sys.argv[1:], len(os.environ.get('TOKEN', '')))\n")
    return workspace.submit("train.py", "1").wait()


def test_words_are_kept_replaced_or_left_away(run: Run) -> None:
    assert run.rerun().wait().log() == b"['1'] 0\n"
    assert run.rerun("2", "3").wait().log() == b"['2', '3'] 0\n"
    assert run.rerun(args=()).wait().log() == b"[] 0\n"


def test_an_option_that_is_none_is_refused(run: Run) -> None:
    with pytest.raises(UnknownName, match="rerun option `tag`"):
        run.rerun(tag={})


def test_values_of_secrets_are_demanded(workspace: Workspace, run: Run) -> None:
    first = workspace.submit("train.py", secrets={"TOKEN": "open-sesame-1"}).wait()

    with pytest.raises(SecretMissing) as caught:
        first.rerun()
    assert caught.value.hint == "run.rerun(secrets={'TOKEN': ...})"
    assert len(workspace.runs()) == 2

    assert first.rerun(secrets={"TOKEN": "open-sesame-2"}).wait().log() == b"[] 13\n"
    with pytest.raises(UsageError, match="stands among the words"):
        first.rerun("open-sesame-3", secrets={"TOKEN": "open-sesame-3"})


def test_a_variable_that_becomes_a_secret_is_plain_no_more(workspace: Workspace, run: Run) -> None:
    first = workspace.submit("train.py", env={"TOKEN": "plain"}).wait()

    again = first.rerun(secrets={"TOKEN": "open-sesame-1"}).wait()

    assert (dict(again.record.spec.env), again.record.spec.secrets) == ({}, ("TOKEN",))


def test_restoring_tells_where_it_is_and_refuses_what_is_in_the_way(run: Run, tmp_path: Path) -> None:
    restored = run.restore(tmp_path / "again")

    assert (restored.folder, restored.files) == (tmp_path / "again", 1)
    with pytest.raises(FolderNotEmpty):
        run.restore(tmp_path / "again")
    assert run.restore(tmp_path / "again", force=True).moved_to == tmp_path / "again.before-1"


def test_runs_are_compared_as_plain_data(world: World, workspace: Workspace, run: Run) -> None:
    world.write("train.py", "import dray; dray.log(loss=0.5); dray.log_params(lr=0.1)\n")
    other = workspace.submit("train.py", tags={"a": "b"}).wait()

    comparison = run.compare(other)

    rows = {row.field: row.values for row in comparison.differences}
    assert rows["command"] == (["train.py", "1"], ["train.py"])
    assert (rows["tags.a"], rows["params.lr"]) == ((None, "b"), (None, 0.1))
    assert (rows["metrics.loss"], rows["metrics.loss.min"]) == ((None, 0.5), (None, 0.5))
    assert "status" not in rows
    ((change,),) = [difference.changes for difference in comparison.code()]
    assert (change.path, change.kind) == ("train.py", "changed")
    assert change.patch is not None
    assert b"\n+import dray; dray.log(loss=0.5)" in change.patch
    with pytest.raises(UsageError, match="cannot be compared"):
        run.compare()
