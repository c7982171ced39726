"""How people ask for GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from dray.core.errors import UsageError
from dray.core.gpus import Wish, parse_gpus, wish_of, words


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("0", {"count": 0}),
        ("2", {"count": 2}),
        (" all", {"count": "all"}),
        ("a100:2", {"count": 2, "model": "a100"}),
        ("A100", {"count": 1, "model": "A100"}),
        ("Tesla K80:1", {"count": 1, "model": "Tesla K80"}),
        ("0,1", {"count": 2, "ids": ["0", "1"]}),
        ("3,", {"count": 1, "ids": ["3"]}),
        ("0/1", {"count": 1, "ids": ["0/1"]}),
        ("GPU-5fd4,1", {"count": 2, "ids": ["GPU-5fd4", "1"]}),
    ],
)
def test_wishes_are_read_as_people_write_them(text: str, asked: dict[str, Any]) -> None:
    assert parse_gpus(text) == asked


@pytest.mark.parametrize(
    "text", ["", " ", "-1", "1.5", "a100:0", "0,x y", "٣", "1000", ",", "a100:1:2", "x\x1b[2J"]
)
def test_anything_else_lists_the_ways_to_say_it(text: str) -> None:
    with pytest.raises(UsageError) as told:
        parse_gpus(text)
    assert "a100:1" in str(told.value.why)
    assert "\x1b" not in str(told.value)


def _asked(**said: Any) -> dict[str, Any]:
    return wish_of(said).asked(2, "gpu1")


def test_who_says_nothing_gets_the_default_of_the_compute() -> None:
    assert _asked() == {"count": 2, "default": "gpu1"}
    assert _asked(cpus=3) == {"count": 2, "default": "gpu1"}
    assert Wish().asked(None, "local") == {"count": None, "default": "local"}
    assert _asked(gpu_memory="20GB") == {"count": 1, "memory": 20 * 10**9}
    assert _asked(gpus=0) == {"count": 0}
    assert _asked(gpus=[0, 1]) == {"count": 2, "ids": ["0", "1"]}


def test_sharing_needs_a_word_about_memory() -> None:
    with pytest.raises(UsageError, match="how much of its memory"):
        _asked(gpus=1, share=True)
    assert _asked(gpus=1, gpu_memory="2GiB", share=True) == {"count": 1, "memory": 2 << 30, "share": True}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"gpus": 0, "gpu_memory": "1GB"}, "asks for no GPU, and the rest for one"),
        ({"gpus": 1, "gpu_ids": "number"}, "no way to name GPUs"),
        ({"cpus": 0}, "at least one core"),
    ],
)
def test_contradictions_are_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _asked(**said)


def test_a_wish_in_words() -> None:
    quiet: list[dict[str, Any] | None] = [None, {"count": 0}, {"count": None}]
    assert [words(one) for one in quiet] == ["", "", ""]
    assert words(_asked()) == "2 GPUs (default of gpu1)"
    assert words(_asked(gpus="a100:2", gpu_memory="20GB"), 4) == "2 a100 GPUs with 20.0 GB; 4 cores"
    assert words(_asked(gpus="0,1")) == "GPU 0, 1"
