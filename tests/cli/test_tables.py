"""Tables, times and numbers as people read them."""

from __future__ import annotations

import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.cli.documents import number
from dray.cli.facts import count_of, environment_text, git_text, shell_words, show_number
from dray.cli.tables import columns, layout, shorten, squeeze, write_table
from dray.cli.times import ago, at


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    lines = layout(("NAME", "SIZE"), [("a", "5 bytes"), ("model.pkl", "12 kB")], right=("SIZE",))

    assert lines == ["NAME          SIZE", "a          5 bytes", "model.pkl    12 kB"]


def test_on_a_terminal_the_widest_column_is_cut() -> None:
    lines = layout(("ID", "COMMAND"), [("k3f9x2abqd", "python train.py --lr 0.1 --epochs 100")], width=30)

    assert lines == ["ID          COMMAND", "k3f9x2abqd  python train.py -~"]


def test_without_a_terminal_nothing_is_cut() -> None:
    out = io.StringIO()

    write_table(("COMMAND",), [("x" * 500,)], stream=out)

    assert "x" * 500 in out.getvalue()


def test_a_cell_with_control_characters_stays_in_its_line() -> None:
    out = io.StringIO()

    write_table(("PATH",), [("two\nlines\x1b]0;x\x07",)], stream=out)

    assert out.getvalue().splitlines() == ["PATH", r"two\nlines\x1b]0;x\x07"]


def test_wide_characters_count_twice() -> None:
    assert columns("数据") == 4
    assert layout(("A", "B"), [("数据", "x"), ("abcd", "y")]) == ["A     B", "数据  x", "abcd  y"]


def test_colour_changes_no_width() -> None:
    plain = layout(("S", "B"), [("failed", "x")])
    painted = layout(("S", "B"), [("failed", "x")], paint=lambda header, cell: f"\x1b[31m{cell}\x1b[0m")

    assert [line.replace("\x1b[31m", "").replace("\x1b[0m", "") for line in painted] == plain


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))), st.integers(1, 20))
def test_a_shortened_text_fits(text: str, size: int) -> None:
    assert columns(shorten(text, size)) <= max(size, 1)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(70, 200))
def test_squeezed_columns_fit_into_the_width(sizes: list[int], width: int) -> None:
    widths = {str(i): size for i, size in enumerate(sizes)}

    squeezed = squeeze(widths, width, soft=list(widths), spare=())

    assert sum(squeezed.values()) + 2 * (len(sizes) - 1) <= width


WIDE = (
    "k3f9x2abqd",
    "a-rather-long-name",
    "an-experiment",
    "local",
    "completed",
    "11m ago",
    "4h05m",
    "train.py " * 9,
)
HEADERS = ("ID", "NAME", "EXPERIMENT", "COMPUTE", "STATUS", "CREATED", "TOOK", "COMMAND")
SOFT = ("NAME", "EXPERIMENT", "COMMAND")
SPARE = ("COMPUTE", "CREATED", "TOOK", "EXPERIMENT", "NAME", "COMMAND")


@given(st.integers(21, 200))
def test_what_may_not_be_cut_is_whole_at_every_width(width: int) -> None:
    lines = layout(HEADERS, [WIDE], width=width, soft=SOFT, spare=SPARE)

    assert all(len(line) <= width for line in lines)
    assert lines[1].startswith("k3f9x2abqd")
    assert "completed" in lines[1].split()


def test_columns_that_can_be_spared_go_one_after_the_other() -> None:
    def left(width: int) -> list[str]:
        line = layout(HEADERS, [WIDE], width=width, soft=SOFT, spare=SPARE)[0]
        return [header for header in HEADERS if header[:5] in line]

    assert left(80) == list(HEADERS)
    assert left(64) == [header for header in HEADERS if header != "COMPUTE"]
    assert left(30) == ["ID", "STATUS", "COMMAND"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (-500, "now"), (5, "5s ago"), (200, "3m ago"), (7300, "2h ago"), (86400 * 3, "3d ago")],
)
def test_ages_are_one_figure(seconds: float, text: str) -> None:
    assert ago(1_000_000 - seconds, now=1_000_000) == text


def test_what_never_happened_has_no_time() -> None:
    assert ago(None) == at(None) == "-"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.03125, "0.03125"), (1.0, "1"), (12, "12"), (1 / 3, "0.3333"), (3.1e-7, "3.1e-07"), (math.nan, "nan"),
     (math.inf, "inf"), (-math.inf, "-inf"), (1e300, "1e+300")],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert show_number(value) == text


@given(st.floats())
def test_every_float_has_a_place_in_json(value: float) -> None:
    told = json.loads(json.dumps(number(value), allow_nan=False))

    assert told == value or str(float(told)) == str(value)


def test_facts_are_told_in_words() -> None:
    assert git_text({"commit": "0123456789abcdef", "branch": "main", "dirty": True}) == (
        "0123456789ab on main, with changes that are not committed"
    )
    assert git_text(None) == ""
    assert environment_text(
        {"source": "conda.yml", "python": "3.11", "packages": ["a"], "digest": "f" * 64}
    ) == ("conda.yml: python 3.11, 1 package, ffffffffffff")
    assert shell_words(["a b", "c"]) == "'a b' c"
    assert (count_of(1, "file"), count_of(0, "file")) == ("1 file", "0 files")
