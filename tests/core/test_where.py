"""The language of `--where`: what is written is what is asked, and what cannot be read is pointed at."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dray.core.errors import UsageError
from dray.core.where import (
    And,
    Compare,
    Duration,
    Fact,
    Field,
    Has,
    Moment,
    Not,
    OneOf,
    Or,
    Sort,
    Tree,
    WhereError,
    fields_of,
    holds,
    parse,
    parse_columns,
    parse_sort,
)
from tests.core.expressions import NOW, trees

T = TypeVar("T")

# SQLite and UTF-8 have no lone surrogates, and no expression has the character zero.
_any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)

FACTS: dict[Field, Fact] = {
    Field("id"): "k3f9x2abqd",
    Field("name"): "resnet-50",
    Field("status"): "failed",
    Field("exit_code"): 3,
    Field("created"): NOW - 3600,
    Field("duration"): 125.0,
    Field("params", "lr"): 0.1,
    Field("params", "fold"): "03",
    Field("params", "debug"): False,
    Field("params", "amp"): True,
    Field("params", "decay"): None,
    Field("params", "seed"): 2**53 + 1,
    Field("tags", "stage"): "dev",
    Field("tags", "fold"): "3",
    Field("metrics", "loss", "last"): 0.25,
    Field("metrics", "loss", "min"): 0.125,
    Field("metrics", "val/loss", "last"): math.nan,
}


@settings(max_examples=300, deadline=None)
@given(trees(_any_text, _any_text))
@example(Compare(Field("params", "x"), "=", "\u0085\u2028\\ue000"))
def test_a_tree_that_is_printed_and_read_again_is_the_same(tree: Tree) -> None:
    assert parse(str(tree)) == tree
    assert str(tree).isprintable()


def _read(read: Callable[[str], T], text: str) -> tuple[T | None, WhereError | None]:
    try:
        return read(text), None
    except WhereError as error:
        return None, error


_pieces = st.sampled_from(
    [
        *(
            "metrics.loss",
            "params.",
            "tags.x",
            "status",
            "created",
            "name",
            "exit_code",
            "duration",
            'metrics."a b".min',
        ),
        *("(", ")", ",", "=", "!=", "<", "~", "!~", "in", "and", "or", "not", '"', "'", "\\", "&", "!"),
        *(
            "0.2",
            "2d",
            "failed",
            "true",
            "nan",
            "1e999",
            "2026-02-30",
            "9999999999999999-01-01",
            "2026-11-18T25:00",
            "\n",
        ),
    ]
)


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.text(max_size=40), st.lists(st.one_of(_pieces, st.text(max_size=3)), max_size=12).map(" ".join)
    )
)
@example("(" * 10_000)
@example("not " * 2000)
@example("name = '" + "\\" * 9000)
@example("duration > " + "9" * 5000 + "d")
@example("params.x = " + "9" * 5000)
@example('name = "\\U00110000"')
@example("status = \udcff")
def test_any_text_is_either_read_or_pointed_at(text: str) -> None:
    tree, error = _read(parse, text)

    if error is None:
        assert parse(str(tree)) == tree
    else:
        assert 0 <= error.position <= len(text)
        assert error.text == text
        shown, pointer = error.what.splitlines()[-2:]
        assert set(pointer) <= {" ", "^"} and "^" in pointer
        assert len(shown) < 200 and len(str(error)) < 1200


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=30), st.lists(_pieces, max_size=6).map(",".join)))
def test_any_sorting_and_any_columns_are_either_read_or_pointed_at(text: str) -> None:
    readers: tuple[Callable[[str], tuple[object, ...]], ...] = (parse_sort, parse_columns)
    for read in readers:
        found, error = _read(read, text)
        if found is None:
            assert 0 <= error.position <= len(text)
        else:
            assert read(",".join(map(str, found))) == found


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("status", Has(Field("status"))),
        ("metrics.loss<0.2", Compare(Field("metrics", "loss", "last"), "<", 0.2)),
        ("metrics.loss.last < 0.2", Compare(Field("metrics", "loss", "last"), "<", 0.2)),
        ("metrics.val/loss.min < 1", Compare(Field("metrics", "val/loss", "min"), "<", 1)),
        ('metrics."val.min" < 1', Compare(Field("metrics", "val.min", "last"), "<", 1)),
        ("metrics.min < -1e-3", Compare(Field("metrics", "min", "last"), "<", -0.001)),
        ("params.model.depth = 50", Compare(Field("params", "model.depth"), "=", 50)),
        ("params.lr == '0.1'", Compare(Field("params", "lr"), "=", "0.1")),
        ("params.day = 2026-11-18", Compare(Field("params", "day"), "=", "2026-11-18")),
        ("params.amp = TRUE", Compare(Field("params", "amp"), "=", True)),
        ("tags.fold = 3", Compare(Field("tags", "fold"), "=", "3")),
        ("name ~ resnet*", Compare(Field("name"), "~", "resnet*")),
        ("created > 1h30m", Compare(Field("created"), ">", Duration(5400))),
        ("ended >= 2026-11-18T14:00", Compare(Field("ended"), ">=", Moment("2026-11-18T14:00"))),
        ("duration > 90", Compare(Field("duration"), ">", Duration(90))),
        ("status in (failed,lost)", OneOf(Field("status"), ("failed", "lost"))),
        (
            "name OR id AND not note",
            Or((Has(Field("name")), And((Has(Field("id")), Not(Has(Field("note"))))))),
        ),
        ("(name or id) and note", And((Or((Has(Field("name")), Has(Field("id")))), Has(Field("note"))))),
        ('name = "a\\n\\"\\u00e9\\\\"', Compare(Field("name"), "=", 'a\n"é\\')),
        ("name = 'it is \"so\"'", Compare(Field("name"), "=", 'it is "so"')),
    ],
)
def test_what_is_written_is_what_is_asked(text: str, tree: Tree) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("metrics.loss < 0.3", True),
        ("metrics.loss.min < 0.2", True),
        ("metrics.loss.max < 9", False),
        ("not metrics.loss.max < 9", True),
        ("metrics.nothing != 1", False),
        ("metrics.val/loss", True),
        ("metrics.val/loss = nan", True),
        ("metrics.val/loss != nan", False),
        ("metrics.val/loss < 1 or metrics.val/loss >= 1", False),
        ("metrics.val/loss != 1", True),
        ("metrics.loss = nan", False),
        ("metrics.loss in (1, 0.25)", True),
        ("params.lr = 0.1", True),
        ("params.lr = 1e-1", True),
        ('params.lr = "0.1"', True),
        ('params.lr = "0.10"', True),
        ('params.lr < "abc"', False),
        ("params.lr ~ 0.*", True),
        ("params.fold = 3", True),
        ('params.fold = "3"', False),
        ('params.fold = "03"', True),
        ("params.fold < 4 and params.fold >= 3", True),
        ('params.fold < "1"', True),
        ("params.seed = 9007199254740993", True),
        ("params.seed = 9007199254740992", False),
        ("params.debug", False),
        ("params.debug = false", True),
        ("params.amp and params.amp = true and params.amp != false", True),
        ("params.amp = 1", False),
        ("params.decay", False),
        ("params.decay != 1", False),
        ("params.nothing != 1", False),
        ("tags.fold = 3", True),
        ("tags.fold = 03", False),
        ("tags.stage !~ d*", False),
        ("tags.nothing !~ d*", False),
        ("name ~ resnet*", True),
        ("name ~ Resnet*", False),
        ("name ~ resnet-??", True),
        ("name ~ resnet-?", False),
        ("status in (failed, lost) and created > 2d", True),
        ("created > 30m", False),
        ("created < 30m", True),
        ("started or started < 2d or started != 2026-11-18", False),
        ("duration > 2m and duration < 2m6s", True),
        ("exit_code != 0", True),
        ("note", False),
    ],
)
def test_what_is_asked_is_answered_by_the_facts(text: str, answer: bool) -> None:
    assert holds(parse(text), FACTS, NOW) is answer


def test_a_date_is_the_whole_of_its_day() -> None:
    noon = time.mktime((2026, 11, 18, 12, 0, 0, 0, 0, -1))
    moments = [noon - 86400, noon, noon + 86400]

    def answers(text: str) -> list[bool]:
        return [holds(parse(text), {Field("created"): moment}, NOW) for moment in moments]

    assert answers("created = 2026-11-18") == [False, True, False]
    assert answers("created != 2026-11-18") == [True, False, True]
    assert answers("created < 2026-11-18") == [True, False, False]
    assert answers("created <= 2026-11-18") == [True, True, False]
    assert answers("created > 2026-11-18") == [False, False, True]
    assert answers("created >= 2026-11-18") == [False, True, True]
    assert (
        answers("created = 2026-11-18T12:00")
        == answers("created = 2026-11-18T12:00:00")
        == [False, True, False]
    )
    assert answers("created > 2026-11-18T11:59") == [False, True, True]


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "a field is missing"),
        ("statu = failed", 0, "did you mean `status`"),
        ("name = x and metric.loss < 1", 13, "did you mean `metrics`"),
        ("loss < 0.2", 0, "metrics.loss if it is a metric"),
        ("status = complete", 9, "did you mean `completed`"),
        ("status in (failed, lots)", 19, "did you mean `lost`"),
        ("metrics.loss < abc", 15, "is a number, and abc is not"),
        ('metrics.loss < "0.2"', 15, "stands in quotes"),
        ("metrics.loss < 2d", 15, "is a number"),
        ("exit_code = true", 12, "is a number"),
        ("name < 5", 7, "is a text, and 5 a number"),
        ("created > 90", 10, "is a time"),
        ("created > 2026-02-30", 10, "is a time"),
        ("created = 2d", 10, "no run is exactly 2d old"),
        ("duration > 2026-11-18", 11, "is a duration"),
        ("metrics.loss ~ 0.*", 13, "patterns match texts"),
        ("params.debug < true", 15, "neither less nor more"),
        ("params.x = 1e999", 11, "too big"),
        ("0.1 < metrics.loss", 0, "a field comes first"),
        ("0.1 < metrics.loss < 0.2", 0, "a field comes first"),
        ("metrics.loss < 0.2 < 3", 19, "field in front of it"),
        ("metrics < 0.2", 0, "needs a name"),
        ('metrics."a".mean < 1', 11, ".last, .min, .max"),
        ('params."a".min < 1', 10, "nothing can follow"),
        ("status = failed name", 16, "`and` or `or` is missing"),
        ("(status", 0, "never closed"),
        ("(status name)", 8, "`)` is missing"),
        ("status)", 6, "never opened"),
        ("status in failed", 10, "list in brackets"),
        ("status =", 8, "a value is missing"),
        ("status = and name", 9, "a value is missing"),
        ("and status", 0, "in front of `and`"),
        ("status && name", 7, "write `and`"),
        ('name = "abc', 7, "quote is never closed"),
        ('name = ab"c"', 7, "middle of a word"),
        (r'name = "a\d"', 9, "means nothing in quotes"),
        ("name = \0", 7, "character zero"),
    ],
)
def test_what_cannot_be_read_is_pointed_at(text: str, position: int, words: str) -> None:
    with pytest.raises(WhereError) as caught:
        parse(text)

    assert caught.value.position == position
    assert words in str(caught.value)
    assert isinstance(caught.value, UsageError) and caught.value.exit_code == 2


def test_the_pointer_stands_under_the_word() -> None:
    with pytest.raises(WhereError) as caught:
        parse("name = 名前 and statu = failed")

    assert caught.value.what.splitlines()[1:] == [
        "  name = 名前 and statu = failed",
        "                  ^^^^^",
    ]


def test_of_a_long_expression_the_part_around_the_word_is_shown() -> None:
    text = " or ".join(["metrics.loss < 1"] * 50 + ["statu"] + ["metrics.loss < 1"] * 50)

    with pytest.raises(WhereError) as caught:
        parse(text)

    shown, pointer = caught.value.what.splitlines()[1:]
    assert len(shown) < 150
    assert shown[pointer.index("^") :].startswith("statu or")


def test_nesting_and_length_have_bounds_that_no_person_reaches() -> None:
    deep = "(" * 49 + "name" + ")" * 49
    assert parse(deep) == Has(Field("name"))
    with pytest.raises(WhereError, match="nested"):
        parse("(" + deep + ")" + " and (" * 3)
    with pytest.raises(WhereError, match="longer"):
        parse("name = " + "x" * 10_000)
    assert parse(" or ".join(["(name)"] * 900))


def test_sortings_and_columns_are_lists_of_fields() -> None:
    assert parse_sort("-metrics.acc, created") == (
        Sort(Field("metrics", "acc", "last"), True),
        Sort(Field("created")),
    )
    assert parse_columns('id,params."a, b",metrics.loss.min') == (
        Field("id"),
        Field("params", "a, b"),
        Field("metrics", "loss", "min"),
    )
    for text, position in (("", 0), ("id,", 3), ("id name", 3), ("id,-name", 3)):
        with pytest.raises(WhereError) as caught:
            parse_columns(text)
        assert caught.value.position == position
    with pytest.raises(WhereError, match="nearest|did you mean `name`"):
        parse_sort("-nam")


def test_the_fields_of_an_expression_are_known() -> None:
    tree = parse("metrics.loss < 1 and (params.lr in (1, 2) or not name)")

    assert [str(field) for field in fields_of(tree)] == ["metrics.loss", "params.lr", "name"]


@given(st.text("ab", max_size=6), st.text("ab*?", max_size=5))
def test_patterns_match_as_a_list_of_all_texts_says(text: str, pattern: str) -> None:
    """Replace each star by every text that could stand there, and each question mark by either letter."""
    letters = [("a", "b") if char == "?" else (char,) for char in pattern]
    stars = [
        ["".join(t) for n in range(7) for t in itertools.product("ab", repeat=n)] if c == ("*",) else list(c)
        for c in letters
    ]
    possible = {""}
    for choice in stars:
        possible = {start + end for start in possible for end in choice if text.startswith(start + end)}

    assert holds(Compare(Field("name"), "~", pattern), {Field("name"): text}) == (text in possible)
