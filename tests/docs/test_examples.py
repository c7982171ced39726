"""What the pages tell a reader to type works, and prints what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.console import Command, File, examples, matches

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/tutorial.md", "docs/how-to/local.md", "docs/how-to/history.md")


@pytest.fixture
def shell(tmp_path: Path) -> Mapping[str, str]:
    """The variables of a reader's shell: `dray` is there, `python` is one without it, and the history is empty."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    base: str = getattr(sys, "_base_executable", sys.executable)
    (bin_folder / "python").symlink_to(base)
    dray = bin_folder / "dray"
    dray.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -m dray "$@"\n')
    dray.chmod(0o755)
    strange = ("VIRTUAL_ENV", "CONDA_PREFIX", "DRAY_COMPUTE", "PYTHONPATH", "COLUMNS")
    env = {name: value for name, value in os.environ.items() if name not in strange}
    return env | {
        "PATH": f"{bin_folder}:{env['PATH']}",
        "DRAY_HOME": str(tmp_path / "dray-home"),
        "HOME": str(tmp_path),
        "GIT_CEILING_DIRECTORIES": str(tmp_path.parent),
    }


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_prints_what_the_page_says(
    page: str, shell: Mapping[str, str], tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    ran = 0

    for example in examples((ROOT / page).read_text()):
        if isinstance(example, File):
            project.joinpath(example.name).write_text(example.text)
            continue
        printed = _run(example, project, shell)
        ran += 1
        assert matches(example.promised, printed), (
            f"{page}:{example.line}: `{example.words}` printed\n{printed}\nand the page promises\n"
            + "\n".join(example.promised)
        )

    assert ran, f"{page} has no example"


def _run(command: Command, project: Path, env: Mapping[str, str]) -> str:
    """What a terminal would show."""
    return subprocess.run(
        ["sh", "-c", command.words],
        cwd=project, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
    ).stdout  # fmt: skip
