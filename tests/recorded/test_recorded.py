"""Run folders written by every released version are read today as they were read then.

`tests/recorded/VERSION/` is one run folder without its code; `expected.json` what the history held of it when it was recorded.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dray import Workspace
from dray.core.spec import RunSpec

HERE = Path(__file__).parent
LATER = RunSpec("", "", "", ()).to_json()
VERSIONS = sorted(path.parent.name for path in HERE.glob("*/run.json"))


def read(version: str, folder: Path) -> str:
    """The history of that recorded run, made from nothing but its folder."""
    recorded = HERE / version
    run_id = json.loads((recorded / "run.json").read_text())["spec"]["id"]
    with Workspace(folder) as workspace:
        machine = workspace.describe("local")["machine"]["machine"]
        place = folder / "machine" / machine / "runs" / run_id
        shutil.copytree(recorded, place, ignore=shutil.ignore_patterns("expected.json"))
        (place / "lock").touch()
        workspace.rebuild()
        return json.dumps(workspace.store.export_state(run_id), indent=1, sort_keys=True) + "\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_of_an_earlier_version_is_read_as_it_was(version: str, tmp_path: Path) -> None:
    expected = json.loads((HERE / version / "expected.json").read_text())
    # What later versions ask of a run, this one had never heard of: there the defaults stand.
    expected["spec"] = {**LATER, **expected["spec"]}

    assert json.loads(read(version, tmp_path)) == expected


def test_the_first_version_is_recorded() -> None:
    assert "0.1.0" in VERSIONS
