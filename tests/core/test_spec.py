"""What is to be run goes to JSON and comes back, and its environment keeps its name."""

from __future__ import annotations

from dray.core.spec import Environment, RunSpec

FULL = Environment(
    ("numpy==2",),
    "3.11",
    "conda_dependencies.yml",
    conda=("ffmpeg=6",),
    channels=("conda-forge", "./mine"),
    lock="lock-version = '1.0'\n",
    lock_kind="pylock",
    editable=("lib",),
    index={"index_url": "https://a.example/simple", "extra_index_urls": ["https://b.example"]},
)


def test_an_environment_of_before_conda_and_locks_keeps_its_digest() -> None:
    digest = "62806f0eb1f1e04abf711de978e4bcdac0785b797da974d43f64910671d058ba"

    assert Environment(("numpy==2",), "3.11").digest == digest
    assert Environment.from_json({"packages": ["numpy==2"], "python": "3.11", "source": "x"}).digest == digest


def test_where_it_was_read_is_no_part_of_the_digest() -> None:
    assert Environment(("a",), source="here").digest == Environment(("a",), source="there").digest


def test_every_other_part_of_it_is() -> None:
    parts = [
        Environment(("numpy==2",)),
        Environment(python="3.11"),
        Environment(conda=("numpy==2",)),
        Environment(channels=("numpy==2",)),
        Environment(lock="x", lock_kind="pylock"),
        Environment(lock="x", lock_kind="requirements"),
        Environment(editable=("lib",)),
        Environment(index={"index_url": "https://a.example"}),
        Environment(),
    ]

    assert len({part.digest for part in parts}) == len(parts)


def test_an_environment_comes_back_from_json_as_it_went() -> None:
    assert Environment.from_json(FULL.to_json()) == FULL


def test_what_a_later_version_says_of_an_environment_is_passed_over() -> None:
    assert Environment.from_json({**FULL.to_json(), "moon": "full"}) == FULL


def test_a_run_comes_back_from_json_with_its_environment() -> None:
    spec = RunSpec("r-1", "e", "local", ("train.py",), environment=FULL, refresh=True)

    assert RunSpec.from_json(spec.to_json()) == spec
