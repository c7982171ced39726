"""Histories as DataFrames, with a real pandas; and without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from dray import Workspace
from dray.core.where_error import WhereError

SCRIPT = """
import sys, dray
lr = float(sys.argv[1])
dray.log_params(lr=lr, odd=None)
dray.tag(stage="dev")
for step in range(3):
    dray.log(loss=lr * step, step=step)
dray.log(free=float("nan"))
dray.log_table("t", [{"a": 1, "b": "x"}, {"a": 2, "b": None}])
"""


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A history with two runs, `low` and then `high`."""
    folder = tmp_path_factory.mktemp("frames")
    (folder / "train.py").write_text(SCRIPT)
    ws = Workspace(folder / "home")
    ws.submit(str(folder / "train.py"), "0.1", folder=folder, name="low").wait()
    ws.submit(str(folder / "train.py"), "0.5", folder=folder, name="high").wait()
    return ws


def test_metrics_are_a_tidy_frame(ws: Workspace) -> None:
    frame = ws.run("high").to_pandas()

    assert list(frame.columns) == ["name", "step", "time", "value"]
    assert [str(kind) for kind in frame.dtypes[["step", "value"]]] == ["Int64", "float64"]
    assert str(frame["time"].dt.tz) == "UTC"
    loss = frame[frame["name"] == "loss"]
    assert list(loss["step"]) == [0, 1, 2]
    assert list(loss["value"]) == [0.0, 0.5, 1.0]
    (free,) = frame[frame["name"] == "free"].itertuples()
    assert free.step is pandas.NA
    assert free.value != free.value
    assert abs(free.time - pandas.Timestamp.now("UTC")) < pandas.Timedelta(hours=1)


def test_runs_are_a_frame_with_their_params_tags_and_metrics(ws: Workspace) -> None:
    frame = ws.to_pandas().set_index("name")

    assert list(frame.index) == ["high", "low"]
    assert list(frame["status"]) == ["completed", "completed"]
    assert list(frame["exit_code"]) == [0, 0]
    assert list(frame["params.lr"]) == [0.5, 0.1]
    assert list(frame["tags.stage"]) == ["dev", "dev"]
    assert list(frame["metrics.loss"]) == [1.0, 0.2]
    assert (frame["ended"] >= frame["started"]).all()


def test_runs_can_be_chosen_by_an_expression(ws: Workspace) -> None:
    assert list(ws.to_pandas(where="metrics.loss < 0.5")["name"]) == ["low"]
    assert len(ws.to_pandas(where="params.lr > 7")) == 0
    assert list(ws.to_pandas(limit=1)["name"]) == ["high"]
    with pytest.raises(WhereError):
        ws.to_pandas(where="metrics.loss <")


def test_a_table_is_a_frame(ws: Workspace) -> None:
    frame = ws.run("low").tables()[0].to_pandas()

    assert list(frame.columns) == ["a", "b"]
    assert list(frame["a"]) == [1, 2]


def test_an_empty_history_is_an_empty_frame(tmp_path: Path) -> None:
    frame = Workspace(tmp_path).to_pandas()

    assert len(frame) == 0
    assert {"id", "name", "status"} <= set(frame.columns)


@pytest.mark.parametrize(
    "call", ["ws.to_pandas()", "ws.run('low').to_pandas()", "ws.run('low').tables()[0].to_pandas()"]
)
def test_without_pandas_there_is_a_sentence(ws: Workspace, call: str) -> None:
    code = (
        "import sys\nsys.modules['pandas'] = None\nfrom dray import DrayError, Workspace\n"
        f"ws = Workspace({str(ws.home)!r})\n"
        f"try:\n    {call}\nexcept DrayError as error:\n    print(error.code)\n    print(error)\n"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout

    assert said.startswith("pandas-missing\na DataFrame needs pandas\n")
    assert "  try: pip install pandas" in said
