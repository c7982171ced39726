"""Which Python a run gets, and why: what was named, else the nearest file, else the target's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dray.core.errors import DrayError, UnknownName, UsageError
from dray.core.spec import Environment
from dray.targets import LocalTarget, VmOptions, VmTarget
from dray.workspace.choosing import Choice, choose
from dray.workspace.registered import Registered
from dray.workspace.submission import Submission


class World:
    def __init__(self, folder: Path) -> None:
        self.home, self.code = folder / "home", folder / "code"
        self.script = self.write("sub/train.py", "")
        self.registered = Registered(self.home)

    def write(self, name: str, text: str) -> Path:
        path = self.code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def choose(self, target: Any = None, **words: Any) -> Choice:
        wish = Submission(script=str(self.script), cwd=str(self.code), **words)
        return choose(wish, target or LocalTarget(self.home), self.code, self.script, self.home)

    def elsewhere(self) -> VmTarget:
        return VmTarget("gpu1", VmOptions(address="gpu1"), self.home)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class TestTheNearestFile:
    def test_it_is_taken_and_said_to_be_the_nearest(self, world: World) -> None:
        world.write("requirements.txt", "six\n")

        choice = world.choose()

        assert choice.environment is not None
        assert choice.environment.packages == ("six",)
        assert choice.why == "nearest to the script"

    def test_one_beside_the_script_counts_before_one_above(self, world: World) -> None:
        world.write("requirements.txt", "six\n")
        world.write("sub/pyproject.toml", '[project]\ndependencies=["idna"]\n')

        choice = world.choose()

        assert choice.environment.packages == ("idna",)
        assert choice.why == "beside the script"

    def test_without_one_it_is_the_shells_python_here_and_the_machines_own_elsewhere(
        self, world: World
    ) -> None:
        assert world.choose().environment is None
        assert world.choose().python
        assert world.choose(world.elsewhere()) == Choice(None, None, "machine")

    def test_none_switches_it_off(self, world: World) -> None:
        world.write("requirements.txt", "six\n")

        assert world.choose(environment="none").environment is None


class TestWhatIsNamed:
    def test_a_file_counts_before_a_registered_name(self, world: World) -> None:
        world.registered.register("gpu.txt", Environment(("idna",)))
        assert world.choose(environment="gpu.txt").environment.packages == ("idna",)

        world.write("gpu.txt", "six\n")

        assert world.choose(environment="gpu.txt").environment.packages == ("six",)

    def test_a_registered_environment_is_its_newest_version_or_the_one_that_is_named(
        self, world: World
    ) -> None:
        world.registered.register("gpu", Environment(("idna",)))
        world.registered.register("gpu", Environment(("six",)))

        assert world.choose(environment="gpu").environment.packages == ("six",)
        assert world.choose(environment="gpu:1").environment.packages == ("idna",)
        with pytest.raises(UnknownName, match="known: `1`, `2`"):
            world.choose(environment="gpu:7")

    def test_a_name_that_is_none_is_told_with_the_nearest_file_or_name(self, world: World) -> None:
        world.write("requirements.txt", "six\n")
        world.registered.register("imagenet", Environment(("six",)))

        with pytest.raises(UnknownName, match=r"did you mean `requirements\.txt`"):
            world.choose(environment="requirement.txt")
        with pytest.raises(UnknownName, match="did you mean `imagenet`"):
            world.choose(environment="imagnet")

    def test_one_made_in_python_is_brought_into_the_one_form(self, world: World) -> None:
        made = Environment(["Scikit_Learn >=1", "numpy"], python="3.11")  # type: ignore[arg-type] # as people write

        choice = world.choose(environment=made)

        assert choice.environment == Environment(("numpy", "scikit-learn>=1"), "3.11")
        assert choice.why == "given in Python"

    def test_one_made_in_python_is_refused_in_words(self, world: World) -> None:
        for made, said in (
            (Environment("numpy"), "list of texts"),  # type: ignore[arg-type]
            (Environment(("num py",)), "num py"),
            (Environment(("tensorflow-gpu",)), "and-cuda"),
            (Environment(lock="x"), "kind"),
            (Environment(index={"index_url": "nowhere"}), "no address"),
        ):
            with pytest.raises(DrayError, match=said):
                world.choose(environment=made)

    def test_packages_of_conda_made_in_python_need_conda_only_when_they_are_condas(
        self, world: World
    ) -> None:
        assert world.choose(environment=Environment(conda=("numpy=1",))).environment.packages == (
            "numpy==1.*",
        )
        assert world.choose(environment=Environment(conda=("zlib",))).environment.conda == ("zlib",)


class TestPython:
    def test_an_existing_one_is_used_as_it_is(self, world: World) -> None:
        world.write("requirements.txt", "six\n")

        assert world.choose(python=sys.executable) == Choice(None, sys.executable, "--python")

    def test_a_version_is_a_wish_for_the_environment(self, world: World) -> None:
        assert world.choose(python="3.12").environment == Environment(python="3.12")

        world.write("requirements.txt", "six\n")

        assert world.choose(python="3.12").environment.python == "3.12"

    @pytest.mark.parametrize(
        ("name", "said"),
        [("train.py", "cannot be executed"), (".", "it is a folder"), ("nowhere/python", "no such file"),
         ("/bin/true", "no Python"), ("tool", "no Python")],
    )  # fmt: skip
    def test_one_that_is_none_is_refused_before_anything_is_sent(
        self, world: World, name: str, said: str
    ) -> None:
        world.write("train.py", "")
        world.write("tool", "#!/bin/sh\necho I am python 3; exit 0\n").chmod(0o755)
        with pytest.raises(UsageError, match=said):
            world.choose(python=name)

    def test_a_folder_that_holds_one_is_told_how_to_name_it(self, world: World) -> None:
        prefix = world.code / "venv"
        (prefix / "bin").mkdir(parents=True)
        (prefix / "bin" / "python").symlink_to(sys.executable)

        with pytest.raises(UsageError, match=r"--python .*venv/bin/python"):
            world.choose(python="venv")

    def test_elsewhere_it_is_an_absolute_path(self, world: World) -> None:
        assert world.choose(world.elsewhere(), python="/opt/v/bin/python").python == "/opt/v/bin/python"
        with pytest.raises(UsageError, match="no current folder"):
            world.choose(world.elsewhere(), python="v/bin/python")

    def test_nothing_is_installed_into_an_existing_one(self, world: World) -> None:
        for words in ({"environment": "x.txt"}, {"extras": ("a",)}, {"refresh": True}, {"locked": "l"}):
            with pytest.raises(UsageError):
                world.choose(python=sys.executable, **words)


class TestWordsAboutTheEnvironment:
    def test_another_index_counts_and_its_password_is_kept_apart(self, world: World) -> None:
        world.write("requirements.txt", "--extra-index-url https://b.example/s\nsix\n")

        choice = world.choose(
            index_url="https://ana:SECRET@a.example/simple", extra_index_urls=("https://c.example/s",)
        )

        assert choice.environment.index == {
            "index_url": "https://a.example/simple",
            "extra_index_urls": ["https://c.example/s", "https://b.example/s"],
        }
        assert choice.credentials == {"https://a.example/simple": "ana:SECRET"}

    def test_a_lock_stands_in_for_what_the_file_names(self, world: World) -> None:
        world.write("requirements.txt", "six\n")
        world.write("lock.txt", "# dray: python 3.11.7\nsix==1.17.0\n")

        environment = world.choose(locked="lock.txt").environment

        assert (environment.packages, environment.lock_kind, environment.python) == (
            (),
            "requirements",
            "3.11",
        )

    def test_what_needs_an_environment_says_so_when_there_is_none(self, world: World) -> None:
        with pytest.raises(UsageError, match="--extra is about an environment"):
            world.choose(extras=("a",))
        with pytest.raises(UsageError, match="switched off"):
            world.choose(environment="none", refresh=True)

    def test_what_is_retired_is_replaced_by_the_flag_or_the_variable(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.write("requirements.txt", "tensorflow-gpu\n")
        with pytest.raises(DrayError, match="and-cuda"):
            world.choose()

        flagged = world.choose(upgrade_retired=True)
        monkeypatch.setenv("DRAY_UPGRADE_RETIRED", "1")

        assert flagged == world.choose()
        assert flagged.environment.packages == ("tensorflow[and-cuda]",)
        assert "tensorflow-gpu" in flagged.notes[0]


class TestRegistered:
    def test_the_same_again_is_the_same_version(self, world: World) -> None:
        first = world.registered.register("gpu", Environment(("six",), source="a"))
        again = world.registered.register("gpu", Environment(("six",), source="b"))
        other = world.registered.register("gpu", Environment(("idna",)))

        assert (first.version, again.version, other.version) == (1, 1, 2)
        assert [one.version for one in world.registered.versions("gpu")] == [1, 2]

    def test_one_or_all_versions_can_be_forgotten(self, world: World) -> None:
        world.registered.register("gpu", Environment(("six",)))
        world.registered.register("gpu", Environment(("idna",)))

        world.registered.remove("gpu:1")
        assert [one.version for one in world.registered.versions("gpu")] == [2]
        world.registered.remove("gpu")
        assert world.registered.names() == []
        with pytest.raises(UnknownName):
            world.registered.remove("gpu")

    @pytest.mark.parametrize("name", ["", "none", "../x", "a/b", "-x", "a b", "x" * 81])
    def test_names_that_cannot_be(self, world: World, name: str) -> None:
        with pytest.raises(UsageError):
            world.registered.register(name, Environment(("six",)))

    def test_a_damaged_file_is_told_with_its_path(self, world: World) -> None:
        world.registered.register("gpu", Environment(("six",)))
        (world.home / "environments" / "gpu" / "1.json").write_text("{")

        with pytest.raises(DrayError, match="damaged"):
            world.registered.find("gpu")
