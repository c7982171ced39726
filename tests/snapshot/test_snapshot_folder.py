"""Which folder a script belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.core.errors import UsageError
from dray.snapshot import NoSuchFolder, NoSuchScript, ScriptOutside, find_code_folder, path_within


def _script(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("print()\n")
    return path


def test_without_any_mark_the_current_directory_travels(code: Path) -> None:
    _script(code / "deep" / "er" / "train.py")

    assert find_code_folder(Path("deep/er/train.py"), code, None) == code


@pytest.mark.parametrize("mark", [".dray", "aml_config", ".azureml"])
def test_a_configuration_folder_marks_the_code_folder(code: Path, mark: str) -> None:
    _script(code / "a" / "b" / "train.py")
    (code / "a" / mark).mkdir()

    assert find_code_folder(Path("a/b/train.py"), code, None) == code / "a"


@pytest.mark.parametrize(
    "mark", ["conda_dependencies.yml", "uv.lock", "pylock.toml", "pyproject.toml", "requirements.txt"]
)
def test_an_environment_file_marks_the_code_folder_and_the_nearest_wins(code: Path, mark: str) -> None:
    script = _script(code / "a" / "b" / "train.py")
    (code / "a" / mark).write_text("")
    (code / "a" / "b" / mark).write_text("")

    assert find_code_folder(script, code, None) == code / "a" / "b"


def test_a_file_named_like_a_configuration_folder_marks_nothing(code: Path) -> None:
    _script(code / "a" / "train.py")
    (code / "a" / ".dray").write_text("")

    assert find_code_folder(Path("a/train.py"), code, None) == code


def test_marks_above_the_current_directory_do_not_count(code: Path) -> None:
    (code / "pyproject.toml").write_text("")
    script = _script(code / "in" / "train.py")

    assert find_code_folder(script, code / "in", None) == code / "in"


def test_a_named_folder_wins_over_marks(code: Path) -> None:
    _script(code / "a" / "train.py")
    (code / "a" / "uv.lock").write_text("")

    assert find_code_folder(Path("a/train.py"), code, Path(".")) == code
    assert find_code_folder(Path("../code/a/train.py"), code, code.parent) == code.parent


def test_a_script_outside_is_told_with_both_places_and_the_way_out(tmp_path: Path, code: Path) -> None:
    script = _script(tmp_path / "my code" / "train.py")

    with pytest.raises(ScriptOutside) as caught:
        find_code_folder(Path("../my code/train.py"), code, None)

    assert f"`{script}`" in caught.value.what
    assert f"`{code}`" in caught.value.what
    assert f"`--dir '{script.parent}'`" in (caught.value.hint or "")


def test_a_sibling_whose_name_begins_the_same_is_outside(tmp_path: Path, code: Path) -> None:
    _script(tmp_path / "code2" / "train.py")

    with pytest.raises(ScriptOutside):
        find_code_folder(Path("../code2/train.py"), code, None)


def test_a_folder_may_be_named_through_a_link(tmp_path: Path, code: Path) -> None:
    _script(code / "a" / "train.py")
    (tmp_path / "other-name").symlink_to(code)
    script = tmp_path / "other-name" / "a" / "train.py"

    assert find_code_folder(script, code, None) == code
    assert path_within(code, script, tmp_path) == "a/train.py"


def test_a_script_in_a_linked_folder_belongs_to_where_the_link_is(tmp_path: Path, code: Path) -> None:
    _script(tmp_path / "shared" / "train.py")
    (code / "scripts").symlink_to(tmp_path / "shared")

    assert find_code_folder(Path("scripts/train.py"), code, None) == code
    assert path_within(code, Path("scripts/train.py"), code) == "scripts/train.py"


def test_a_mistyped_script_is_told_with_the_nearest_name(code: Path) -> None:
    _script(code / "train.py")
    _script(code / "evaluate.py")

    with pytest.raises(NoSuchScript, match=r"trian\.py") as caught:
        find_code_folder(Path("trian.py"), code, None)

    assert "did you mean `train.py`?" in (caught.value.why or "")
    assert str(code) in (caught.value.why or "")


def test_a_folder_in_place_of_a_script_is_told(code: Path) -> None:
    (code / "train").mkdir()

    with pytest.raises(NoSuchScript, match="is a folder"):
        find_code_folder(Path("train"), code, None)


def test_a_script_in_a_folder_that_is_not_there_is_told(code: Path) -> None:
    with pytest.raises(NoSuchScript) as caught:
        find_code_folder(Path("no/train.py"), code, None)

    assert f"there is no folder `{code / 'no'}`" in (caught.value.why or "")


def test_a_named_folder_has_to_be_one(code: Path) -> None:
    _script(code / "train.py")

    with pytest.raises(NoSuchFolder, match="--dir nowhere") as caught:
        find_code_folder(Path("train.py"), code, Path("nowhere"))
    with pytest.raises(UsageError):
        find_code_folder(Path("train.py"), code, Path("train.py"))

    assert caught.value.why == "it does not exist"
