"""A pyproject.toml as an environment, and what is said when it names none or is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.core.errors import DrayError
from dray.core.spec import Environment
from dray.environments import (
    EnvironmentSyntax,
    NothingToInstall,
    UnsupportedRequirement,
    Wish,
    find_environment_file,
    read_environment,
)

PROJECT = """
[project]
name = "digits"
version = "1"
requires-python = ">=3.10, <3.13"
dependencies = ["Scikit_Learn >=1.3", "numpy"]
[project.optional-dependencies]
plots = ["matplotlib"]
all = ["digits[plots]", "six"]
[dependency-groups]
test = ["pytest", {include-group = "lint"}]
lint = ["ruff"]
"""


def project(
    folder: Path, text: str, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()
) -> Environment:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return read_environment(folder / "pyproject.toml", Wish(extras=extras, groups=groups))


class TestReading:
    def test_its_dependencies_and_its_python_are_the_environment(self, tmp_path: Path) -> None:
        environment = project(tmp_path, PROJECT)

        assert environment.packages == ("numpy", "scikit-learn>=1.3")
        assert environment.python == "<3.13,>=3.10"
        assert environment.editable == ()

    def test_extras_and_groups_are_taken_when_asked_for(self, tmp_path: Path) -> None:
        environment = project(tmp_path, PROJECT, extras=("ALL",), groups=("test",))

        assert environment.packages == ("matplotlib", "numpy", "pytest", "ruff", "scikit-learn>=1.3", "six")

    def test_the_python_that_the_folder_is_pinned_to_is_taken(self, tmp_path: Path) -> None:
        (tmp_path / ".python-version").write_text("3.11\n")

        assert project(tmp_path, PROJECT).python == "3.11"

    def test_a_project_that_is_a_package_is_imported_from_the_code(self, tmp_path: Path) -> None:
        environment = project(tmp_path, PROJECT + '[build-system]\nrequires = ["flit_core"]\n')

        assert environment.editable == (".",)

    def test_dependencies_that_setuptools_reads_from_a_file_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "needs.txt").write_text("six # why\n\nidna\n")
        text = '[project]\nname="a"\ndynamic=["dependencies"]\n[tool.setuptools.dynamic]\ndependencies={file="needs.txt"}\n'

        assert project(tmp_path, text).packages == ("idna", "six")

    def test_sources_of_uv_are_followed(self, tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "pyproject.toml").write_text('[project]\nname="near"\ndependencies=["attrs"]\n')
        environment = project(
            tmp_path,
            """
            [project]
            name = "a"
            dependencies = ["far>=1", "near", "odd ; python_version < '3.12'", "torch"]
            [tool.uv.sources]
            far = {git = "https://h.example/far.git", tag = "v1"}
            near = {path = "lib", editable = true}
            odd = {url = "https://h.example/odd-1-py3-none-any.whl"}
            torch = {index = "special"}
            [[tool.uv.index]]
            name = "special"
            url = "https://h.example/cu126"
            explicit = true
            """,
        )

        assert environment.packages == (
            "attrs",
            "far @ git+https://h.example/far.git@v1",
            "odd @ https://h.example/odd-1-py3-none-any.whl ; python_version < '3.12'",
            "torch",
        )
        assert environment.editable == ("lib",)
        assert environment.index == {"extra_index_urls": ["https://h.example/cu126"]}

    def test_the_order_of_lines_does_not_change_the_digest(self, tmp_path: Path) -> None:
        one = project(tmp_path / "a", '[project]\nname="a"\ndependencies=["b>=1,<2", "C_d"]\n')
        two = project(tmp_path / "b", '[project]\nname="z"\ndependencies=["c-d", "B <2, >=1"]\n')

        assert one.digest == two.digest


class TestTrouble:
    @pytest.mark.parametrize(
        ("text", "kind", "said"),
        [
            ("[tool.ruff]\nline-length = 9\n", NothingToInstall, "`tool` only"),
            ('[project]\nname = "a"\n', NothingToInstall, "names no dependencies"),
            ('[project]\ndependencies = "numpy"\n', EnvironmentSyntax, "list of texts"),
            ('[project]\ndependencies = ["num py"]\n', EnvironmentSyntax, "num py"),
            ('[projct]\ndependencies = ["numpy"]\n', EnvironmentSyntax, "did you mean `[project]`?"),
            ('[project]\nname = "a\ndependencies = []\n', EnvironmentSyntax, "line 2, column 10"),
            ('[project]\ndependencies = ["a", \n', EnvironmentSyntax, "line 3"),
            ('[project]\ndynamic = ["dependencies"]\n', UnsupportedRequirement, "uv lock"),
            ('[tool.poetry.dependencies]\npython = "^3.9"\nnumpy = "*"\n', UnsupportedRequirement, "poetry export"),
            ('[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {workspace = true}\n',
             UnsupportedRequirement, "uv lock"),
            ('[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {path = "../out"}\n',
             DrayError, "no folder"),
        ],
    )  # fmt: skip
    def test_it_is_told_in_words(self, tmp_path: Path, text: str, kind: type[DrayError], said: str) -> None:
        with pytest.raises(kind) as caught:
            project(tmp_path, text)

        assert said in str(caught.value)

    def test_an_extra_or_group_that_is_not_there_names_those_that_are(self, tmp_path: Path) -> None:
        with pytest.raises(DrayError, match="did you mean `plots`"):
            project(tmp_path, PROJECT, extras=("plot",))
        with pytest.raises(DrayError, match="did you mean `lint`"):
            project(tmp_path, PROJECT, groups=("lin",))

    def test_a_group_that_includes_itself(self, tmp_path: Path) -> None:
        text = '[project]\ndependencies=["a"]\n[dependency-groups]\na=[{include-group="b"}]\nb=[{include-group="a"}]\n'
        with pytest.raises(EnvironmentSyntax, match="includes itself"):
            project(tmp_path, text, groups=("a",))


class TestFinding:
    def test_one_with_settings_of_tools_only_is_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
        (tmp_path / "requirements.txt").write_text("six\n")

        assert find_environment_file(tmp_path, tmp_path) == tmp_path / "requirements.txt"

    def test_the_nearest_folder_counts_before_the_kind(self, tmp_path: Path) -> None:
        (tmp_path / "conda_dependencies.yml").write_text("dependencies: [six]\n")
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "requirements.txt").write_text("six\n")

        assert find_environment_file(tmp_path / "sub", tmp_path) == tmp_path / "sub" / "requirements.txt"

    def test_in_one_folder_the_first_kind_that_is_there_counts(self, tmp_path: Path) -> None:
        contents = {
            "conda_dependencies.yml": "dependencies: [six]\n",
            "uv.lock": "",
            "pylock.toml": "",
            "pyproject.toml": PROJECT,
            "requirements.txt": "six\n",
        }
        for name, text in contents.items():
            (tmp_path / name).write_text(text)

        for name in contents:
            assert find_environment_file(tmp_path, tmp_path) == tmp_path / name
            (tmp_path / name).unlink()
