"""What must not be imported, because every command would wait for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.dray_shell import Shell


def imported(shell: Shell, *words: str) -> set[str]:
    """The modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dray", *words],
        cwd=shell.folder,
        env=shell.env,
        capture_output=True,
        check=True,
    )
    lines = done.stderr.decode().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


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


def test_a_short_command_imports_no_rich(shell: Shell) -> None:
    assert "rich" not in imported(shell, "runs")


def test_nothing_is_written_by_asking_for_help(shell: Shell) -> None:
    shell.dray("submit", "--help")

    assert not shell.home.exists()
