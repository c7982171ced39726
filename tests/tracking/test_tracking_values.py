"""Wild values: each becomes JSON, or one sentence."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.tracking import values
from tests.tracking.tracked import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@settings(deadline=None)
@given(st.floats())
def test_a_float_comes_back_the_same(value: float) -> None:
    text = values.number(value)

    assert text is not None
    back = float(json.loads(text))
    assert back == value or (math.isnan(back) and math.isnan(value))
    assert json.loads(text, parse_constant=pytest.fail) is not None


@settings(deadline=None)
@given(st.integers(-(2**53), 2**53))
def test_a_whole_number_comes_back_exactly(value: int) -> None:
    assert json.loads(values.number(value) or "") == value


@settings(deadline=None)
@given(st.text(st.characters(), max_size=300))
def test_a_string_comes_back_readable_by_everyone(value: str) -> None:
    back = json.loads(values.quote(value))

    assert back.encode("utf-8").decode("utf-8") == value.encode("utf-8", "backslashreplace").decode()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(anything)
def test_a_cell_is_json_whatever_it_holds(value: Any) -> None:
    assert isinstance(
        json.loads(values.cell(value), parse_constant=pytest.fail), str | int | float | bool | None
    )


@settings(deadline=None)
@given(anything)
def test_a_step_is_a_whole_number_or_null(value: Any) -> None:
    step = json.loads(values.step_text(value))

    assert step is None or (isinstance(step, int) and abs(step) <= 2**63)


class Scalar:
    """What numpy's and torch's scalars look like from outside."""

    dtype = "float32"

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, 1),
        (Scalar(0.25), 0.25),
        (Scalar(3), 3),
        (Scalar(True), 1),
        (Scalar(math.nan), "NaN"),
        (Fraction(1, 4), 0.25),
        (10**30, 1e30),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_what_means_a_number_is_one(value: Any, number: float | str) -> None:
    assert json.loads(values.number(value) or "") == number


@pytest.mark.parametrize(
    "value",
    [
        None,
        1j,
        [1.0],
        (1,),
        {"a": 1},
        b"1",
        object(),
        int,
        Scalar(ValueError("two")),
        Scalar(1j),
        10**400,
        print,
    ],
)
def test_what_means_no_number_is_none(value: Any) -> None:
    assert values.number(value) is None


def test_two_long_names_stay_two_and_fit(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (json.loads(values.quote_name("n" * 10_000 + end)) for end in "ab")

    assert one != two
    assert len(one) == len(two) == values.LONGEST_NAME


def test_odd_values_leave_a_sentence_each_and_the_rest_is_kept(world: World) -> None:
    _, err = world.run(
        "import dray\n"
        "for i in range(3):\n"
        "    dray.log(none=None, list=[1], complex=1j, text='0.3', good=1.5, step=i)"
    )

    assert world.only("metrics") == [{"step": i, "values": {"good": 1.5}} for i in range(3)]
    assert world.only("text") == [{"name": "text", "step": i, "value": "0.3"} for i in range(3)]
    assert sorted(line.split("'")[1] for line in err.splitlines()) == ["complex", "list", "none", "text"]


def test_a_whole_number_beyond_all_floats_is_not_called_no_number(world: World) -> None:
    _, err = world.run("import dray; dray.log(big=10**400, good=1)")

    assert err == "dray: metric 'big' was given a whole number that is too large; it is left out\n"
    assert world.only("metrics") == [{"step": None, "values": {"good": 1}}]


def test_odd_names_are_kept_as_far_as_they_are_names(world: World) -> None:
    _, err = world.run(
        "import dray\n"
        "dray.log({'': 1, 'a\\nb': 2, 3: 4, 'x' * 10_000: 5, '\\udc80': 6, True: 7, '\\u00e9\"': 8})\n"
        "dray.log({'': 'text'}); dray.log_params({'': 1, 'p': 2}); dray.log([1, 2]); dray.log()"
    )

    (metrics,) = world.only("metrics")
    names = list(metrics["values"])
    assert names[:2] == ["a\nb", "3"]
    assert [len(n) for n in names if n.startswith("x")] == [500]
    assert names[3:] == ["\\udc80", "True", 'é"']
    assert world.only("params") == [{"values": {"p": 2}}]
    assert world.only("text") == []
    assert len(err.splitlines()) == 5


@pytest.mark.parametrize("step", ["'7'", "1.5", "float('nan')", "2**64", "[1]"])
def test_a_step_that_is_none_keeps_its_values(world: World, step: str) -> None:
    _, err = world.run(f"import dray; dray.log(loss=1, step={step}); dray.log(loss=2, step=3.0)")

    assert world.only("metrics") == [
        {"step": None, "values": {"loss": 1}},
        {"step": 3, "values": {"loss": 2}},
    ]
    assert err.count("\n") == 1
