"""GPUs on the command line: asked for, waited for, shown. The driver is the tests' own library."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell
from tests.gpu.fake import FakeNvml

SEEN = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
SLEEPS = "import time; time.sleep(300)"
B = "GPU-b1000000-0000-4000-8000-000000000000"


@pytest.fixture
def driver(shell: Shell, tmp_path: Path) -> FakeNvml:
    """Two GPUs on this machine."""
    fake = FakeNvml(tmp_path / "driver")
    fake.gpu()
    fake.gpu(B)
    shell.env.update(fake.environ(), DRAY_LEASES=str(tmp_path / "leases"))
    shell.write("seen.py", SEEN)
    shell.write("sleeps.py", SLEEPS)
    return fake


def _asked(shell: Shell, *words: str) -> str:
    done = shell.dray("submit", *words, "seen.py")
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_a_run_sees_what_it_holds_and_nothing_else(shell: Shell, driver: FakeNvml) -> None:
    assert _asked(shell, "--gpus", "0") == "-1"
    assert _asked(shell, "--gpus", "1,") == B
    assert _asked(shell, "--gpus", "1,", "--gpu-ids", "index") == "1"
    assert _asked(shell, "--gpus", "all").count("GPU-") == 2
    assert _asked(shell, "--gpus", "0", "-e", f"CUDA_VISIBLE_DEVICES={B}") == "-1"
    assert _asked(shell, "--gpus", "1", "-e", "CUDA_VISIBLE_DEVICES=") == ""
    assert _asked(shell, "--gpus", "2", "-e", "CUDA_VISIBLE_DEVICES=1") == "1"
    for name in ("1", "0,1", B, B[:8], B.lower()):
        assert _asked(shell, "--gpus", "0,", "-e", f"CUDA_VISIBLE_DEVICES={name}").startswith("GPU-a")


def test_without_gpus_a_run_gets_the_default(shell: Shell, driver: FakeNvml) -> None:
    assert _asked(shell).startswith("GPU-a")
    shell.dray("compute", "update", "local", "--default-gpus", "0")
    assert _asked(shell) == "-1"


def test_the_users_own_choice_in_the_shell_counts(shell: Shell, driver: FakeNvml) -> None:
    shell.env["CUDA_VISIBLE_DEVICES"] = "1"
    assert _asked(shell) == B
    assert _asked(shell, "--gpus", "0,").startswith("GPU-a")
    shell.env["CUDA_VISIBLE_DEVICES"] = "9"  # of another machine
    assert _asked(shell).startswith("GPU-a")
    shell.env["CUDA_VISIBLE_DEVICES"] = ""
    assert _asked(shell) in ("", "-1")


def test_a_run_inside_a_run_asks_anew_and_is_told_what_it_cannot_get(shell: Shell, driver: FakeNvml) -> None:
    shell.write(
        "outer.py",
        "import os, subprocess, sys\n"
        f"words = [{sys.executable!r}, '-m', 'dray', 'submit', 'seen.py']\n"
        f"subprocess.run(words, env=dict(os.environ, DRAY_HOME={str(shell.home / 'inner')!r}))",
    )
    none = shell.dray("submit", "--gpus", "0", "outer.py")
    assert b"GPU-a" in none.stdout
    one = shell.dray("submit", "--gpus", "1", "outer.py")
    assert B.encode() in one.stdout
    assert b"holds it will not get: --gpus 0 for one of the two" in one.stdout
    assert b"holds it will not get" not in none.stdout


def test_a_machine_without_gpus_hides_nothing(shell: Shell) -> None:
    shell.write("seen.py", SEEN)
    assert _asked(shell, "-e", "CUDA_VISIBLE_DEVICES=mine") == "mine"
    shell.dray("compute", "update", "local", "--default-gpus", "0")
    assert _asked(shell, "-e", "CUDA_VISIBLE_DEVICES=mine") == "mine"
    assert _asked(shell, "--gpus", "0", "-e", "CUDA_VISIBLE_DEVICES=mine") == "-1"


def test_a_run_that_waits_says_for_what_and_who_has_it(shell: Shell, driver: FakeNvml) -> None:
    holder = shell.detached("--gpus", "2", "sleeps.py")
    with shell.start("submit", "seen.py") as waiting:
        assert waiting.stderr
        seen = b""
        while b"place" not in seen:
            seen += waiting.stderr.readline()
        shown = shell.dray("compute", "show", "local").stdout.decode()
        document = json.loads(shell.dray("compute", "show", "local", "--json").stdout)
        shell.dray("cancel", holder)
        out, _ = waiting.communicate(timeout=30)
    assert "queued: waiting for 1 GPU (default of local; `--gpus 0` starts now)" in seen.decode()
    assert "place 1 of 1; GPU 0: root, began" in seen.decode()
    assert f"root, run {holder}" in shown
    assert [one["wants"] for one in document["gpus"]["queue"]] == ["1 GPU"]
    assert out.startswith(b"GPU-a")


def test_a_rerun_asks_for_the_same_or_for_what_is_said(shell: Shell, driver: FakeNvml) -> None:
    _asked(shell, "--gpus", "2")
    assert shell.dray("rerun", "@last").stdout.count(b"GPU-") == 2
    assert shell.dray("rerun", "@last", "--gpus", "1").stdout.count(b"GPU-") == 1


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (
            ("--gpus", "3"),
            125,
            "3 GPUs are asked for, and the machine has 2 x NVIDIA A100-SXM4-80GB (0, 1; 80 GiB)",
        ),
        (("--gpus", "h100:1"), 125, "1 h100 GPU is asked for"),
        (("--gpu-memory", "200GB"), 125, "1 GPU with 200 GB is asked for"),
        (("--gpus", "7,"), 125, "`7` is no GPU of this machine"),
        (("--cpus", "9999"), 125, "9999 cores are asked for, and the machine has"),
        (("--gpus", "two:three"), 2, "a100:1"),
        (("--gpus", "1", "--share"), 2, "--share --gpu-memory 20GB"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    shell: Shell, driver: FakeNvml, words: tuple[str, ...], code: int, told: str
) -> None:
    done = shell.dray("submit", *words, "seen.py")
    assert done.returncode == code
    assert told in done.stderr.decode()
    assert not done.stdout


def test_watching_shows_who_comes_and_goes(shell: Shell, driver: FakeNvml) -> None:
    with shell.terminal("compute", "show", "local", "--watch", columns=140) as terminal:
        terminal.until(b"free")
        holder = shell.detached("--gpus", "1", "sleeps.py")
        terminal.until(f"run {holder}".encode())
        terminal.press(b"\x03")
        assert terminal.ended() == 130
    shell.dray("cancel", holder)
