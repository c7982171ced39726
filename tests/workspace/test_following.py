"""What a follower believes of a machine."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dray import Workspace
from dray.workspace.following import is_below
from tests.workspace.worlds import World, wait_until

# A letter in two pieces, a title for the terminal, and a colour that is left on.
ODD = (
    "import os, time\n"
    "for piece in (b'caf\\xc3', b'\\xa9 \\x1b]0;title\\x07', b'\\x1b[31mred'):\n    os.write(1, piece); time.sleep(0.4)\n"
)
WAIT = "import dray\ndray.Workspace().submit('odd.py').wait(show_output=True{})\n"


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


@pytest.mark.parametrize("how", ["", ", timeout=60"])
def test_output_shown_from_python_is_whole_text_in_a_file_and_tame_on_a_terminal(
    world: World, how: str
) -> None:
    world.write("odd.py", ODD)
    command = [sys.executable, "-c", WAIT.format(how)]

    into_a_file = subprocess.run(
        command, cwd=world.project, env=world.env, stdout=subprocess.PIPE, check=True
    ).stdout
    ours, theirs = pty.openpty()
    subprocess.run(command, cwd=world.project, env=world.env, stdout=theirs, check=True)
    os.close(theirs)
    on_a_terminal = os.read(ours, 4096)
    os.close(ours)

    assert into_a_file == "caf\u00e9 \x1b]0;title\x07\x1b[31mred".encode()
    assert on_a_terminal == "caf\u00e9 \x1b[31mred\x1b[0m".encode()


def test_output_is_shown_before_the_time_is_over(world: World) -> None:
    world.write("slow.py", "import time\nprint('begun')\ntime.sleep(30)\n")
    code = (
        "import dray\nrun = dray.Workspace().submit('slow.py')\n"
        "try: run.wait(show_output=True, timeout=2)\n"
        "except TimeoutError as error: print(error)\n"
        "run.cancel(0)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=world.project, env=world.env, stdout=subprocess.PIPE, check=True
    )

    first, second = done.stdout.decode().splitlines()
    assert first == "begun"
    assert "is still running after 2 s" in second


def test_more_than_there_is_time_for_is_taken_in_bit_by_bit(world: World) -> None:
    world.write(
        "much.py",
        "import dray, time\n"
        "for step in range(150_000): dray.log(loss=step, step=step)\n"
        "open('outputs/logged', 'w').close()\ntime.sleep(60)\n",
    )
    run_id = world.dray("submit", "-d", "--name", "much", "much.py").out.decode().strip()
    wait_until(lambda: list(world.home.glob("machine/*/runs/*/code/outputs/logged")), 60)

    with Workspace(world.home) as workspace:
        seen, said = [0], []
        while seen[-1] < 149_999:
            workspace.refresh(0.3)
            said += workspace.warnings
            step = workspace.store.latest([run_id])[run_id].get("loss", (0.0, 0))[1]
            assert step is not None
            seen.append(step)
            assert len(seen) < 200
        metrics = workspace.store.metrics(run_id)
        workspace.run(run_id).cancel(0)

    assert seen == sorted(seen)
    assert list(metrics["loss"].steps) == list(range(150_000))
    assert set(said) <= {
        "local: there was more to read than 0.3 s allow",
        "local: this machine did not answer within 0.3 s",
    }
