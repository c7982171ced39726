"""Whatever a run logged, a drawing of it keeps its width, and says nothing to the terminal but colours."""

from __future__ import annotations

import math
import re
import time

from hypothesis import given
from hypothesis import strategies as st

from dray.cli.axes import LENGTH, MOMENT, NUMBER, WHOLE, Axis
from dray.cli.curves import MARKS, Curve, Ink, Panel, Point, draw
from dray.cli.tables import columns

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
KINDS = st.sampled_from([NUMBER, WHOLE, LENGTH, MOMENT])
PLAIN = Ink()


def line(label: str, values: list[float], **smooth: list[float]) -> Curve:
    """A curve through `values`, at 0, 1, 2 ..."""
    return Curve(label, [Point(float(x), v, v, v) for x, v in enumerate(values)], **smooth)


def picture(panel: Panel, width: int = 60, height: int = 16, ink: Ink = PLAIN) -> list[str]:
    """Only the field with the curves, without the axes."""
    bar = r"\|" if not ink.braille else "[│┤]"
    rows = [COLOUR.sub("", row) for row in draw(panel, width, height, ink)]
    return [re.split(bar, row, maxsplit=1)[1] for row in rows if re.search(bar, row)]


numbers = st.floats(allow_nan=True, allow_infinity=True)
steps = st.one_of(st.integers(-(2**63), 2**63 - 1).map(float), st.floats(allow_nan=False))


@st.composite
def curves(draw_one: st.DrawFn) -> Curve:
    """Any values at any places, with any name, smoothed or not."""
    rows = draw_one(st.lists(st.tuples(steps, numbers, numbers, numbers), max_size=12))
    points = [Point(*row) for row in rows]
    smooth = draw_one(st.one_of(st.just([]), st.lists(numbers, min_size=len(rows), max_size=len(rows))))
    return Curve(draw_one(st.text(max_size=90)), points, smooth)


@given(
    st.lists(curves(), max_size=4), st.text(max_size=90), KINDS, st.booleans(), st.integers(20, 130),
    st.integers(6, 30), st.booleans(), st.booleans(),
)  # fmt: skip
def test_any_drawing_keeps_its_width_and_commands_no_terminal(
    many: list[Curve],
    title: str,
    kind: str,
    log: bool,
    width: int,
    height: int,
    coloured: bool,
    braille: bool,
) -> None:
    for row in draw(Panel(title, many, kind, log), width, height, Ink(coloured, braille)):
        text = COLOUR.sub("", row) if coloured else row
        assert text.isprintable() or not text
        assert columns(text) <= width
        assert braille or text.isascii()


@given(st.integers(6, 40), st.integers(20, 120), st.integers(1, 3))
def test_a_drawing_has_the_height_that_was_asked_for(height: int, width: int, count: int) -> None:
    panel = Panel("loss", [line("x", [1.0, 3.0, 2.0])] * count)

    assert len(draw(panel, width, max(height, 9), PLAIN)) == max(height, 9)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False), KINDS,
       st.integers(2, 12))  # fmt: skip
def test_any_axis_has_a_few_different_ticks_in_order(one: float, other: float, kind: str, most: int) -> None:
    axis = Axis(min(one, other), max(one, other), kind=kind)
    ticks = axis.ticks(most)

    assert 1 <= len(ticks) <= most
    assert [tick.place for tick in ticks] == sorted({tick.place for tick in ticks})
    assert all(0 <= tick.place <= 1 for tick in ticks)
    assert len({tick.text for tick in ticks}) == len(ticks)
    assert axis.place(min(one, other)) <= axis.place(max(one, other))


@given(st.floats(5e-324, 1.7e308), st.floats(5e-324, 1.7e308), st.integers(2, 12))
def test_any_logarithmic_axis_too(one: float, other: float, most: int) -> None:
    ticks = Axis(min(one, other), max(one, other), log=True).ticks(most)

    assert 1 <= len(ticks) <= most
    assert all(0 <= tick.place <= 1 for tick in ticks)
    assert len({tick.text for tick in ticks}) == len(ticks)


def texts(axis: Axis, most: int = 5) -> list[str]:
    return [tick.text for tick in axis.ticks(most)]


def test_ticks_are_round() -> None:
    assert texts(Axis(0, 1)) == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert texts(Axis(0.1, 0.93)) == ["0.2", "0.4", "0.6", "0.8"]
    assert texts(Axis(0, 3990, kind=WHOLE)) == ["0", "1000", "2000", "3000"]
    assert texts(Axis(0, 999_999, kind=WHOLE)) == ["0", "200k", "400k", "600k", "800k"]
    assert texts(Axis(0, 3, kind=WHOLE)) == ["0", "1", "2", "3"]
    assert texts(Axis(1e-9, 5e-9)) == ["1e-09", "2e-09", "3e-09", "4e-09", "5e-09"]


def test_ticks_of_a_logarithmic_axis_are_powers_of_ten_or_parts_of_them() -> None:
    assert texts(Axis(1e-4, 1, log=True)) == ["0.0001", "0.001", "0.01", "0.1", "1"]
    assert texts(Axis(0.5, 9, log=True)) == ["0.5", "1", "2", "5"]


def test_ticks_within_a_second_are_those_of_a_clock_too() -> None:
    begin = time.mktime((2026, 11, 18, 14, 3, 5, 0, 0, -1))
    shown = texts(Axis(begin + 0.15, begin + 0.75, kind=MOMENT))

    assert len(shown) > 1
    assert all(re.fullmatch(r"14:03:05\.\d{1,6}", text) for text in shown)
    assert shown == sorted(set(shown))


def test_ticks_of_time_are_those_of_a_clock() -> None:
    assert texts(Axis(0, 7200, kind=LENGTH)) == ["0s", "30m", "1h", "1h30m", "2h"]
    assert texts(Axis(0, 50, kind=LENGTH)) == ["0s", "15s", "30s", "45s"]
    assert texts(Axis(0, 4 * 86400, kind=LENGTH)) == ["0s", "1d", "2d", "3d", "4d"]


def test_what_rises_is_drawn_rising() -> None:
    field = picture(Panel("x", [line("x", [0.0, 1.0])]), ink=Ink(braille=False))

    starts = [len(row) - len(row.lstrip()) for row in field]
    assert starts == sorted(starts, reverse=True)
    assert len(starts) > 5 and starts[-1] == 0


def test_a_spike_reaches_its_height_although_the_mean_does_not() -> None:
    points = [Point(float(x), 1.0, 1.0, 100.0 if x == 50 else 1.0) for x in range(100)]

    field = picture(Panel("x", [Curve("x", points)]))

    assert all(row.strip() for row in field)


def test_a_gap_is_left_where_there_is_no_number() -> None:
    whole, gap = [1.0] * 30, [1.0] * 10 + [math.nan] * 10 + [1.0] * 10

    assert " " not in "".join(picture(Panel("x", [line("x", whole)]))).strip()
    assert "          " in "".join(picture(Panel("x", [line("x", gap)]))).strip()


def test_two_processes_that_log_the_same_steps_are_not_joined_by_a_line() -> None:
    low = [Point(float(x), 0.0, 0.0, 0.0) for x in range(10)]
    high = [Point(float(x), 1.0, 1.0, 1.0) for x in range(10)]

    field = picture(Panel("x", [Curve("x", low + high)]))

    assert [bool(row.strip()) for row in field] == [True] + [False] * (len(field) - 2) + [True]


def test_curves_are_told_apart_without_colours() -> None:
    many = [line(f"run{n}", [float(n)] * 50) for n in range(4)]

    rows = draw(Panel("x", many), 60, 16, PLAIN)

    for n, mark in enumerate(MARKS[:4]):
        assert f"  {mark} run{n}" in rows[-1]
        assert any(row.count(mark) > 2 for row in picture(Panel("x", many)))


def test_each_curve_has_a_colour_of_its_own() -> None:
    rows = draw(Panel("x", [line("a", [1.0, 2.0]), line("b", [3.0, 4.0])]), 60, 16, Ink(coloured=True))

    colour = dict(re.findall(r"\x1b\[(\d+)m  [ox] (\w)", rows[-1]))
    assert set(colour.values()) == {"a", "b"}
    assert all(any(f"\x1b[{one}m" in row for row in rows[1:-1]) for one in colour)


def test_what_was_smoothed_stays_visible_faintly_where_there_are_colours() -> None:
    panel = Panel("x", [line("a", [0.0, 10.0] * 10, smooth=[5.0] * 20)])

    coloured = draw(panel, 60, 16, Ink(coloured=True))
    plain = picture(panel)

    assert any("\x1b[2;36m" in row for row in coloured)
    assert sum(bool(row.strip()) for row in plain) == 1


def test_one_point_is_marked_and_its_value_is_told() -> None:
    rows = draw(Panel("x", [line("a", [3.5])], WHOLE), 40, 9, PLAIN)

    assert any("3.5 ┤" in row and "o" in row for row in rows)


def test_what_is_not_above_zero_is_left_out_of_a_logarithmic_drawing() -> None:
    field = picture(Panel("x", [line("a", [1.0] * 10 + [0.0] * 10 + [-1.0] * 10 + [1.0] * 10)], log=True))

    assert "          " in "".join(field).strip()


def test_nothing_to_draw_is_said() -> None:
    for curve in (line("a", []), line("a", [math.nan, math.inf])):
        assert "nothing that can be drawn" in "\n".join(draw(Panel("x", [curve]), 40, 9, PLAIN))


def test_a_terminal_without_such_letters_gets_plain_ones() -> None:
    rows = draw(Panel("häßlich", [line("ö", [1.0, 2.0])]), 40, 9, Ink(braille=False))

    assert "".join(rows).isascii()
    assert "o" in "".join(rows[1:-1])
