"""Which values there are of a field: the most common ones, and from where to where they go."""

from __future__ import annotations

import math

import pytest

from dray.core.where import parse_columns
from dray.core.where_tree import Field
from dray.store import Store
from tests.store.world import EVENTS, ending, line, metric, new_run


@pytest.fixture
def filled(store: Store) -> Store:
    for number, loss in enumerate([0.5, math.nan, -1.0]):
        run = new_run(store, 1000.0 + number, experiment="a" if number else "b", tags={"stage": "dev"})
        params = {"lr": [0.1, "0.01", None][number], "mixed": [True, "x", 3][number]}
        value = "NaN" if loss != loss else loss
        store.ingest(run, 1, EVENTS, 0, line("params", {"values": params}) + metric(1, loss=value))
        store.end(run, 1, ending() | {"duration_s": 60.0 * number})
    return store


def field(text: str) -> Field:
    return parse_columns(text)[0]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("experiment", [("a", 2), ("b", 1)]),
        ("status", [("completed", 3)]),
        ("name", []),
        ("tags.stage", [("dev", 3)]),
        ("tags.other", []),
        ("params.mixed", [("3", 1), ("true", 1), ("x", 1)]),
    ],
)
def test_values_come_with_how_many_runs_have_them(
    filled: Store, asked: str, found: list[tuple[str, int]]
) -> None:
    assert filled.values(field(asked)) == found
    assert filled.values(field(asked), 1) == found[:1]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("metrics.loss", (-1.0, 0.5)),
        ("metrics.loss.max", (-1.0, 0.5)),
        ("metrics.other", None),
        ("params.lr", (0.01, 0.1)),
        ("params.mixed", (3, 3)),
        ("created", (1000.0, 1002.0)),
        ("duration", (0.0, 120.0)),
        ("exit_code", (0, 0)),
    ],
)
def test_numbers_go_from_the_least_to_the_greatest(
    filled: Store, asked: str, found: tuple[float, float] | None
) -> None:
    assert filled.span(field(asked)) == found
