"""Environment files as people write them, and what is said when they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.core.spec import Environment
from dray.environments import (
    FILE_NAME,
    CredentialsInFile,
    EnvironmentFileError,
    EnvironmentSyntax,
    PackageTwice,
    UnsupportedRequirement,
    Wish,
    find_environment_file,
    read_environment,
    read_found,
)


def written(folder: Path, text: str, name: str = FILE_NAME) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def conda(folder: Path, *dependencies: str) -> Environment:
    lines = "".join(f"  - {d}\n" for d in dependencies)
    return read_environment(written(folder, f"dependencies:\n{lines}"))


def pip(folder: Path, *lines: str) -> tuple[str, ...]:
    return read_environment(written(folder, "\n".join(lines) + "\n", "requirements.txt")).packages


class TestFinding:
    def test_the_nearest_file_counts(self, tmp_path: Path) -> None:
        deep = tmp_path / "a" / "b" / "c"
        deep.mkdir(parents=True)
        assert find_environment_file(deep, tmp_path) is None

        top = written(tmp_path, "")
        assert find_environment_file(deep, tmp_path) == top

        near = written(tmp_path / "a" / "b", "")
        assert find_environment_file(deep, tmp_path) == near
        assert find_environment_file(tmp_path / "a", tmp_path) == top

    def test_nothing_above_the_code_folder_counts(self, tmp_path: Path) -> None:
        (tmp_path / "code" / "sub").mkdir(parents=True)
        written(tmp_path, "")

        assert find_environment_file(tmp_path / "code" / "sub", tmp_path / "code") is None

    def test_a_script_elsewhere_gets_the_file_of_the_code_folder(self, tmp_path: Path) -> None:
        file = written(tmp_path / "code", "")
        written(tmp_path / "else", "")

        assert find_environment_file(tmp_path / "else", tmp_path / "code") == file

    def test_a_folder_of_that_name_does_not_count(self, tmp_path: Path) -> None:
        (tmp_path / FILE_NAME).mkdir()

        assert find_environment_file(tmp_path, tmp_path) is None


class TestConda:
    def test_a_whole_file(self, tmp_path: Path) -> None:
        path = written(
            tmp_path,
            "name: digits\n"
            "channels: [conda-forge, defaults]\n"
            "dependencies:\n"
            "  - python=3.11\n"
            "  - scikit-learn>=1.3  # models\n"
            "  - conda-forge::numpy=1.26\n"
            "  - pip\n"
            "  - pip:\n"
            "      - Pillow\n"
            "      - https://host.example/wheels/tool-1.0-py3-none-any.whl\n"
            "prefix: /opt/conda/envs/digits\n",
        )

        environment = read_environment(path)

        assert environment.python == "3.11"
        assert environment.packages == (
            "https://host.example/wheels/tool-1.0-py3-none-any.whl",
            "numpy==1.26.*",
            "pillow",
            "scikit-learn>=1.3",
        )
        assert environment.source == str(path)

    @pytest.mark.parametrize(
        ("spec", "requirement"),
        [
            ("numpy", "numpy"),
            ("numpy=1.26", "numpy==1.26.*"),
            ("numpy=1.26.*", "numpy==1.26.*"),
            ("numpy==1.26.4", "numpy==1.26.4"),
            ("numpy 1.26.4", "numpy==1.26.4"),
            ("numpy=1.26.4=py311h64a7726_0", "numpy==1.26.4"),
            ("numpy 1.26.4 py311h64a7726_0", "numpy==1.26.4"),
            ("numpy>=1.2,<2", "numpy<2,>=1.2"),
            ("numpy >= 1.2, < 2", "numpy<2,>=1.2"),
            ("numpy>=1.26.*", "numpy>=1.26"),
            ("numpy!=1.25.*", "numpy!=1.25.*"),
            ("numpy~=1.26", "numpy~=1.26"),
            ("numpy=*", "numpy"),
            ("numpy *", "numpy"),
            ("numpy=2.0rc1", "numpy==2.0rc1"),
            ("conda-forge::numpy", "numpy"),
            ("conda-forge/linux-64::numpy=1", "numpy==1.*"),
            ("conda-forge::numpy[version='>=1.2,<2', build=py*]", "numpy<2,>=1.2"),
            ("\"numpy[version='1.26']\"", "numpy==1.26"),
            ("NumPy", "numpy"),
            ("pytorch=2.1", "torch==2.1.*"),
            ("ruamel_yaml", "ruamel-yaml"),
            ("py-opencv", "opencv-python"),
            ("librosa", "librosa"),
        ],
    )
    def test_a_match_spec_becomes_a_requirement(self, tmp_path: Path, spec: str, requirement: str) -> None:
        assert conda(tmp_path, spec).packages == (requirement,)

    @pytest.mark.parametrize(
        ("spec", "version"),
        [
            ("python", None),
            ("python=3.11", "3.11"),
            ("python=3.11.*", "3.11"),
            ("python==3.11.4", "3.11.4"),
            ("python 3.11", "3.11"),
            ("python=3.11.4=hab00c5b_0_cpython", "3.11.4"),
            ("python>=3.9,<3.12", "<3.12,>=3.9"),
        ],
    )
    def test_python_is_a_wish_and_no_package(self, tmp_path: Path, spec: str, version: str | None) -> None:
        environment = conda(tmp_path, spec, "pip=23")

        assert environment.python == version
        assert environment.packages == ()

    def test_order_and_spelling_do_not_change_the_digest(self, tmp_path: Path) -> None:
        one = conda(tmp_path / "one", "Scikit_Learn >=1.3,<2", "numpy", "python=3.11")
        two = conda(tmp_path / "two", "python 3.11", "numpy", "scikit-learn<2,>=1.3")

        assert one.digest == two.digest
        assert conda(tmp_path / "three", "numpy=1", "python=3.11").digest != one.digest

    @pytest.mark.parametrize(
        "spec",
        ["cudatoolkit=11.8", "cudnn", "gcc_linux-64", "r-base", "_libgcc_mutex", "cuda-nvcc",
         "numpy=1.26|1.25", "numpy>=1|<0.5"],
    )  # fmt: skip
    def test_what_no_python_index_has_makes_it_condas_environment(self, tmp_path: Path, spec: str) -> None:
        environment = conda(
            tmp_path,
            "python 3.11",
            "numpy >= 1.2, <2" if "numpy" not in spec else "scipy",
            spec,
            "pip: [idna]",
        )

        assert spec in environment.conda
        assert "python==3.11" in environment.conda
        assert environment.packages == ("idna",)

    @pytest.mark.parametrize(
        ("spec", "told"),
        [
            ("NumPy", "numpy"),
            ("numpy=1.26", "numpy=1.26"),
            ("numpy=1.26.*", "numpy=1.26"),
            ("numpy ==1.26.4", "numpy==1.26.4"),
            ("numpy 1.26.4", "numpy==1.26.4"),
            ("numpy=1.26.4=py311h64a7726_0", "numpy=1.26.4=py311h64a7726_0"),
            ("numpy 1.26.4 py311h64a7726_0", "numpy=1.26.4=py311h64a7726_0"),
            ("numpy >= 1.2, < 2", "numpy<2,>=1.2"),
            ("numpy=*", "numpy"),
            ("conda-forge::numpy=1", "conda-forge::numpy=1"),
            (
                "conda-forge::numpy[version='>=1.2,<2', build=py*]",
                "conda-forge::numpy[build='py*',version='<2,>=1.2']",
            ),
            ("\"numpy[version='1.26']\"", "numpy==1.26"),
            ("py-opencv", "py-opencv"),
        ],
    )
    def test_condas_own_environment_has_each_spec_in_one_spelling(
        self, tmp_path: Path, spec: str, told: str
    ) -> None:
        assert conda(tmp_path, "zlib", spec).conda == tuple(sorted((told, "zlib")))

    @pytest.mark.parametrize(
        "channel", ["https://conda.corp.example/ml", "file:///srv/channel", "./channel", "corp-internal"]
    )
    def test_a_channel_of_ones_own_makes_it_condas_environment(self, tmp_path: Path, channel: str) -> None:
        text = f"channels: [conda-forge, '{channel}']\ndependencies: [python=3.11, tool]\n"
        environment = read_environment(written(tmp_path, text))

        assert environment.conda == ("python=3.11", "tool")
        own = (tmp_path / "channel").as_uri() if channel.startswith(".") else channel
        assert environment.channels == ("conda-forge", own)

    @pytest.mark.parametrize(
        "channel",
        ["defaults", "conda-forge", "https://conda.anaconda.org/pytorch/", "nvidia/label/cuda-12.1.0"],
    )
    def test_everyones_channels_need_no_conda_for_python_packages(self, tmp_path: Path, channel: str) -> None:
        environment = read_environment(written(tmp_path, f"channels: ['{channel}']\ndependencies: [numpy]\n"))

        assert (environment.conda, environment.channels, environment.packages) == ((), (), ("numpy",))

    def test_the_order_of_channels_counts_and_that_of_packages_does_not(self, tmp_path: Path) -> None:
        def of(channels: str, packages: str) -> str:
            return read_environment(
                written(tmp_path, f"channels: [{channels}]\ndependencies: [{packages}]\n")
            ).digest

        assert of("a, b", "zlib, numpy =1") == of("a, b", "NUMPY=1.*, zlib")
        assert of("a, b", "zlib") != of("b, a", "zlib")

    @pytest.mark.parametrize(
        "spec", ["numpy=>1", "numpy>=", "=1.0", "numpy==abc", "numpy=1*", "num py>=1 x y"]
    )
    def test_a_spec_that_is_none_names_its_line(self, tmp_path: Path, spec: str) -> None:
        with pytest.raises(EnvironmentSyntax, match="line 3, column 5"):
            conda(tmp_path, "pip", spec)


class TestShape:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "it is empty"),
            ("# nothing\n", "it is empty"),
            ("- numpy\n", "names with values"),
            ("numpy\n", "names with values"),
            ("name: x\n", "it has no `dependencies:`"),
            ("dependencies:\n", "must be a list"),
            ("dependencies: numpy\n", "must be a list"),
            ("dependencies:\n  - 3.11\n", "there is a number"),
            ("dependencies:\n  -\n", "there is nothing"),
            ("dependencies:\n  - [numpy]\n", "there is a list"),
            ("dependencies:\n  - numpy: 1.26\n", "write `numpy=1.2`"),
            ("dependencies:\n  - pip: numpy\n", "`pip:` must be a list"),
            ("dependencies:\n  - pip:\n    - a: b\n", "there is a mapping"),
            ("dependancies: []\n", "did you mean `dependencies`?"),
            ("variables: {A: b}\ndependencies: []\n", "dray submit -e NAME=VALUE"),
            ("moon: {A: b}\ndependencies: []\n", "known are"),
            ("dependencies: []\ndependencies: []\n", "the first is in line 1"),
            ("channels: conda-forge\ndependencies: []\n", "must be a list"),
            ("dependencies: [numpy\n", "it is not YAML"),
            ("dependencies:\n\t- numpy\n", "it is not YAML"),
            ("[" * 5000, "it is nested too deeply"),
            ("--- a\n--- b\n", "it is not YAML"),
        ],
    )
    def test_a_file_of_another_shape_is_told_so_with_the_line(
        self, tmp_path: Path, text: str, said: str
    ) -> None:
        path = written(tmp_path, text)
        with pytest.raises(EnvironmentSyntax) as caught:
            read_environment(path)

        assert said in str(caught.value)
        assert str(path) in str(caught.value)

    def test_nothing_in_a_file_is_ever_executed(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        text = f"dependencies: [!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{mark}']]]"
        with pytest.raises(EnvironmentSyntax, match="there is a list"):
            read_environment(written(tmp_path, text))

        assert not mark.exists()

    def test_nothing_needed_is_an_environment(self, tmp_path: Path) -> None:
        assert read_environment(written(tmp_path, "dependencies: []\n")).packages == ()

    def test_a_yaml_error_names_line_and_column(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentSyntax, match="line 3, column 3"):
            read_environment(written(tmp_path, "dependencies:\n  - numpy\n  @bad\n"))

    def test_bytes_that_are_no_text_name_their_line(self, tmp_path: Path) -> None:
        path = tmp_path / FILE_NAME
        path.write_bytes(b"dependencies:\n  - \xff\n")
        with pytest.raises(EnvironmentSyntax, match="line 2"):
            read_environment(path)

    def test_a_file_that_is_not_there_or_is_another_kind(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentFileError, match="No such file"):
            read_environment(tmp_path / "nowhere.yml")
        with pytest.raises(EnvironmentFileError, match="no environment file"):
            read_environment(written(tmp_path, "", "setup.py"))

    def test_a_huge_file_is_not_read_whole(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentSyntax, match="larger than"):
            read_environment(written(tmp_path, "#" * 1_000_001))

    @pytest.mark.parametrize(
        "text",
        [
            "dependencies:\n  - numpy\n  - NumPy=1.26\n",
            "dependencies:\n  - numpy\n  - pip:\n      - numpy>1\n",
            "dependencies:\n  - python\n  - python=3.11\n",
            "dependencies:\n  - pytorch\n  - pip: [torch]\n",
            "dependencies:\n  - pip: [a]\n  - pip: [b]\n",
        ],
    )
    def test_the_same_package_twice_names_both_places(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(PackageTwice) as caught:
            read_environment(written(tmp_path, text))

        assert "line 2" in str(caught.value)

    @settings(deadline=None)
    @given(st.text(max_size=200) | st.lists(st.text(max_size=30)).map(lambda d: f"dependencies: {d!r}"))
    def test_any_text_is_an_environment_or_an_error_in_words(
        self, tmp_path_factory: pytest.TempPathFactory, text: str
    ) -> None:
        folder = tmp_path_factory.mktemp("wild")
        for name in (FILE_NAME, "requirements.txt"):
            (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
            try:
                environment = read_environment(folder / name)
            except EnvironmentFileError:
                continue  # the one kind of error that may come out
            assert Environment.from_json(environment.to_json()).digest == environment.digest


def test_the_example_names_what_it_needs() -> None:
    example = Path(__file__).parents[2] / "examples" / "digits"

    found = find_environment_file(example, example.parent)

    assert found == example / FILE_NAME
    assert read_environment(found).packages == ("scikit-learn>=1.3",)


class TestPip:
    @pytest.mark.parametrize(
        ("line", "requirement"),
        [
            ("numpy", "numpy"),
            ("Foo_Bar.baz >= 1.0 , <2  # why", "foo-bar-baz<2,>=1.0"),
            ("foo (>=1)", "foo>=1"),
            ("uvicorn[Standard, extra]==0.23.*", "uvicorn[extra,standard]==0.23.*"),
            ('tomli>=1 ; python_version < "3.11"', 'tomli>=1 ; python_version < "3.11"'),
            ("torch==2.1.0+cu118", "torch==2.1.0+cu118"),
            ("foo===weird", "foo===weird"),
            ("foo @ https://h.example/foo.whl#sha256=abc", "foo @ https://h.example/foo.whl#sha256=abc"),
            ("https://h.example/foo-1-py3-none-any.whl", "https://h.example/foo-1-py3-none-any.whl"),
            ("git+https://h.example/foo.git@v1#egg=foo", "git+https://h.example/foo.git@v1#egg=foo"),
            ("git+ssh://git@h.example/foo.git", "git+ssh://git@h.example/foo.git"),
            ("foo>=1, \\\n  <2", "foo<2,>=1"),
        ],
    )
    def test_a_requirement_is_passed_on_in_one_spelling(
        self, tmp_path: Path, line: str, requirement: str
    ) -> None:
        assert pip(tmp_path, line) == (requirement,)

    def test_one_package_under_two_conditions_is_fine(self, tmp_path: Path) -> None:
        both = ('a==1 ; python_version < "3.9"', 'a==2 ; python_version >= "3.9"')

        assert pip(tmp_path, *both) == both

    def test_files_below_the_folder_are_included(self, tmp_path: Path) -> None:
        written(tmp_path, "numpy\n-r more/deep.txt\n", "base.txt")
        written(tmp_path, "scipy\n-r ../flat.txt\n", "more/deep.txt")
        written(tmp_path, "pandas\n", "flat.txt")

        assert pip(tmp_path, "-r base.txt") == ("numpy", "pandas", "scipy")
        assert conda(tmp_path, "pip: ['--requirement=base.txt']").packages == ("numpy", "pandas", "scipy")

    @pytest.mark.parametrize("path", ["../other.txt", "/etc/passwd", "link/x.txt", "https://h.example/r.txt"])
    def test_files_elsewhere_are_not_included(self, tmp_path: Path, path: str) -> None:
        (tmp_path / "code").mkdir()
        written(tmp_path, "numpy\n", "other.txt")
        written(tmp_path, "numpy\n", "else/x.txt")
        (tmp_path / "code" / "link").symlink_to(tmp_path / "else")

        with pytest.raises(UnsupportedRequirement, match="in the folder of the environment file"):
            pip(tmp_path / "code", f"-r {path}")

    def test_a_file_that_includes_itself_and_one_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentSyntax, match="includes itself"):
            pip(tmp_path, "-r requirements.txt")
        with pytest.raises(EnvironmentSyntax, match=r"no file `nowhere\.txt`"):
            pip(tmp_path, "-r nowhere.txt")

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ("--pre", "option"),
            ("-c constraints.txt", "option"),
            ("numpy==1 --no-binary", "option"),
            ("./local", "path"),
            ("../local", "path"),
            ("sub/folder", "path"),
            ("/abs/x.whl", "path"),
            ("x-1.0-py3-none-any.whl", "file"),
            ("file:///x.whl", "path"),
            ("x @ file:///x.whl", "path"),
        ],
    )
    def test_what_cannot_be_installed_elsewhere_is_refused(
        self, tmp_path: Path, line: str, said: str
    ) -> None:
        with pytest.raises(UnsupportedRequirement, match=said) as caught:
            pip(tmp_path, "numpy", line)

        assert "line 2" in str(caught.value)

    @pytest.mark.parametrize(
        "line", ["numpy>", "numpy=1", "numpy 1.2", "num py", "x @ there", "!", "a>=1,,<2"]
    )
    def test_a_line_that_is_no_requirement_is_named(self, tmp_path: Path, line: str) -> None:
        with pytest.raises(EnvironmentSyntax, match="line 2"):
            pip(tmp_path, "", line)


class TestCredentials:
    @pytest.mark.parametrize(
        "line",
        [
            "--index-url https://ana:SECRET@h.example/simple",
            "--extra-index-url=https://SECRET@h.example/simple",
            "-ihttps://ana:SECRET@h.example/simple",
            "--index-url https://h.example/simple?token=SECRET",
            "https://ana:SECRET@h.example/x.whl",
            "x @ https://SECRET@h.example/x.whl",
            "git+https://SECRET@h.example/x.git",
            "git+ssh://ana:SECRET@h.example/x.git",
            "https://h.example/x.whl?sv=1&sig=SECRET",
            "https://h.example/x.whl?access_token=SECRET#sha256=1",
            "-r https://ana:SECRET@h.example/r.txt",
            "-e git+https://ana:SECRET@h.example/x.git",
            "not a line https://ana:SECRET@[h.example/",
        ],
    )
    def test_a_password_in_an_address_is_refused_and_not_repeated(self, tmp_path: Path, line: str) -> None:
        with pytest.raises(CredentialsInFile, match="stored with every run") as caught:
            pip(tmp_path, line)

        assert "SECRET" not in str(caught.value)

    def test_a_channel_or_a_conda_spec_may_hold_none_either(self, tmp_path: Path) -> None:
        for text in (
            "channels: ['https://h.example/t/x', 'https://u:SECRET@h.example']\ndependencies: []\n",
            "dependencies: ['https://u:SECRET@h.example/c::numpy']\n",
        ):
            with pytest.raises(CredentialsInFile) as caught:
                read_environment(written(tmp_path, text))
            assert "SECRET" not in str(caught.value)

    def test_yaml_that_is_broken_beside_a_password_does_not_show_it(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentSyntax) as caught:
            read_environment(written(tmp_path, "dependencies: ['https://u:SECRET@h.example'\n"))

        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None


class TestIndexes:
    def test_an_index_is_kept_in_order_and_once(self, tmp_path: Path) -> None:
        path = written(
            tmp_path,
            "--index-url https://a.example/simple/\n--extra-index-url=https://c.example/s\n"
            "--extra-index-url https://b.example/s\n--extra-index-url https://c.example/s\n-f ./wheels\nnumpy\n",
            "requirements.txt",
        )

        assert read_environment(path).index == {
            "index_url": "https://a.example/simple",
            "extra_index_urls": ["https://c.example/s", "https://b.example/s"],
            "find_links": [(tmp_path / "wheels").as_uri()],
        }

    def test_a_password_in_an_index_travels_beside_what_is_stored(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("INDEX_TOKEN", "T0KEN")
        monkeypatch.setenv("INDEX_PASSWORD", "SECRET")
        path = written(
            tmp_path,
            "-i https://ana:${INDEX_PASSWORD}@h.example:8443/simple\n"
            "--extra-index-url https://${INDEX_TOKEN}@b.example/s\nnumpy\n",
            "requirements.txt",
        )

        found = read_found(path, Wish())

        assert found.credentials == {
            "https://h.example:8443/simple": "ana:SECRET",
            "https://b.example/s": "T0KEN",
        }
        assert "SECRET" not in repr(found.environment)
        assert "T0KEN" not in repr(found.environment)

    def test_a_file_that_does_not_travel_may_hold_it(self, tmp_path: Path) -> None:
        (tmp_path / "code").mkdir()
        path = written(tmp_path, "-i https://ana:SECRET@h.example/simple\nnumpy\n", "requirements.txt")

        assert read_found(path, Wish(top=tmp_path / "code")).credentials == {
            "https://h.example/simple": "ana:SECRET"
        }

    @pytest.mark.parametrize(
        "line",
        ["-i https://h.example/${DRAY_TEST_TOKEN}/simple", "-i https://${NOT_SET_ANYWHERE}@h.example/s"],
    )
    def test_a_variable_that_would_be_stored_or_is_not_set_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
    ) -> None:
        monkeypatch.setenv("DRAY_TEST_TOKEN", "T0KEN")
        with pytest.raises(EnvironmentSyntax, match="line 1") as caught:
            pip(tmp_path, line)

        assert "T0KEN" not in str(caught.value)

    @pytest.mark.parametrize(
        "line", ["-i nowhere", "--extra-index-url https://h:port/x", "-i ''", "-f https://"]
    )
    def test_what_is_no_address_is_named_with_its_line(self, tmp_path: Path, line: str) -> None:
        with pytest.raises(EnvironmentSyntax, match="line 1"):
            pip(tmp_path, line)


class TestEditable:
    def test_its_needs_go_into_the_environment_and_it_stays_where_it_is(self, tmp_path: Path) -> None:
        written(
            tmp_path,
            '[project]\nname="a"\ndependencies=["idna>3"]\n[project.optional-dependencies]\nx=["six"]',
            "a/pyproject.toml",
        )
        written(tmp_path, "[options]\ninstall_requires =\n  attrs\n  idna>3\n", "b/setup.cfg")
        written(
            tmp_path,
            "from setuptools import setup\nsetup(name='c', install_requires=['click'])\n",
            "libs/c/setup.py",
        )
        path = written(tmp_path, "-e ./a[x]\n-e b\n--editable=libs/c\nnumpy\n", "requirements.txt")

        environment = read_environment(path)

        assert environment.packages == ("attrs", "click", "idna>3", "numpy", "six")
        assert environment.editable == ("a", "b", "libs/c")

    def test_it_is_named_from_the_code_folder_in_a_conda_file_too(self, tmp_path: Path) -> None:
        written(tmp_path, '[project]\nname="a"\ndependencies=[]\n', "lib/pyproject.toml")
        path = written(tmp_path, "dependencies: [pip: ['-e ../lib']]\n", "env/conda_dependencies.yml")

        assert read_environment(path, Wish(top=tmp_path)).editable == ("lib",)

    @pytest.mark.parametrize(
        ("line", "said"),
        [("-e ../elsewhere", "not in the code folder"), ("-e ./nothing", "no folder"), ("-e ./empty", "plain words"),
         ("-e ./computed", "plain words")],
    )  # fmt: skip
    def test_one_that_does_not_travel_or_does_not_say_what_it_needs(
        self, tmp_path: Path, line: str, said: str
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        code = tmp_path / "code"
        (code / "empty").mkdir(parents=True)
        written(code, "import os\nsetup(name='c', install_requires=os.listdir())\n", "computed/setup.py")

        with pytest.raises(EnvironmentFileError, match=said):
            pip(code, line)

    def test_one_from_a_repository_is_installed_like_any_other(self, tmp_path: Path) -> None:
        assert pip(tmp_path, "-e git+https://h.example/x.git@v1#egg=X") == (
            "x @ git+https://h.example/x.git@v1",
        )


def test_lines_with_hashes_are_a_lock(tmp_path: Path) -> None:
    one = read_environment(
        written(
            tmp_path,
            "six==1.17.0 \\\n    --hash=sha256:ab \\\n    --hash=sha256:12\nidna==3.4 --hash=sha256:cd\n",
            "requirements.txt",
        )
    )

    assert one.packages == ()
    assert (one.lock, one.lock_kind) == (
        "idna==3.4 --hash=sha256:cd\nsix==1.17.0 --hash=sha256:12 --hash=sha256:ab\n",
        "requirements",
    )


def test_a_line_without_a_hash_among_lines_with_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedRequirement, match="line 1"):
        pip(tmp_path, "numpy", "six==1.17.0 --hash=sha256:ab")


_NAMES = st.lists(
    st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,4})?", fullmatch=True), min_size=1, max_size=6, unique=True
)
_VERSIONS = st.sampled_from(["", ">=1.2,<2", "==1.0", "~=3.1", "!=2.*,>=1"])


class TestTheSameNeeds:
    """Whatever the order, the case and the blanks: one digest, so one environment."""

    @settings(deadline=None, max_examples=60)
    @given(data=st.data(), names=_NAMES)
    def test_of_pip(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, names: list[str]
    ) -> None:
        wanted = [(name, data.draw(_VERSIONS)) for name in names]
        again = [
            self._otherwise(data, name)
            + data.draw(st.sampled_from(["", " "]))
            + self._shuffled(data, version)
            for name, version in data.draw(st.permutations(wanted))
        ]
        one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")

        first = read_environment(written(one, "\n".join(n + v for n, v in wanted), "requirements.txt"))
        second = read_environment(written(two, "\n".join(again), "requirements.txt"))

        assert first.digest == second.digest

    @settings(deadline=None, max_examples=60)
    @given(data=st.data(), names=_NAMES)
    def test_of_conda(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, names: list[str]
    ) -> None:
        wanted = [(name, data.draw(_VERSIONS)) for name in [*names, "zlib"] if name != "pip"]
        again = [
            name.upper() + self._shuffled(data, version)
            for name, version in data.draw(st.permutations(wanted))
        ]
        made = []
        for lines in ([n + v for n, v in wanted], again):
            folder = tmp_path_factory.mktemp("conda")
            made.append(read_environment(written(folder, f"dependencies: {lines!r}\n")))

        assert made[0].conda
        assert made[0].digest == made[1].digest

    def _otherwise(self, data: st.DataObject, name: str) -> str:
        sign = data.draw(st.sampled_from(["-", "_", "."]))
        return data.draw(st.sampled_from([name, name.upper(), name.title()])).replace("-", sign)

    def _shuffled(self, data: st.DataObject, version: str) -> str:
        return ",".join(data.draw(st.permutations(version.split(",")))) if version else ""
