"""The walk: what travels, what never does, and what it says when something is in the way."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.snapshot import BadLimit, FolderTooBig, LeftOut, NoSuchFolder, explain_missing, plan, summary
from dray.snapshot.limit import ignore_line


def _fill(top: Path, *paths: str) -> None:
    for path in paths:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(os.fsencode(path))


def _big(path: Path, size: int) -> None:
    """A file of `size` bytes that takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_files_come_sorted_with_their_size_and_mode(code: Path) -> None:
    _fill(code, "b/z.py", "b.py", "a.sh")
    (code / "a.sh").chmod(0o755)

    found = plan(code)

    assert [(row[0], row[1], bool(row[5] & 0o100)) for row in found.files] == [
        ("a.sh", 4, True),
        ("b.py", 4, False),
        ("b/z.py", 6, False),
    ]
    assert found.bytes == 14


def test_a_folder_of_which_nothing_travels_is_still_there(code: Path) -> None:
    (code / "empty" / "inner").mkdir(parents=True)
    _fill(code, "data/x.bin", "full/y")
    (code / ".gitignore").write_text("*.bin\n")

    assert plan(code).dirs == ["data", "empty/inner"]


def test_what_belongs_to_tools_never_travels(code: Path) -> None:
    _fill(
        code, ".git/config", "a/__pycache__/x.pyc", ".mypy_cache/x", ".ruff_cache/x", ".pytest_cache/x",
        "n/.ipynb_checkpoints/x", ".venv/pyvenv.cfg", "envs/c/conda-meta/history", "outputs/model.pkl",
        "a/outputs/kept", "train.py",
    )  # fmt: skip

    found = plan(code)

    assert [row[0] for row in found.files] == ["a/outputs/kept", "train.py"]
    assert {(item.path, item.rule) for item in found.left_out} == {
        (".git", "dray (never travels)"),
        ("a/__pycache__", "dray (cache)"),
        (".mypy_cache", "dray (cache)"),
        (".ruff_cache", "dray (cache)"),
        (".pytest_cache", "dray (cache)"),
        ("n/.ipynb_checkpoints", "dray (cache)"),
        (".venv", "dray (virtual environment)"),
        ("envs/c", "dray (virtual environment)"),
        ("outputs", "dray (results of runs)"),
    }


def test_the_git_file_of_a_submodule_stays_at_home(code: Path) -> None:
    _fill(code, "sub/.git", "sub/x.py")

    assert [row[0] for row in plan(code).files] == ["sub/x.py"]


def test_drays_own_data_stays_at_home_wherever_it_lies(code: Path) -> None:
    _fill(code, "my/home/blobs/x", "my/other", "home/x")

    found = plan(code, home=code / "my" / "home")

    assert [row[0] for row in found.files] == ["home/x", "my/other"]
    assert found.left_out == [("my/home", "dray (its own data)", True)]


def test_sockets_pipes_and_devices_stay_at_home(code: Path) -> None:
    os.mkfifo(code / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(code)  # the path of a socket may have 107 bytes
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        found = plan(code)

    assert found.left_out == [("pipe", "dray (a pipe)", False), ("socket", "dray (a socket)", False)]


def test_a_link_that_stays_inside_keeps_its_words(code: Path) -> None:
    _fill(code, "a/b/file")
    (code / "a" / "near").symlink_to("b/file")
    (code / "a" / "up").symlink_to("../a/b")
    (code / "gone").symlink_to("nowhere")

    assert plan(code).links == [("a/near", "b/file"), ("a/up", "../a/b"), ("gone", "nowhere")]


def test_a_link_that_leads_out_is_absolute_and_one_that_leads_in_is_relative(
    tmp_path: Path, code: Path
) -> None:
    _fill(tmp_path, "outside/x")
    _fill(code, "in/y")
    (code / "in" / "out").symlink_to("../../outside/x")
    (code / "in" / "far").symlink_to("/etc/hosts")
    (code / "in" / "back").symlink_to(code / "in" / "y")

    assert plan(code).links == [
        ("in/back", "y"),
        ("in/far", "/etc/hosts"),
        ("in/out", str(tmp_path / "outside" / "x")),
    ]


def test_a_link_to_a_folder_is_not_entered_and_a_loop_is_a_link(code: Path) -> None:
    _fill(code, "a/x")
    (code / "a" / "loop").symlink_to("..")
    (code / "self").symlink_to("self")

    found = plan(code)

    assert [row[0] for row in found.files] == ["a/x"]
    assert found.links == [("a/loop", ".."), ("self", "self")]


def test_a_link_that_climbs_through_a_link_is_followed_as_the_kernel_would(
    tmp_path: Path, code: Path
) -> None:
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    _fill(tmp_path, "elsewhere/x")
    (code / "door").symlink_to(tmp_path / "elsewhere" / "deep")
    (code / "through").symlink_to("door/../x")

    assert dict(plan(code).links)["through"] == str(tmp_path / "elsewhere" / "x")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sets(
        st.binary(min_size=1, max_size=20).filter(lambda n: not set(n) & {0, 47} and n not in (b".", b"..")),
        min_size=1,
        max_size=5,
    )
)
def test_any_name_that_the_file_system_takes_travels(
    tmp_path_factory: pytest.TempPathFactory, names: set[bytes]
) -> None:
    code = tmp_path_factory.mktemp("names")
    for name in names:
        (code / os.fsdecode(b"x" + name)).write_bytes(name)

    assert {os.fsencode(row[0]) for row in plan(code).files} == {b"x" + name for name in names}


def test_long_paths_and_names_with_newlines_and_quotes_travel(code: Path) -> None:
    deep = "/".join(["d" * 60] * 8) + "/leaf"
    odd = ["new\nline", "quote\"'`$(x)", " lead and trail ", "tab\t", "\udcff\udc80"]
    _fill(code, deep, *odd)

    assert sorted([deep, *odd]) == [row[0] for row in plan(code).files]


def test_a_folder_that_may_not_be_read_is_told_with_the_line_that_drops_it(
    open_folder: Path, as_nobody: Callable[[Callable[[], Any]], Any]
) -> None:
    _fill(open_folder, "train.py", "closed/x", "[odd]/x")
    for name in ("closed", "[odd]"):
        (open_folder / name).chmod(0o700)

    kind, what, why, hint = as_nobody(lambda: plan(open_folder))

    assert kind == "Unreadable"
    assert what == "2 entries of the code folder cannot be read"
    assert "`[odd]/`, `closed/`" in why
    assert "    /\\[odd]/\n    /closed/" in hint


def test_a_folder_that_is_too_big_names_the_biggest_and_the_lines_that_drop_them(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRAY_SNAPSHOT_LIMIT", raising=False)
    _fill(code, "train.py", ".gitignore")
    for number in range(7):
        _big(code / "src" / "data" / f"{number}.bin", 5_000_000_000)
    for number, name in enumerate(["one *.bin", "two", "three", "four", "five"]):
        _big(code / name, 1_000_000_000 * (number + 1))

    with pytest.raises(FolderTooBig) as caught:
        plan(code)

    error = caught.value
    assert "50.0 GB" in error.what
    assert [(path, line) for path, _, line in error.biggest] == [
        ("src/data/", "/src/data/"),
        ("five", "/five"),
        ("four", "/four"),
        ("three", "/three"),
        ("two", "/two"),
    ]
    assert re.search(r"src/data/ +35\.0 GB", error.why or "")
    assert "`.gitignore`" in (error.hint or "")
    assert "DRAY_SNAPSHOT_LIMIT=51GB" in (error.hint or "")


def test_the_lines_of_the_error_make_the_folder_small_enough(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_SNAPSHOT_LIMIT", "1MB")
    for name in ("a b ", "c*", "[d]", "e\nf", "\udcff"):
        _big(code / name / "x", 600_000)

    with pytest.raises(FolderTooBig) as caught:
        plan(code)
    (code / ".drayignore").write_text("".join(f"{line}\n" for _, _, line in caught.value.biggest))

    assert [row[0] for row in plan(code).files] == [".drayignore"]


def test_what_weighs_next_to_nothing_is_not_offered_for_being_left_out(code: Path) -> None:
    _fill(code, "train.py")
    _big(code / "data" / "x", 50_000_000_000)

    with pytest.raises(FolderTooBig) as caught:
        plan(code)

    assert [path for path, _, _ in caught.value.biggest] == ["data/"]


def test_the_limit_can_be_raised(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _big(code / "x", 5_000_000_000)
    monkeypatch.setenv("DRAY_SNAPSHOT_LIMIT", "40GB")

    assert plan(code).bytes == 5_000_000_000


def test_a_limit_that_is_no_size_is_told(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAY_SNAPSHOT_LIMIT", "lots")

    with pytest.raises(BadLimit, match="`lots`"):
        plan(code)


def test_what_is_no_folder_is_told(code: Path) -> None:
    with pytest.raises(NoSuchFolder):
        plan(code / "nowhere")


def test_the_line_that_drops_a_path_has_its_signs_quoted() -> None:
    assert ignore_line("a [b]*?\\ ") == "/a \\[b]\\*\\?\\\\\\ "


def test_a_missing_path_is_explained_by_the_rule_of_it_or_of_a_parent() -> None:
    left_out = [
        LeftOut("data", ".gitignore:4 (data/)", True),
        LeftOut("a/b.log", ".gitignore:5 (*.log)", False),
    ]

    assert explain_missing(left_out, "data/train/x.csv") == ".gitignore:4 (data/)"
    assert explain_missing(left_out, "./a//b.log") == ".gitignore:5 (*.log)"
    assert explain_missing([("data", "rule")], "data/") == "rule"
    assert explain_missing(left_out, "data2/x") is None
    assert explain_missing(left_out, "a") is None


def test_the_summary_is_one_line_about_what_could_surprise() -> None:
    left_out = [
        LeftOut(".git", "dray (never travels)", True),
        LeftOut("a/x.log", ".gitignore:5 (*.log)", False),
        LeftOut("da\nta", ".gitignore:4 (da*)", True),
    ]

    assert summary(41, 312_000, left_out[:1]) == "41 files, 312 kB"
    assert (
        summary(1, 12, left_out)
        == "1 file, 12 bytes; left out: da\\nta/ by .gitignore:4, a/x.log by .gitignore:5"
    )
    assert (
        summary(1, 12, left_out, show=1) == "1 file, 12 bytes; left out: da\\nta/ by .gitignore:4 and 1 more"
    )
