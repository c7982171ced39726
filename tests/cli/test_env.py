"""`dray env`, `dray prepare`, and what a submit does with a lock: with environments that are really built, from wheels made here."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell

SCRIPT = "import tool\nprint('tool', tool.VERSION)\n"


def wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    """A package of one module, as a wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (
        f"Requires-Dist: {needs}\n" if needs else ""
    )
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"VERSION = '{version}'\n")
        file.writestr(f"{info}/METADATA", about)
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture
def wheels(shell: Shell) -> Path:
    """A folder of packages, the only one that builds know."""
    folder = shell.folder.parent / "wheels"
    wheel(folder, "tool", "1.0")
    shell.env.update({"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"})
    return folder


def test_an_environment_made_ahead_is_found_ready_by_the_submit(shell: Shell, wheels: Path) -> None:
    shell.write("train.py", SCRIPT)
    shell.write("requirements.txt", "tool\n")

    made = shell.dray("prepare")
    again = shell.dray("env", "build", "--json")
    done = shell.dray("submit", "train.py")

    assert made.returncode == 0, made.stderr
    assert b"; made in " in made.stderr
    assert b"it was there already" in again.stderr
    assert json.loads(again.stdout)["name"] == made.stdout.decode().strip()
    assert json.loads(again.stdout)["built_s"] is None
    assert done.stdout == b"tool 1.0\n"
    assert b"environment built" not in done.stderr
    assert len(json.loads(shell.dray("runs", "--json").stdout)) == 1  # what made it is no history


def test_a_lock_of_a_run_installs_the_same_again_whatever_is_newer(shell: Shell, wheels: Path) -> None:
    shell.write("train.py", SCRIPT)
    shell.write("requirements.txt", "tool\n")
    assert shell.dray("submit", "train.py").stdout == b"tool 1.0\n"
    lock = shell.dray("env", "lock").stdout
    shell.write("lock.txt", lock.decode())
    wheel(wheels, "tool", "2.0")

    frozen = shell.dray("submit", "train.py")
    newer = shell.dray("submit", "--refresh", "train.py")
    locked = shell.dray("submit", "--locked", "lock.txt", "train.py")

    assert frozen.stdout == b"tool 1.0\n"
    assert newer.stdout == b"tool 2.0\n"
    assert locked.stdout == b"tool 1.0\n", locked.stderr
    assert b"as locked in lock.txt" in locked.stderr


def test_why_names_the_lines_that_changed(shell: Shell, wheels: Path) -> None:
    wheel(wheels, "other", "3.0")
    shell.write("train.py", SCRIPT)
    shell.write("requirements.txt", "tool\n")
    assert shell.dray("submit", "train.py").returncode == 0
    first = shell.dray("env", "why")
    shell.write("requirements.txt", "tool==1.0\nother\n")
    assert shell.dray("submit", "train.py").returncode == 0

    changed = shell.dray("env", "why")
    plain = shell.dray("env", "why", "--json")

    assert (first.returncode, first.stdout) == (0, b"")
    assert b"is the first run" in first.stderr
    assert changed.stdout == b"- tool\n+ other\n+ tool==1.0\n"
    assert [one["after"] for one in json.loads(plain.stdout)["changes"]] == [None, "other", "tool==1.0"]


def test_environments_are_listed_shown_and_removed(shell: Shell, wheels: Path) -> None:
    shell.write("requirements.txt", "tool\n")
    name = shell.dray("prepare").stdout.decode().strip()

    listed = json.loads(shell.dray("env", "list", "--json").stdout)["built"]
    shown = shell.dray("env", "show", name[:12])
    wrong = shell.dray("env", "show", "zzz")
    removed = shell.dray("env", "rm", name[:12])

    assert [(one["name"], one["state"], one["packages"]) for one in listed] == [(name, "ready", 1)]
    assert b"tool     1.0" in shown.stdout
    assert wrong.returncode == 2
    assert name[:12].encode() in wrong.stderr
    assert removed.stdout.decode().strip() == name
    assert json.loads(shell.dray("env", "list", "--json").stdout)["built"] == []


def test_prune_takes_what_nobody_used_and_what_was_never_finished(shell: Shell, wheels: Path) -> None:
    shell.write("requirements.txt", "tool\n")
    used = shell.dray("prepare").stdout.decode().strip()
    shell.write("requirements.txt", "no-such-tool\n")
    failed = shell.dray("prepare")

    pruned = shell.dray("env", "prune")
    left = json.loads(shell.dray("env", "list", "--json").stdout)["built"]
    older = shell.dray("env", "prune", "--older-than", "0s", "--dry-run")

    assert failed.returncode == 125
    assert b"no-such-tool" in failed.stderr
    assert used.encode() not in pruned.stdout
    assert [one["name"] for one in left] == [used]
    assert used[:12].encode() in older.stdout


def test_a_failed_build_ahead_keeps_its_log(shell: Shell, wheels: Path) -> None:
    shell.write("requirements.txt", "no-such-tool\n")
    failed = shell.dray("prepare")
    run = json.loads(shell.dray("runs", "--json").stdout)[0]["id"]

    assert f"dray logs {run} --stream environment".encode() in failed.stderr
    assert b"no-such-tool" in shell.dray("logs", run, "--stream", "environment").stdout


def test_a_registered_environment_serves_every_folder(shell: Shell, wheels: Path) -> None:
    shell.write("requirements.txt", "tool\n")
    assert shell.dray("env", "register", "mine").stdout == b"mine:1\n"
    (shell.folder / "requirements.txt").unlink()
    shell.write("train.py", SCRIPT)

    done = shell.dray("submit", "--env", "mine", "train.py")
    from_run = shell.dray("env", "register", "mine", "--run", "@last")
    locked = shell.dray("submit", "--env", "mine:2", "train.py")

    assert done.stdout == b"tool 1.0\n", done.stderr
    assert b"environment: mine:1 (1 package; --env, registered)" in done.stderr
    assert from_run.stdout == b"mine:2\n", from_run.stderr
    assert locked.stdout == b"tool 1.0\n", locked.stderr
    assert b"mine:2" in shell.dray("env", "list").stdout
    assert shell.dray("env", "rm", "mine").stdout == b"mine:1\nmine:2\n"


def test_the_three_ways_give_the_same(shell: Shell, wheels: Path) -> None:
    shell.write("train.py", "import dray, tool\ndray.log(version=float(tool.VERSION))\n")
    shell.write("requirements.txt", "tool\n")
    built = shell.dray("submit", "train.py")
    python = json.loads(shell.dray("show", "--json").stdout)["environment"]["python"]

    existing = shell.dray("submit", "--python", python, "train.py")

    assert (built.returncode, existing.returncode) == (0, 0), existing.stderr
    assert f"python: {python} (from --python)".encode() in existing.stderr
    both = json.loads(shell.dray("runs", "--json").stdout)
    assert both[0]["metrics"] == both[1]["metrics"]


def test_a_run_without_an_environment_has_no_lock_and_no_why(shell: Shell) -> None:
    shell.write("hello.py", "print('hello')\n")
    assert shell.dray("submit", "hello.py").returncode == 0

    lock, why = shell.dray("env", "lock"), shell.dray("env", "why")

    assert lock.returncode == 1
    assert b"no environment of its own" in lock.stderr
    assert (why.returncode, why.stdout) == (0, b"")


def test_a_rerun_has_what_was_frozen_even_if_the_first_run_resolved_anew(shell: Shell, wheels: Path) -> None:
    shell.write("train.py", SCRIPT)
    shell.write("requirements.txt", "tool\n")
    assert shell.dray("submit", "--refresh", "train.py").stdout == b"tool 1.0\n"
    wheel(wheels, "tool", "2.0")

    assert shell.dray("rerun", "@last").stdout == b"tool 1.0\n"
