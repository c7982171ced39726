"""Ignore rules: what stays at home, compared with real git on random trees and patterns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dray.snapshot import plan
from dray.snapshot.patterns import loose, parse_line
from tests.snapshot.repositories import Git

_ALL = ["a", "b", "ab", "ba", "a.c", "b.c", ".a", "a b", "a ", "[a]", "!a", "#a", "a*", "a\nb", "x-1"]
_NAMES = st.sampled_from(_ALL)
_OFTEN = st.sampled_from(
    ["a", "b", "ab", "a.c"]
)  # few names, so that patterns hit and folders and files share them
_PATHS = st.lists(st.one_of(_OFTEN, _OFTEN, _NAMES), min_size=1, max_size=4).map("/".join)
_GLOBS = st.one_of(
    _NAMES.filter(lambda n: "\n" not in n),
    st.text(alphabet="ab.*?c !#x-1", min_size=1, max_size=4),
    st.sampled_from(
        ["*", "**", "***", "*.c", "a*", "?", "??", "*a*", "a**b", "a\\ ", "a\\*", "\\!a", "\\#a", "a\\"]
    ),
    st.sampled_from(
        ["[ab]", "[!a]", "[^b]", "[a-b]*", "*[c]", "*.[ac]", "[", "a[", "\\[a]", "x-[0-9]", "[]a]*", "[.]a"]
    ),
)
_PATTERNS = st.builds(
    lambda bang, lead, segments, tail: bang + lead + "/".join(segments) + tail,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/", "**/", "/**/"]),
    st.lists(st.one_of(_OFTEN, _GLOBS), min_size=1, max_size=3),
    st.sampled_from(["", "", "/", "/", "/**", "/*", " ", "\r"]),
)
# A slash within a bracket is a difference that patterns.py admits.
_PATTERNS = _PATTERNS.filter(lambda pattern: re.search(r"\[[^\]]*/", pattern) is None)
_IGNORE_FILES = st.lists(
    st.one_of(_PATTERNS, _PATTERNS, st.sampled_from(["", "# a", "/", "!", "!/", "//"])), max_size=6
)


def _build(top: Path, paths: list[str], rules: dict[str, list[str]]) -> None:
    for path in paths:
        file = top / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.is_dir():
                file.write_bytes(b"x")
        except (FileExistsError, NotADirectoryError):  # `a` is a file already, so there is no `a/b`
            continue
    for folder, lines in rules.items():
        if (top / folder).is_dir() and lines:
            (top / folder / ".gitignore").write_bytes("\n".join(lines).encode())


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(_PATHS, min_size=1, max_size=12),
    st.dictionaries(st.sampled_from(["", "", "a", "ab", "a/b", "b"]), _IGNORE_FILES, min_size=1),
)
@example(["a/b", "b/a"], {"": ["a/"]})
@example(["a/b", "a/c"], {"": ["a/**", "!a/b"]})
@example(["a/b", "b"], {"": ["/*", "!/a/"]})
@example(["a/b/c", "x/y"], {"": ["**/b", "x[!a]y"]})
def test_the_same_files_travel_as_git_would_add(
    git: Git, paths: list[str], rules: dict[str, list[str]]
) -> None:
    git.clear()
    _build(git.top, paths, rules)

    found = plan(git.top)

    assert [row[0] for row in found.files] == git.travelling(git.top)
    for item in found.left_out:
        if not item.rule.startswith("dray ("):
            assert item.rule == git.verdict(item.path)


@pytest.fixture(scope="module")
def thicket(tmp_path_factory: pytest.TempPathFactory) -> Git:
    """A repository in which every name is there at three depths, as a file here and as a folder there."""
    git = Git(tmp_path_factory.mktemp("thicket"))
    top = git.top
    for name in (*_ALL, *(f"{folder}/{name}" for folder in ("a", "ab", "a b", "[a]") for name in _ALL)):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        if name.rpartition("/")[2] in ("a", "ab", "a b", "[a]") and name.count("/") == 0:
            continue
        if name.rpartition("/")[2] in ("b", "a.c") and name.count("/") == 1:
            (top / name).mkdir()
            for leaf in _ALL:
                (top / name / leaf).write_bytes(b"")
        else:
            (top / name).write_bytes(b"")
    return git


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["", "", "a", "a/b", "ab"]), _IGNORE_FILES, min_size=1))
@example({"": ["a/"]})
def test_every_line_decides_as_in_git_in_a_folder_full_of_names(
    thicket: Git, rules: dict[str, list[str]]
) -> None:
    for folder in ("", "a", "a/b", "ab"):
        (thicket.top / folder / ".gitignore").write_bytes("\n".join(rules.get(folder, [])).encode())

    found = plan(thicket.top)

    assert [row[0] for row in found.files] == thicket.travelling(thicket.top)
    for item in found.left_out[:4]:
        assert item.path == ".git" or item.rule == thicket.verdict(item.path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(_PATHS, min_size=1, max_size=8),
    st.dictionaries(st.sampled_from(["", "up", "up/code", "up/code/a"]), _IGNORE_FILES, min_size=1),
    _IGNORE_FILES,
)
def test_the_rules_of_the_repository_above_count_in_a_folder_below(
    git: Git, paths: list[str], rules: dict[str, list[str]], exclude: list[str]
) -> None:
    git.clear()
    code = git.top / "up" / "code"
    _build(git.top, ["up/code/" + path for path in paths], rules)
    (git.top / ".git" / "info" / "exclude").write_bytes("\n".join(exclude).encode())
    try:
        # git does not enter a folder that is ignored itself; dray was told to, and asks about what is in it.
        above_is_ignored = git.verdict("up") is not None or git.verdict("up/code") is not None

        found = plan(code)

        assert above_is_ignored or [row[0] for row in found.files] == git.travelling(code)
    finally:
        (git.top / ".git" / "info" / "exclude").write_bytes(b"")


@settings(deadline=None)
@given(_GLOBS, st.one_of(_NAMES, st.text(alphabet="abc.*x-1[]! \n", min_size=1, max_size=4)))
def test_a_name_that_matches_always_passes_the_quick_test(glob: str, name: str) -> None:
    pattern = parse_line(f"**/{glob}", 1)
    if pattern is None or not pattern.by_name or not pattern.matches(name):
        return

    kind, texts = loose(pattern.segments[0])

    assert {
        "name": lambda: name in texts,
        "suffix": lambda: name.endswith(tuple(texts)),
        "regex": lambda: re.fullmatch(texts[0], name, re.DOTALL) is not None,
    }[kind]()


def test_drayignore_goes_before_amlignore_and_that_before_gitignore(code: Path) -> None:
    for name in ("kept", "dray", "aml", "git"):
        (code / name).write_text("")
    travelling = []
    for name, ignored in ((".gitignore", "git"), (".amlignore", "aml"), (".drayignore", "dray")):
        (code / name).write_text(ignored + "\n")
        travelling.append({row[0] for row in plan(code).files if not row[0].startswith(".")})

    assert travelling == [{"kept", "dray", "aml"}, {"kept", "dray", "git"}, {"kept", "aml", "git"}]


def test_a_rule_is_told_with_its_file_its_line_and_its_pattern(git: Git) -> None:
    git.clear()
    code = git.top / "code"
    for name in ("a.log", "b.log", "in/c.log", "in/d.tmp"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("")
    (git.top / ".gitignore").write_text("\n/code/a.log\n")
    (code / ".gitignore").write_text("# logs\n\nb.*\n")
    (code / "in" / ".gitignore").write_text("*\n!.gitignore\n!*.log\n")

    found = plan(code)

    assert [(item.path, item.rule) for item in found.left_out] == [
        ("a.log", "../.gitignore:2 (/code/a.log)"),
        ("b.log", ".gitignore:3 (b.*)"),
        ("in/d.tmp", "in/.gitignore:1 (*)"),
    ]
    assert [row[0] for row in found.files] == [".gitignore", "in/.gitignore", "in/c.log"]


def test_the_excludes_of_the_repository_hold_in_a_linked_worktree(git: Git, tmp_path: Path) -> None:
    git.clear()
    (git.top / "f").write_text("")
    git("add", "f")
    git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "f", ok=(0, 1))
    git("worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    exclude = git.top / ".git" / "info" / "exclude"
    exclude.write_text("secret\n")
    (tmp_path / "tree" / "secret").write_text("")
    try:
        found = plan(tmp_path / "tree")
    finally:
        exclude.write_text("")
        git("worktree", "remove", "--force", str(tmp_path / "tree"))
        git("rm", "-q", "--cached", "f")

    assert [row[0] for row in found.files] == ["f"]
    assert ("secret", ".git/info/exclude:1 (secret)", False) in found.left_out


def test_an_ignored_folder_is_not_entered(code: Path) -> None:
    (code / "data" / "deep").mkdir(parents=True)
    (code / "data" / ".gitignore").write_text("!x\n")
    (code / "data" / "deep" / "x").write_text("")
    (code / ".gitignore").write_text("data/\n")

    found = plan(code)

    assert found.left_out == [("data", ".gitignore:1 (data/)", True)]


def test_an_ignore_file_with_a_byte_order_mark_carriage_returns_and_bad_bytes_is_read(code: Path) -> None:
    for name in (b"a", b"b", b"\xff\xfe", b"c"):
        (code / name.decode("utf-8", "surrogateescape")).write_bytes(b"")
    (code / ".drayignore").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n\xff*\n")

    assert [row[0] for row in plan(code).files] == [".drayignore", "c"]


@pytest.mark.parametrize(
    ("rules", "needed"),
    [(None, False), ("data/\n*.log\n/build\n*.py[cod]\n", False), ("a?c\n", False), ("?.py\n", True)],
)
def test_pathspec_is_imported_only_when_a_name_comes_near_a_pattern_with_wildcards(
    code: Path, rules: str | None, needed: bool
) -> None:
    for name in ("x.py", "y.log", "data"):
        (code / name).write_text("")
    if rules is not None:
        (code / ".gitignore").write_text(rules)
    program = (
        "import sys; from dray.snapshot import plan; plan(sys.argv[1]); print('pathspec' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program, code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == str(needed)
