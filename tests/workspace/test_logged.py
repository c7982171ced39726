"""Tables and pictures as objects, and what a hostile machine could say of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray import DrayError, Workspace
from dray.workspace.errors import CannotWrite
from dray.workspace.logged import file_names

SCRIPT = """
import dray
dray.log_table("t", [{"a": 1, "b": 2}], step=4)
dray.log_image("p", b"GIF89a and so on", step=5)
"""


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    (tmp_path / "train.py").write_text(SCRIPT)
    return Workspace(tmp_path / "home")


def test_a_table_has_columns_and_rows(ws: Workspace, tmp_path: Path) -> None:
    (table,) = ws.submit(str(tmp_path / "train.py"), folder=tmp_path).wait().tables()

    assert (table.name, table.step, table.columns, table.rows) == ("t", 4, ["a", "b"], [[1, 2]])
    assert json.loads(json.dumps(table.to_json()))["rows"] == [[1, 2]]


def test_a_picture_can_be_had_and_saved(ws: Workspace, tmp_path: Path) -> None:
    (image,) = ws.submit(str(tmp_path / "train.py"), folder=tmp_path).wait().images()

    assert (image.name, image.step, image.format, image.size) == ("p", 5, "gif", 16)
    assert image.bytes == b"GIF89a and so on"
    assert image.save(tmp_path / "new" / "picture.gif").read_bytes() == image.bytes
    assert image.save(tmp_path) == tmp_path / "p-5.gif"


def test_saving_replaces_nothing_else(ws: Workspace, tmp_path: Path) -> None:
    (image,) = ws.submit(str(tmp_path / "train.py"), folder=tmp_path).wait().images()
    mine = tmp_path / "mine.gif"
    mine.write_text("mine")

    with pytest.raises(CannotWrite, match="a different file"):
        image.save(mine)

    assert mine.read_text() == "mine"
    assert image.save(mine, force=True).read_bytes() == image.bytes
    assert image.save(mine) == mine


@pytest.mark.parametrize(
    "stream", ["log.script", "state.jsonl", "media.../../x", "media.00.png/../../../x", "media.0123.png"]
)
def test_what_is_no_picture_cannot_be_read_as_one(ws: Workspace, tmp_path: Path, stream: str) -> None:
    event = {
        "v": 1,
        "seq": 1,
        "t": 1.0,
        "type": "image",
        "data": {"name": "p", "step": 1, "stream": stream, "bytes": 9},
    }
    (tmp_path / "forge.py").write_text(
        "import glob, os\nprint('secret words')\n"
        f"open('../attempts/1/streams/events.0123abcd.jsonl', 'w').write({json.dumps(event)!r} + '\\n')\n"
    )

    (image,) = ws.submit(str(tmp_path / "forge.py"), folder=tmp_path).wait().images()

    assert image.size == 0
    with pytest.raises(DrayError, match="is not here"):
        image.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Named(NamedTuple):
    """What has a name and a step."""

    name: str
    step: int | None


@given(st.lists(st.tuples(st.text(max_size=200), st.none() | st.integers(-(2**63), 2**63 - 1)), max_size=8))
def test_any_names_become_different_plain_file_names(things: list[tuple[str, int | None]]) -> None:
    names = file_names([Named(*thing) for thing in things], ["png"] * len(things))

    assert len({name.casefold() for name in names}) == len(things)
    for name in names:
        assert name.isprintable()
        assert not name.startswith(".")
        assert "/" not in name
        assert len(name.encode()) < 200
