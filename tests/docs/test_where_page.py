"""The page on expressions names what there is, and what it shows can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dray.core.states import RunState
from dray.core.where import parse
from dray.core.where_tree import FAMILIES, KINDS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "where.md").read_text()
SHOWN = [
    *re.findall(r"^    (\S.*)$", PAGE, flags=re.MULTILINE),
    *(text for text in re.findall(r"`([^`]+)`", PAGE) if re.search(r"\w (!?=|<|>) ", text)),
]


def test_every_field_has_its_row() -> None:
    rows = re.findall(
        r"^\| (`.+?`) \|", PAGE.partition("## Fields")[2].partition("## ")[0], flags=re.MULTILINE
    )
    named = {name.split(".")[0] for row in rows for name in re.findall(r"`(.+?)`", row)}

    assert named == {*KINDS, *FAMILIES}
    assert all(str(state) in PAGE for state in RunState)


@pytest.mark.parametrize("text", SHOWN)
def test_every_expression_can_be_read(text: str) -> None:
    parse(text)


def test_there_are_expressions_to_be_read() -> None:
    assert len(SHOWN) >= 8
