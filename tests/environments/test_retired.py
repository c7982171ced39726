"""What old files name and nobody can install any more: refused with its successor, or replaced when that is wished for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.environments import RetiredPackage, RetiredPython, Wish, read_environment, read_found

ACCEPT = Wish(upgrade_retired=True)
CNTK = "https://cntk.ai/PythonWheel/GPU/cntk-2.1-cp35-cp35m-linux_x86_64.whl"


def requirements(folder: Path, *lines: str) -> Path:
    path = folder / "requirements.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("tensorflow-gpu", "tensorflow[and-cuda]"),
        ("TensorFlow_GPU==1.12.0", "tensorflow[and-cuda]"),
        ("tf-nightly-gpu", "tf-nightly[and-cuda]"),
        ('tensorflow-gpu ; sys_platform == "linux"', 'tensorflow[and-cuda] ; sys_platform == "linux"'),
        ("sklearn", "scikit-learn"),
        ("pytorch", "torch"),
        ("jax[cuda11_pip]==0.3", "jax[cuda12]"),
        ("jax[cuda]", "jax[cuda12]"),
        ("https://h.example/tensorflow_gpu-1.4.0-cp36-cp36m-linux_x86_64.whl", "tensorflow[and-cuda]"),
        ("https://h.example/cu80/torch-0.2.0-cp35-cp35m-linux_x86_64.whl", "torch"),
    ],
)
def test_it_is_refused_with_its_successor_which_is_taken_when_accepted(
    tmp_path: Path, line: str, instead: str
) -> None:
    path = requirements(tmp_path, "numpy", line)
    with pytest.raises(RetiredPackage, match="line 2") as caught:
        read_environment(path)
    assert instead.partition(" ;")[0] in str(caught.value)
    assert "--upgrade-retired" in str(caught.value)

    found = read_found(path, ACCEPT)

    assert instead in found.environment.packages
    assert instead in found.notes[0]


@pytest.mark.parametrize("line", ["cntk", "cntk-gpu==2.1", CNTK, "mxnet-cu101"])
def test_what_nothing_can_stand_in_for_is_refused_in_any_case(tmp_path: Path, line: str) -> None:
    for wish in (Wish(), ACCEPT):
        with pytest.raises(RetiredPackage, match="nothing can stand in"):
            read_environment(requirements(tmp_path, line), wish)


@pytest.mark.parametrize(
    "line",
    ["tensorflow", "tensorflow[and-cuda]", "jax[cuda12]", "jax[cuda13_local]", "torch==2.6", "scikit-learn",
     "https://h.example/foo-1-py3-none-any.whl", "https://h.example/foo-1-cp311-cp311-linux_x86_64.whl",
     "https://h.example/foo-1-py2.py3-none-any.whl", "https://h.example/foo-1-cp36-abi3-linux_x86_64.whl"],
)  # fmt: skip
def test_what_can_be_had_is_left_alone(tmp_path: Path, line: str) -> None:
    assert len(read_environment(requirements(tmp_path, line)).packages) == 1


def test_a_python_of_old_is_refused_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "conda_dependencies.yml"
    path.write_text("name: project_environment\ndependencies:\n  - python=3.5.2\n  - tensorflow-gpu\n")
    # The first thing wrong with it is told first; both are mended at once.
    with pytest.raises((RetiredPython, RetiredPackage), match="line"):
        read_environment(path)

    found = read_found(path, ACCEPT)

    assert found.environment.python == "3.12"
    assert found.environment.packages == ("tensorflow[and-cuda]",)
    assert len(found.notes) == 2


@pytest.mark.parametrize(
    ("spec", "is_old"),
    [
        ("3.5.2", True),
        ("2.7", True),
        ("2", True),
        ("3.7", True),
        ("3", False),
        ("3.8", False),
        ("3.13", False),
    ],
)
def test_which_pythons_are_old(tmp_path: Path, spec: str, is_old: bool) -> None:
    path = tmp_path / "conda_dependencies.yml"
    path.write_text(f"dependencies: [python={spec}]\n")
    if is_old:
        with pytest.raises(RetiredPython, match=r"python=3\.12"):
            read_environment(path)
    else:
        assert read_environment(path).python == spec


def test_conda_may_have_what_a_python_index_has_not(tmp_path: Path) -> None:
    path = tmp_path / "conda_dependencies.yml"
    path.write_text("dependencies: [tensorflow-gpu, cudnn]\n")

    assert read_environment(path).conda == ("cudnn", "tensorflow-gpu")
