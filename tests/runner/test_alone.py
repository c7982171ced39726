"""The runner by itself: on every Python at hand, without site-packages, and nothing newer than 3.8 in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dray
from dray.hosts.errors import HostPythonTooOld
from tests.runner.machines import Here

SOURCE = Path(dray.__file__).parent / "runner"


def _interpreters() -> dict[str, str]:
    """ "3.8" -> path, of every version of Python 3 on this machine."""
    found: dict[str, str] = {}
    folders = [
        *Path.home().glob(".pyenv/versions/*/bin"),
        *map(Path, os.environ["PATH"].split(":")),
        Path("/usr/bin"),
    ]
    for folder in folders:
        for program in sorted(folder.glob("python3*")) if folder.is_dir() else []:
            if program.name.removeprefix("python3").replace(".", "").isdigit() or program.name == "python3":
                words = [str(program), "-ISc", "import sys; print('%d.%d' % sys.version_info[:2])"]
                asked = subprocess.run(words, capture_output=True, text=True, check=False)
                if asked.returncode == 0:
                    found.setdefault(asked.stdout.strip(), str(program))
    return found


PYTHONS = _interpreters()
OLD = [version for version in PYTHONS if int(version.split(".")[1]) < 8]


@pytest.mark.parametrize("version", sorted(set(PYTHONS) - set(OLD)))
def test_the_runner_works_on_every_python_at_hand(here: Here, version: str) -> None:
    here.python = PYTHONS[version]
    heard = here.run("import dray; dray.log(x=1); print('hello')")

    assert heard.log == b"hello\n"
    assert heard.kind == "done"


@pytest.mark.parametrize("version", OLD)
def test_an_older_python_is_refused_with_a_sentence(here: Here, version: str) -> None:
    here.python = PYTHONS[version]
    with (
        pytest.raises(HostPythonTooOld, match=rf"{version}\.\d+; 3\.8 or newer"),
        here.connect() as connection,
    ):
        connection.call({"op": "probe"})


def test_the_runner_needs_no_python_newer_than_3_8() -> None:
    _vermin("-t=3.8-", SOURCE)


def test_the_first_program_parses_everywhere() -> None:
    """An old python3 has to get as far as the sentence that it is too old."""
    _vermin("-t=3.4-", SOURCE / "bootstrap.py")


def _vermin(oldest: str, what: Path) -> None:
    vermin = Path(sys.executable).with_name("vermin")
    words = [str(vermin), oldest, "--violations", "--no-tips", str(what)]
    checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_runner_imports_nothing_of_dray() -> None:
    for file in SOURCE.glob("*.py"):
        assert "import dray" not in file.read_text().replace("import dray_runner", ""), file
        assert "from dray" not in file.read_text().replace("from dray_runner", ""), file
