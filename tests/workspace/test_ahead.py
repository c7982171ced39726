"""The runner that is started before it is needed: used for what it fits, and for nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray import Workspace
from dray.targets import LocalTarget
from dray.workspace import ahead


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home as a shell would name it."""
    monkeypatch.setenv("DRAY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DRAY_COMPUTE", raising=False)
    yield tmp_path / "home"
    while ahead._waiting:
        ahead._waiting.pop().connection.close()


def test_it_answers_like_any_other_and_is_taken_once(home: Path) -> None:
    ahead.start("local", ())

    with Workspace() as workspace:
        connection = ahead.take(workspace.target("local"), ())
        assert connection is not None
        with connection:
            assert connection.call({"op": "list"}) == {"runs": [], "never": []}
        assert ahead.take(workspace.target("local"), ()) is None


def test_nothing_is_written_before_it_is_asked_something(home: Path) -> None:
    ahead.start(None, ())

    ahead._waiting[0].connection.has_news(10)
    assert not home.exists()


def test_a_submit_uses_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')")
    ahead.start("local", ())
    expected = ahead._waiting[0].connection

    with Workspace() as workspace:
        run = workspace.submit("hello.py", cwd=str(tmp_path), compute="local", environment="none")
        assert run._connection is expected
        assert str(run.wait().status) == "completed"


@pytest.mark.parametrize("compute", ["gpu1", None])
def test_it_is_not_started_for_another_machine(
    home: Path, compute: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_COMPUTE", "gpu2")
    ahead.start(compute, ())
    assert not ahead._waiting


def test_it_is_not_started_when_a_default_was_chosen(home: Path) -> None:
    (home / "computes").mkdir(parents=True)
    (home / "computes" / "default").write_text("gpu1\n")
    ahead.start(None, ())
    assert not ahead._waiting


def test_one_for_another_home_is_let_go(home: Path, tmp_path: Path) -> None:
    ahead.start("local", ())
    assert ahead.take(LocalTarget(tmp_path / "other"), ()) is None
    assert not ahead._waiting


def test_one_that_saw_a_secret_is_let_go(home: Path) -> None:
    ahead.start("local", ())
    assert ahead.take(LocalTarget(home), ("HF_TOKEN",)) is None


def test_one_that_began_with_other_variables_is_let_go(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.start("local", ())
    monkeypatch.setitem(os.environ, "LATER", "1")
    assert ahead.take(LocalTarget(home), ()) is None
