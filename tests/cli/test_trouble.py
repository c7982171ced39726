"""A mistake of dray's own is one sentence, and a file for those who mend it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dray.cli.trouble import say_error
from dray.core.errors import LinkLost
from tests.cli.dray_shell import Shell

# A Workspace that breaks: written into a package that shadows the real one for this process only.
BROKEN = "class Workspace:\n    def __init__(self):\n        raise RuntimeError('something\\x1b[31m odd')"
BY_CTRL_C = " from KeyboardInterrupt()"


def run_broken(shell: Shell, how: str = BROKEN, **env: str) -> subprocess.CompletedProcess[bytes]:
    """`dray runs` with a workspace that has a mistake in it."""
    package = shell.home.parent / "broken"
    package.mkdir(exist_ok=True)
    (package / "workspace.py").write_text(how + "\n")
    start = (
        f"import sys, dray; dray.__path__.insert(0, {str(package)!r}); sys.argv = ['dray', 'runs']\n"
        "from dray.cli.door import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", start]
    return subprocess.run(command, env={**shell.env, **env}, capture_output=True, check=False)


def test_a_mistake_of_drays_own_is_one_sentence_and_a_file(shell: Shell) -> None:
    done = run_broken(shell)

    (report,) = (shell.home / "cache").iterdir()
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stderr
    assert str(report) in done.stderr.decode()
    assert "RuntimeError" in report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600


def test_dray_debug_shows_the_traceback(shell: Shell) -> None:
    assert b"Traceback" in run_broken(shell, DRAY_DEBUG="1").stderr
    assert b"Traceback" not in run_broken(shell, DRAY_DEBUG="0").stderr


def test_ctrl_c_that_python_takes_for_something_else_is_no_mistake(shell: Shell) -> None:
    done = run_broken(shell, BROKEN + BY_CTRL_C)

    assert done.returncode == 130
    assert done.stderr == b""


def test_an_error_with_words_of_a_machine_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say_error(LinkLost("it broke\x1b]0;title\x07", why="one\n    two\x1b[2J\r"))

    assert capsys.readouterr().err == "dray: it broke\\x1b]0;title\\x07\n  why: one\n    two\\x1b[2J\\r\n"


def test_the_report_lies_elsewhere_when_the_home_cannot_be_written(shell: Shell, tmp_path: Path) -> None:
    home = shell.write("a-file", "")

    done = run_broken(shell, DRAY_HOME=str(home), TMPDIR=str(tmp_path))

    assert done.returncode == 1
    assert any(name.startswith("traceback-") for name in os.listdir(tmp_path))
