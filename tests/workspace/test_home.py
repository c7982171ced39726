"""Where the history goes when nobody says where."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from dray.cli.trouble import _cache
from dray.workspace.errors import NoHome
from dray.workspace.home import default_home

NOBODYS_ID = 54321


def _as_a_user_without_a_home(ask: Callable[[], Path]) -> str:
    """What `ask` gives, or the name of what it raises, for a user that the system does not know."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with pytest.raises(KeyError):
        pwd.getpwuid(NOBODYS_ID)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for name in ("HOME", "XDG_DATA_HOME", "DRAY_HOME"):
                os.environ.pop(name, None)
            os.setuid(NOBODYS_ID)
            said = str(ask())
        except Exception as error:  # told by its name
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        return pipe.read().decode()


def test_a_user_without_a_home_is_told_so() -> None:
    assert _as_a_user_without_a_home(default_home) == NoHome.__name__


def test_a_user_without_a_home_gets_no_folder_that_is_called_tilde() -> None:
    assert _as_a_user_without_a_home(_cache).startswith("/")


def test_dray_home_comes_before_the_data_folder_and_that_before_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("DRAY_HOME", raising=False)
    assert default_home() == tmp_path / "home/.local/share/dray"

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_home() == tmp_path / "data/dray"

    monkeypatch.setenv("DRAY_HOME", "~/mine")
    assert default_home() == tmp_path / "home/mine"
