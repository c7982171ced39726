"""Locks as uv and others write them: installed exactly, with nothing of this machine in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dray.environments import (
    CredentialsInFile,
    EnvironmentFileError,
    EnvironmentSyntax,
    LockOutdated,
    UnsupportedRequirement,
    Wish,
    read_environment,
)
from dray.environments.locks import read_frozen

PYLOCK = """# written by: tool --in /home/ana/x
lock-version = "1.0"
created-by = "uv"
requires-python = ">=3.10"

[[packages]]
name = "six"
version = "1.17.0"
"""

PROJECT = """
[project]
name = "thing"
version = "1"
requires-python = ">=3.10"
dependencies = ["six", "inner"]
[project.optional-dependencies]
more = ["idna"]
[tool.uv.sources]
inner = {path = "inner", editable = true}
[build-system]
requires = ["flit_core"]
build-backend = "flit_core.buildapi"
"""
INNER = """
[project]
name = "inner"
version = "1"
dependencies = ["attrs"]
[build-system]
requires = ["flit_core"]
build-backend = "flit_core.buildapi"
"""


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locked")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "inner").mkdir()
    (folder / "inner" / "pyproject.toml").write_text(INNER)
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "lock", "--quiet"], cwd=folder, check=True)
    return folder


class TestUvLock:
    def test_it_is_a_lock_of_everything_but_the_projects_own_code(self, locked: Path) -> None:
        environment = read_environment(locked / "uv.lock")

        assert environment.lock_kind == "pylock"
        assert 'name = "six"' in str(environment.lock)
        assert 'name = "attrs"' in str(environment.lock)
        assert 'name = "thing"' not in str(environment.lock)
        assert str(locked) not in str(environment.lock)
        assert environment.editable == (".", "inner")
        assert environment.python == ">=3.10"
        assert environment.packages == ()

    def test_an_extra_is_in_it_when_asked_for(self, locked: Path) -> None:
        plain, more = (
            read_environment(locked / "uv.lock", Wish(extras=extras)) for extras in ((), ("more",))
        )

        assert 'name = "idna"' not in str(plain.lock)
        assert 'name = "idna"' in str(more.lock)

    def test_the_same_lock_has_the_same_digest(self, locked: Path) -> None:
        assert read_environment(locked / "uv.lock").digest == read_environment(locked / "uv.lock").digest

    def test_one_that_does_not_fit_its_project_is_refused(self, locked: Path, tmp_path: Path) -> None:
        (tmp_path / "inner").mkdir()
        (tmp_path / "inner" / "pyproject.toml").write_text(INNER)
        (tmp_path / "pyproject.toml").write_text(PROJECT.replace('"six",', '"six>=1", "click",'))
        (tmp_path / "uv.lock").write_bytes((locked / "uv.lock").read_bytes())

        with pytest.raises(LockOutdated, match="does not fit") as caught:
            read_environment(tmp_path / "uv.lock")

        assert caught.value.hint == "uv lock"

    def test_one_that_is_broken_or_alone(self, tmp_path: Path) -> None:
        (tmp_path / "uv.lock").write_text("version = \n")
        with pytest.raises(EnvironmentSyntax, match="line 1, column 11"):
            read_environment(tmp_path / "uv.lock")
        (tmp_path / "uv.lock").write_text("version = 1\n")
        with pytest.raises(LockOutdated, match="not beside it"):
            read_environment(tmp_path / "uv.lock")


class TestPylock:
    def test_it_is_taken_as_it_is_without_its_opening_remarks(self, tmp_path: Path) -> None:
        (tmp_path / "pylock.toml").write_text(PYLOCK)

        environment = read_environment(tmp_path / "pylock.toml")

        assert environment.lock == PYLOCK.partition("\n")[2]
        assert (environment.lock_kind, environment.python) == ("pylock", ">=3.10")

    @pytest.mark.parametrize(
        ("change", "kind", "said"),
        [
            (('lock-version = "1.0"', 'lock-version = "2.0"'), EnvironmentSyntax, "version 1"),
            (("[[packages]]", "[[package]]"), EnvironmentSyntax, "packages"),
            (('version = "1.17.0"', 'directory = {path = "lib"}'), UnsupportedRequirement, "--no-emit-local"),
            (('version = "1.17.0"', 'index = "https://ana:SECRET@h.example/s"'), CredentialsInFile, "line 8"),
        ],
    )
    def test_what_it_cannot_say(
        self, tmp_path: Path, change: tuple[str, str], kind: type[EnvironmentFileError], said: str
    ) -> None:
        (tmp_path / "pylock.toml").write_text(PYLOCK.replace(*change))
        with pytest.raises(kind, match=said) as caught:
            read_environment(tmp_path / "pylock.toml")

        assert "SECRET" not in str(caught.value)


class TestFrozen:
    def test_a_frozen_list_is_normalised_and_sorted(self, tmp_path: Path) -> None:
        path = tmp_path / "lock.txt"
        path.write_text(
            "# made by x\nSix==1.17.0\nfoo @ https://h.example/foo-1.whl\nattrs==25.1 --hash=sha256:ab\n"
        )

        assert read_frozen(path) == (
            "attrs==25.1 --hash=sha256:ab\nfoo @ https://h.example/foo-1.whl\nsix==1.17.0\n",
            "requirements",
            None,
        )

    @pytest.mark.parametrize("line", ["six", "six>=1", "six==1.*", "six!=1", "six==1,<2"])
    def test_a_line_that_is_not_exact_is_named(self, tmp_path: Path, line: str) -> None:
        (tmp_path / "lock.txt").write_text(f"idna==3.4\n{line}\n")
        with pytest.raises(EnvironmentSyntax, match="line 2"):
            read_frozen(tmp_path / "lock.txt")

    def test_what_dray_froze_itself_is_taken_as_it_is(self, tmp_path: Path) -> None:
        text = (
            "# dray: python 3.11.7\n# dray: platform linux x86_64\n# channel file:///c\n"
            "# conda file:///c/noarch/b-1-0.conda#ab\n# conda file:///c/noarch/a-1-0.conda#cd\nsix==1.17.0\n"
        )
        (tmp_path / "lock.txt").write_text(text)

        assert read_frozen(tmp_path / "lock.txt") == (text, "requirements", "3.11")

    def test_a_pylock_is_one_too_and_an_empty_file_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "pylock.toml").write_text(PYLOCK)
        (tmp_path / "lock.txt").write_text("# nothing\n")

        assert read_frozen(tmp_path / "pylock.toml")[1] == "pylock"
        with pytest.raises(EnvironmentSyntax, match="empty"):
            read_frozen(tmp_path / "lock.txt")
