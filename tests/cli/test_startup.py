"""What must not be imported, because every command would wait for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.dray_shell import Shell

# Not -X importtime, which does not tell of modules that are imported by name.
LISTING = """
import sys
from dray.cli import door
sys.argv = ["dray", *sys.argv[1:]]
code = door._answer()
sys.stderr.write("\\n".join(["", *sys.modules]))
sys.exit(code)
"""


def imported(shell: Shell, *words: str) -> set[str]:
    """The modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-c", LISTING, *words],
        cwd=shell.folder,
        env=shell.env,
        capture_output=True,
        check=True,
    )
    return set(done.stderr.decode().splitlines())


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_version_and_help_import_neither_click_nor_any_command(shell: Shell, word: str) -> None:
    modules = imported(shell, word)

    ours = {module for module in modules if module.startswith("dray.")}
    assert ours <= {"dray.cli", "dray.cli.door", "dray.cli.commands"}
    assert not modules & {"click", "rich", "sqlite3", "argparse", "json", "pathlib", "subprocess"}


def test_the_help_of_a_command_needs_no_history_and_no_other_command(shell: Shell) -> None:
    modules = imported(shell, "submit", "--help")

    assert not modules & {
        "dray.workspace",
        "dray.store",
        "sqlite3",
        "rich",
        "dray.cli.runs",
        "dray.cli.follow",
    }


def test_a_plain_submit_imports_nothing_for_containers_environments_or_drivers(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')")

    modules = imported(shell, "submit", "-c", "local", "hello.py")

    assert "dray.workspace.submission" in modules
    assert not modules & {
        "dray.environments.files",
        "dray.environments.gathering",
        "dray.gpu.builds",
        "dray.gpu.tables",
        "dray.runner.containers.engines",
        "dray.workspace.doctor",
        "dray.workspace.logged",
        "dray.workspace.preflight",
        "rich",
        "socket",
        "tempfile",
        "traceback",
        "yaml",
    }


def test_a_short_command_imports_no_rich(shell: Shell) -> None:
    assert "rich" not in imported(shell, "runs")


def test_nothing_is_written_by_asking_for_help(shell: Shell) -> None:
    shell.dray("submit", "--help")

    assert not shell.home.exists()
