"""`dray compare`: what differs, side by side; the patch of the code is one that tools apply."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.cli.patches import for_terminal
from dray.cli.side_by_side import cells
from dray.workspace.code_diff import Side, patch
from dray.workspace.comparing import Row
from tests.cli.dray_shell import Shell

TRAIN = """
import dray, sys
lr = float(sys.argv[1])
dray.log_params(lr=lr, depth=4, note="one\\x1b[31m")
for step in range(3):
    dray.log({"loss": lr / (step + 1), "acc": 0.5}, step=step)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Three runs: `one` and `two` differ in words and code, `three` is as `one` but for a word. Only for reading."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "project").mkdir()
    shell = Shell(folder / "project", folder / "home")
    shell.write("train.py", TRAIN)
    shell.write("tool.sh", "echo\n").chmod(0o755)
    shell.write("gone.txt", "a\nb")
    shell.write("becomes", "file\n")
    shell.write("a b/ü\n.txt", "odd\n")
    (shell.folder / "blob.bin").write_bytes(b"\0" * 2000)
    (shell.folder / "link").symlink_to("train.py")
    assert shell.dray("submit", "--name", "one", "train.py", "0.10001").returncode == 0
    assert shell.dray("submit", "--name", "three", "train.py", "0.5").returncode == 0
    shell.write("train.py", TRAIN + "print('\x1b]0;title\x07new')")
    (shell.folder / "tool.sh").chmod(0o644)
    (shell.folder / "gone.txt").unlink()
    (shell.folder / "becomes").unlink()
    (shell.folder / "becomes").symlink_to("tool.sh")
    (shell.folder / "link").unlink()
    (shell.folder / "link").symlink_to("tool.sh")
    shell.write("a b/ü\n.txt", "odder\n")
    shell.write("new/empty.txt", "")
    (shell.folder / "hollow").mkdir()
    (shell.folder / "blob.bin").write_bytes(b"\0" * 3000)
    shell.write("big.txt", "x" * 1_100_000)
    done = shell.dray("submit", "--name", "two", "--tag", "stage=dev", "train.py", "0.10002")
    assert done.returncode == 0, done.stderr
    return shell


def table(output: bytes) -> dict[str, list[str]]:
    lines = [re.split(r"\s{2,}", line.rstrip()) for line in output.decode().splitlines()]
    return {line[0]: line[1:] for line in lines}


def test_only_what_differs_is_shown_and_the_rest_is_counted(ran: Shell) -> None:
    done = ran.dray("compare", "one", "two")

    shown = table(done.stdout)
    assert shown[""] == ["one", "two"]
    assert shown["command"] == ["... 0.10001", "... 0.10002"]
    assert shown["tags.stage"] == ["-", "dev"]
    assert {"snapshot", "params.lr", "metrics.loss"} <= set(shown)
    assert not {"params.depth", "metrics.acc", "status", "metrics.loss.min"} & set(shown)
    assert re.search(rb"\d+ equal rows hidden: --all shows them", done.stderr)


def test_numbers_that_differ_look_different(ran: Shell) -> None:
    shown = table(ran.dray("compare", "one", "two").stdout)

    assert shown["params.lr"] == ["0.10001", "0.10002"]


def test_long_paths_are_cut_where_they_are_the_same() -> None:
    row = Row("python", ("/home/ana/envs/one/bin/python", "/home/ana/envs/other/bin/python"))

    assert cells(row) == [".../one/bin/python", ".../other/bin/python"]
    assert cells(Row("python", ("/usr/bin/a", "/usr/bin/b"))) == ["/usr/bin/a", "/usr/bin/b"]
    assert cells(Row("python", ("/home/ana/envs/one", None))) == ["/home/ana/envs/one", "-"]


def test_all_shows_equal_rows_and_the_least_and_greatest_of_metrics(ran: Shell) -> None:
    done = ran.dray("compare", "one", "three", "--all")

    shown = table(done.stdout)
    assert shown["params.depth"] == shown["params.depth"][:1] * 2
    assert shown["metrics.loss.max"] == ["0.1", "0.5"]
    assert b"hidden" not in done.stderr
    assert b"\x1b" not in done.stdout


def test_json_has_every_row_with_its_values(ran: Shell) -> None:
    document = json.loads(ran.dray("compare", "one", "two", "three", "--json", "--code", "--env").stdout)

    rows = {row["field"]: row for row in document["rows"]}
    assert [run["name"] for run in document["runs"]] == ["one", "two", "three"]
    assert rows["params.lr"] == {"field": "params.lr", "values": [0.10001, 0.10002, 0.5], "equal": False}
    assert rows["params.depth"]["equal"] is True
    assert rows["command"]["values"][0] == ["train.py", "0.10001"]
    kinds = {change["path"]: change["kind"] for change in document["code"][0]["changes"]}
    assert kinds["tool.sh"] == "mode"
    assert kinds["gone.txt"] == "removed"
    assert document["code"][1]["changes"] == []
    assert {row["field"] for row in document["environments"]} >= {"python"}


def _restored(shell: Shell, run: str, folder: Path) -> Path:
    done = shell.dray("restore", run, "--to", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def _contents(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else (path.read_bytes(), path.stat().st_mode & 0o100)
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file()) and ".git" not in path.parts
    }


def test_git_applies_the_patch_to_the_first_and_has_the_other(ran: Shell, tmp_path: Path) -> None:
    one, two = _restored(ran, "one", tmp_path / "one"), _restored(ran, "two", tmp_path / "two")
    done = ran.dray("compare", "one", "two", "--code")

    subprocess.run(["git", "init", "-q", one], check=True)
    applied = subprocess.run(
        ["git", "-C", one, "apply", "-"], input=done.stdout, capture_output=True, check=False
    )

    assert applied.returncode == 0, applied.stderr
    after, wanted = _contents(one), _contents(two)
    # What no patch can say was named.
    for path, words in (
        ("blob.bin", "binary: blob.bin, 2.0 kB -> 3.0 kB"),
        ("big.txt", "big: big.txt, added, 1.1 MB"),
    ):
        assert f"not in the patch, {words}" in done.stderr.decode()
        after.pop(path, None)
        wanted.pop(path)
    assert after == wanted
    assert b"only: hollow/" in done.stderr


def test_patch_applies_it_too(shell: Shell, tmp_path: Path) -> None:
    if shutil.which("patch") is None:
        return
    for number in range(40):
        shell.write(f"f {number}.py", "".join(f"line {n}\n" for n in range(number)))
    assert shell.dray("submit", "--name", "one", "--", "true").returncode == 0
    for number in range(1, 40, 3):
        shell.write(f"f {number}.py", "".join(f"line {n * 2}\n" for n in range(number)) + "end")
    (shell.folder / "f 3.py").unlink()
    assert shell.dray("submit", "--name", "two", "--", "true").returncode == 0
    one, two = _restored(shell, "one", tmp_path / "one"), _restored(shell, "two", tmp_path / "two")

    done = shell.dray("compare", "one", "two", "--code")
    subprocess.run(["patch", "-s", "-p1", "-d", one], input=done.stdout, check=True)

    assert _contents(one) == _contents(two)


LINES = st.lists(
    st.sampled_from([b"a", b"b", b"", b"c\r", b"-x", b"+y", b"\xff", b"@@ -1 +1 @@"]), max_size=30
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, LINES, st.booleans(), st.booleans())
def test_any_two_texts_have_a_patch_that_leads_from_one_to_the_other(
    tmp_path_factory: pytest.TempPathFactory, one: list[bytes], other: list[bytes], ends: bool, also: bool
) -> None:
    old, new = b"\n".join(one) + b"\n" * ends, b"\n".join(other) + b"\n" * also
    folder = tmp_path_factory.mktemp("patched")
    (folder / "f").write_bytes(old)
    side = Side("100644", "x", 0)
    words = patch("f", side, side, old, new)

    if old != new:
        subprocess.run(["git", "apply", "-"], input=words, cwd=folder, check=True, capture_output=True)

    assert (folder / "f").read_bytes() == new


def test_a_text_that_would_take_long_is_still_compared_at_once(tmp_path: Path) -> None:
    old = b"".join(b"%d\n" % (n % 97) for n in range(150_000))
    new = old[:1000] + b"new\n" + old[500:-900] + b"x\n" + old[-1000:]
    (tmp_path / "f").write_bytes(old)
    side = Side("100644", "x", 0)

    words = patch("f", side, side, old, new)

    subprocess.run(["git", "apply", "-"], input=words, cwd=tmp_path, check=True)
    assert (tmp_path / "f").read_bytes() == new


def test_on_a_terminal_the_patch_has_colours_and_nothing_else_of_its_own(ran: Shell) -> None:
    with ran.terminal("compare", "one", "two", "--code") as terminal:
        assert terminal.ended() == 0
    shown = terminal.seen

    assert b"\x1b[32m+print('\\x1b]0;title\\x07new')\x1b[0m" in shown
    assert re.sub(rb"\x1b\[\d+m", b"", shown).count(b"\x1b") == 0
    with ran.terminal("compare", "one", "two", "--code", env={"NO_COLOR": "1"}) as plain:
        assert plain.ended() == 0
    assert b"\x1b" not in plain.seen


@settings(max_examples=200)
@given(st.binary())
def test_nothing_of_a_patch_commands_a_terminal(data: bytes) -> None:
    shown = for_terminal(data + b"\n", in_colour=False)

    text = shown.decode(errors="strict")
    assert all(c.isprintable() or c == "\n" for c in text)


def test_on_a_narrow_terminal_the_table_fits_and_many_runs_stand_below_each_other(ran: Shell) -> None:
    for number in range(6):
        ran.dray("rerun", "one", "-d", "--name", f"a long name of run {number}", "--", str(number))
    words = [f"a long name of run {number}" for number in range(6)]
    with ran.terminal("compare", "one", *words, "--all", columns=80) as terminal:
        assert terminal.ended() == 0

    lines = terminal.seen.decode().replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("a long na" in line for line in lines) >= 2


def test_environments_are_compared_package_by_package(shell: Shell) -> None:
    shell.write("train.py", "print(1)\n")
    shell.write("a.txt", "numpy==1.26.0\npandas\n")
    shell.write("b.txt", "numpy==1.26.4\nscipy>=1\npandas\n")
    for name in ("a", "b"):
        # Whether it can be built is of no concern here.
        shell.dray("submit", "--name", name, "--env", f"{name}.txt", "-d", "train.py")
        shell.dray("cancel", name)

    done = shell.dray("compare", "a", "b", "--env")

    shown = table(done.stdout)
    assert shown["numpy"] == ["==1.26.0", "==1.26.4"]
    assert shown["scipy"] == ["-", ">=1"]
    assert shown["file"] == ["a.txt", "b.txt"]
    assert "pandas" not in shown


def test_runs_that_are_the_same_are_told_so(shell: Shell) -> None:
    shell.write("train.py", "print(1)\n")
    for name in ("a", "b"):
        assert shell.dray("submit", "--name", name, "train.py").returncode == 0

    done = shell.dray("compare", "a", "b", "--code")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"the code of " in done.stderr
    assert b"no environment differs" in shell.dray("compare", "a", "b", "--env").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], b"RUN"),
        (["one"], b"one run alone cannot be compared"),
        (["one", "one"], b"is named twice"),
        (["one", "nosuch"], b"there is no run `nosuch`"),
    ],
)
def test_wrong_words_are_told(ran: Shell, words: list[str], said: bytes) -> None:
    done = ran.dray("compare", *words)

    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr
