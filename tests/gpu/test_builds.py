"""What an environment would do with a machine's GPUs, by the tables: the pairs that people meet."""

from __future__ import annotations

import pytest

from dray.core.spec import Environment
from dray.gpu.builds import allows, backend, doubts, torch_release
from dray.gpu.drivers import Fit, Gpus, fit, shown, torch_build, version
from dray.gpu.tables import FLOOR, SHIPPED_DRIVER, TENSORFLOW, TORCH

A100 = ("NVIDIA A100", (8, 0))
V100 = ("Tesla V100", (7, 0))
P100 = ("Tesla P100", (6, 0))


def gpus(driver: str, *cards: tuple[str, tuple[int, int]]) -> Gpus:
    cards = cards or (A100,)
    return Gpus(version(driver), tuple(name for name, _ in cards), tuple(able for _, able in cards))


def kinds(requirement: str, driver: str, *cards: tuple[str, tuple[int, int]]) -> list[str]:
    return [doubt.kind for doubt in doubts(Environment((requirement,)), gpus(driver, *cards))]


class TestTables:
    def test_a_newer_toolkit_never_needs_an_older_driver(self) -> None:
        assert list(SHIPPED_DRIVER.values()) == sorted(SHIPPED_DRIVER.values())
        assert list(SHIPPED_DRIVER) == sorted(SHIPPED_DRIVER)

    def test_the_floor_of_a_major_version_is_below_all_its_toolkits(self) -> None:
        for toolkit, driver in SHIPPED_DRIVER.items():
            assert FLOOR.get(toolkit[0], (0,)) <= driver

    def test_the_default_build_of_a_release_is_one_of_its_builds(self) -> None:
        assert all(release.default in release.builds for release in TORCH)
        assert [release.version for release in TORCH] == sorted(release.version for release in TORCH)
        assert [release for release, _ in TENSORFLOW] == sorted(release for release, _ in TENSORFLOW)


@pytest.mark.parametrize(
    ("driver", "cuda", "expected"),
    [
        ("580.65.06", (13, 0), Fit.CLEAN),
        ("580.65.06", (13, 2), Fit.MAYBE),
        ("575.51.03", (13, 0), Fit.TOO_OLD),
        ("525.60.13", (12, 8), Fit.MAYBE),
        ("525.60.12", (12, 0), Fit.TOO_OLD),
        ("470.82.01", (11, 8), Fit.MAYBE),
        ("440.33.01", (10, 2), Fit.CLEAN),
        ("620.10", (14, 0), Fit.MAYBE),
        ("575.1", (14, 0), Fit.TOO_OLD),
        ("999", (12, 7), Fit.CLEAN),
    ],
)
def test_how_a_driver_and_a_toolkit_go_together(driver: str, cuda: tuple[int, int], expected: Fit) -> None:
    number = version(driver)
    assert number is not None
    assert fit(number, cuda) is expected


@pytest.mark.parametrize(
    ("requirement", "driver", "cards", "expected"),
    [
        ("torch", "610.43.02", (A100,), []),
        ("torch", "580.65.06", (A100,), ["driver-old"]),
        ("torch", "550.54.14", (A100,), ["driver-too-old"]),
        ("torch==2.5.*", "550.54.14", (A100,), []),
        ("torch==2.5.1", "535.54.03", (A100,), ["driver-old"]),
        ("torch<2.11", "570.26", (V100,), []),
        ("torch<2.12,>=2.11", "610.43.02", (V100,), ["card-too-old"]),
        ("torch==2.8.0", "610.43.02", (P100,), ["card-too-old"]),
        ("torch==2.6.0+cpu", "610.43.02", (A100,), ["cpu-build"]),
        ("torch==2.6.0+cu118", "470.82.01", (A100,), ["driver-old"]),
        ("torch==2.6.0+rocm6.2", "610.43.02", (A100,), []),
        ("torch==1.13.1", "610.43.02", (A100,), []),
        ("tensorflow", "610.43.02", (A100,), ["cpu-build"]),
        ("tensorflow[and-cuda]", "610.43.02", (A100,), []),
        ("tensorflow[and-cuda]==2.21.*", "470.82.01", (A100,), ["driver-too-old"]),
        ("tensorflow==2.12.0", "610.43.02", (A100,), ["cpu-build"]),
        ("tensorflow-cpu", "610.43.02", (A100,), ["cpu-build"]),
        ("jax", "610.43.02", (A100,), ["cpu-build"]),
        ("jax[cuda12]", "550.54.14", (A100,), []),
        ("jax[cuda13]", "550.54.14", (A100,), ["driver-too-old"]),
        ("jax[cuda13]", "610.43.02", (V100,), ["card-too-old"]),
        ("onnxruntime", "610.43.02", (A100,), ["cpu-build"]),
        ("numpy", "610.43.02", (A100,), []),
    ],
)  # fmt: skip
def test_what_is_noticed(
    requirement: str, driver: str, cards: tuple[tuple[str, tuple[int, int]], ...], expected: list[str]
) -> None:
    assert kinds(requirement, driver, *cards) == expected


def test_a_machine_without_gpus_has_nothing_to_doubt() -> None:
    assert doubts(Environment(("torch==2.6.0+cpu", "jax")), Gpus(why="no driver")) == []


def test_the_index_of_cpu_builds_is_noticed_too() -> None:
    environment = Environment(("torch",), index={"extra_index_urls": ["https://wheels.example/whl/cpu"]})

    assert [doubt.kind for doubt in doubts(environment, gpus("610.43.02"))] == ["cpu-build"]


def test_a_lock_is_looked_into() -> None:
    pylock = 'lock-version = "1.0"\n[[packages]]\nname = "torch"\nversion = "2.9.1+cpu"\n'
    lines = "six==1.17.0\ntorch==2.14.0\n"

    assert [d.kind for d in doubts(Environment(lock=pylock, lock_kind="pylock"), gpus("610.43.02"))] == [
        "cpu-build"
    ]
    assert [d.kind for d in doubts(Environment(lock=lines, lock_kind="requirements"), gpus("550.54.14"))] == [
        "driver-too-old"
    ]


def test_a_doubt_says_both_numbers_and_what_to_do() -> None:
    (doubt,) = doubts(Environment(("torch",)), gpus("550.54.14"))

    assert (
        doubt.text
        == "torch 2.14 comes with CUDA 13.2, which needs driver 580.65.6 or newer; there is 550.54.14"
    )
    assert doubt.hint == "--torch auto takes the build that fits: cu126"


@pytest.mark.parametrize(
    ("requirement", "driver", "cards", "expected"),
    [
        ("torch", "550.54.14", (A100,), "cu126"),
        ("torch", "580.65.06", (A100,), "cu130"),
        ("torch", "610.43.02", (A100,), "cu132"),
        ("torch", "610.43.02", (P100,), "cu126"),
        ("torch==2.9.*", "570.26", (A100,), "cu128"),
        ("torch==2.9.*", "565.10", (A100,), "cu126"),
        ("torch==2.1.2", "470.82.01", (A100,), "cu118"),
        ("torch", "470.82.01", (A100,), None),
    ],
)
def test_which_build_of_torch_fits(
    requirement: str, driver: str, cards: tuple[tuple[str, tuple[int, int]], ...], expected: str | None
) -> None:
    release = torch_release(Environment((requirement,)))
    assert release is not None

    cuda = torch_build(release, gpus(driver, *cards))

    assert (backend(cuda) if cuda else None) == expected


@pytest.mark.parametrize(
    ("clauses", "release", "expected"),
    [
        ("", (2, 9), True),
        ("==2.9.1", (2, 9), True),
        ("==2.9.*", (2, 9), True),
        ("==2.*", (2, 9), True),
        ("==2.8", (2, 9), False),
        (">=2.9.1", (2, 9), True),
        (">=2.10", (2, 9), False),
        ("<2.9", (2, 9), False),
        ("<2.9.1", (2, 9), True),
        ("<=2.9", (2, 9), True),
        ("~=2.8", (2, 9), True),
        ("~=2.8.0", (2, 9), False),
        ("!=2.9.*", (2, 9), False),
        ("!=2.9.1", (2, 9), True),
        (">=2.6,<2.10", (2, 10), False),
    ],
)
def test_which_releases_clauses_allow(clauses: str, release: tuple[int, int], expected: bool) -> None:
    assert allows(clauses, release) is expected


def test_a_driver_is_read_and_shown() -> None:
    assert version("535.54.03") == (535, 54, 3)
    assert version("unknown") is None
    assert shown((12, 6)) == "12.6"
