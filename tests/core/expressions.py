"""Random expressions, over the names and values that random histories have; shared with the tests of the store."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from dray.core.states import RunState
from dray.core.where import And, Compare, Duration, Field, Has, Moment, Not, OneOf, Or, Tree, Value

NAMES = ("loss", "val/loss", "a.min", "min", "", 'say "x"', "café 名", "%_[*]", "line\nbreak", "3d")
TEXTS = (
    "dev",
    "Dev",
    "",
    "0.1",
    "0.10",
    "1",
    "true",
    "a*b",
    "[x]",
    "caf\u00e9",
    "\U0001f600",
    "\u00ff",
    "-5",
    "1e400",
)
NUMBERS = (
    0,
    1,
    -1,
    0.1,
    -0.0,
    5e-324,
    1e308,
    2**53 + 1,
    float(2**53),
    2**63 - 1,
    -(2**63),
    0.30000000000000004,
)
PATTERNS = ("*", "?", "d*", "*e?", "a[*]b", "[x]", "??v", "", "*a*b*", "0.*", "caf?")
NOW = 1_780_000_000.0

_names = st.sampled_from(NAMES)
_texts = st.sampled_from(TEXTS)
_numbers = st.sampled_from(NUMBERS)
_lengths = st.sampled_from((0.0, 0.1, 1.0, 60.0, 90.0, 7200.0, 86400.0 * 2, 1e-7, 123456.789)).map(Duration)
_moments = st.sampled_from(
    ("2026-05-28", "2026-05-28T20:26", "2026-05-28T20:26:40", "1999-12-31", "2026-05-29T00:00")
).map(Moment)
_specials = st.sampled_from((math.nan, math.inf, -math.inf))
_equals = st.sampled_from(("=", "!="))
_orders = st.sampled_from(("<", "<=", ">", ">="))
_patterns = st.sampled_from(("~", "!~"))


def _fields(names: st.SearchStrategy[str]) -> dict[str, st.SearchStrategy[Field]]:
    return {
        "text": st.one_of(
            st.sampled_from(("id", "name", "experiment", "compute", "reason", "note")).map(Field),
            names.map(lambda name: Field("tags", name)),
        ),
        "status": st.just(Field("status")),
        "number": st.one_of(
            st.just(Field("exit_code")),
            st.builds(Field, st.just("metrics"), names, st.sampled_from(("last", "min", "max"))),
        ),
        "time": st.sampled_from(("created", "started", "ended")).map(Field),
        "duration": st.just(Field("duration")),
        "param": names.map(lambda name: Field("params", name)),
    }


def _conditions(names: st.SearchStrategy[str], texts: st.SearchStrategy[str]) -> st.SearchStrategy[Tree]:
    field = _fields(names)
    any_op = st.one_of(_equals, _orders)
    states = st.sampled_from([str(state) for state in RunState])
    numbers = st.one_of(_numbers, _specials)
    scalars: st.SearchStrategy[Value] = st.one_of(texts, _numbers, st.booleans())

    def lists(values: st.SearchStrategy[Value]) -> st.SearchStrategy[tuple[Value, ...]]:
        return st.lists(values, min_size=1, max_size=3).map(tuple)

    return st.one_of(
        st.builds(Compare, field["text"], any_op, texts),
        st.builds(
            Compare,
            st.one_of(field["text"], field["param"], field["status"]),
            _patterns,
            st.sampled_from(PATTERNS),
        ),
        st.builds(Compare, field["status"], _equals, states),
        st.builds(Compare, field["number"], any_op, numbers),
        st.builds(Compare, field["time"], any_op, _moments),
        st.builds(Compare, field["time"], _orders, _lengths),
        st.builds(Compare, field["duration"], any_op, _lengths),
        st.builds(Compare, field["param"], _equals, scalars),
        st.builds(Compare, field["param"], _orders, st.one_of(texts, _numbers)),
        st.builds(OneOf, field["text"], lists(texts)),
        st.builds(OneOf, field["status"], lists(states)),
        st.builds(OneOf, field["number"], lists(numbers)),
        st.builds(OneOf, field["param"], lists(scalars)),
        st.builds(OneOf, field["time"], lists(_moments)),
        st.one_of(*field.values()).map(Has),
    )


def trees(
    names: st.SearchStrategy[str] = _names, texts: st.SearchStrategy[str] = _texts
) -> st.SearchStrategy[Tree]:
    """Expressions of every kind, as the parser could give them."""

    def joined(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(parts.map(And), parts.map(Or), inner.map(Not))

    conditions = _conditions(names, texts)
    return st.recursive(conditions, joined, max_leaves=8)
