"""What a follower believes of a machine."""

from __future__ import annotations

import os
from pathlib import Path

from dray.workspace.following import is_below


def test_a_path_is_believed_only_below_the_machines_folder(tmp_path: Path) -> None:
    inside = tmp_path / "machine" / "runs" / "log"
    inside.parent.mkdir(parents=True)
    inside.touch()
    (tmp_path / "secret").touch()
    os.symlink(tmp_path / "secret", inside.with_name("link"))

    assert is_below(str(inside), str(tmp_path / "machine"))
    assert not is_below(str(inside.with_name("link")), str(tmp_path / "machine"))
    assert not is_below(str(tmp_path / "machine" / ".." / "secret"), str(tmp_path / "machine"))
    assert not is_below(str(tmp_path / "machine-other"), str(tmp_path / "machine"))
