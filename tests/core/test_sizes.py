"""Sizes as people write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.core.errors import UsageError
from dray.core.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("40GB", 40 * 10**9), ("1.5 tb", 15 * 10**11), ("2GiB", 2 << 30), ("1.5TiB", 3 << 39), ("500MB", 5 * 10**8),
     ("7", 7), ("0", 0), (" 3 kB ", 3000)],
)  # fmt: skip
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "lots", "1e9", "5 gigs", "9" * 400, "1.GB", "\u0665GB"])
def test_what_is_no_size_is_told_how_sizes_look(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text)

    assert "500MB, 50GB or 1.5TiB" in str(caught.value)


@given(st.text())
def test_any_text_is_a_size_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_size(text) >= 0
