"""What of a script's output reaches the terminal."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.core.escapes import CSI_LIMIT, STRING_LIMIT, EscapeFilter


def filtered(*pieces: bytes) -> bytes:
    """All that passes of `pieces`."""
    through = EscapeFilter()
    return b"".join([through.feed(piece) for piece in pieces] + [through.finish()])


@pytest.mark.parametrize(
    "harmless",
    [
        b"loss 0.3\r\nacc\t0.9\b\n",
        "épôch 数 ███▌ 🙂\n".encode(),
        b"\x1b[31mred\x1b[0m \x1b[1;38;2;1;2;3mrgb\x1b[m \x1b[4:3mcurly",
        b"\x1b[2K\x1b[1A\x1b[10;20H\x1b[5G\x1b[J\x1b[3d\x1b[1;1f",
        b"\x1b[s\x1b[u\x1b7\x1b8\x1bM",
        b"latin1 \xe9 \xff\n",
    ],
)
def test_text_colours_and_cursor_movement_pass_unchanged(harmless: bytes) -> None:
    assert filtered(harmless) == harmless
    assert filtered(*(bytes([byte]) for byte in harmless)) == harmless


@pytest.mark.parametrize(
    "command",
    [
        b"\x1b]0;title\x07",
        b"\x1b]52;c;ZXZpbA==\x1b\\",
        b"\x1b]8;;http://x.example\x1b\\",
        b"\x1bP+q544e\x1b\\",
        b"\x1b_Gf=32;AAAA\x1b\\",
        b"\x1b^private\x1b\\",
        b"\x1bXstart\x1b\\",
        b"\x1b]0;ended by a C1\xc2\x9c",
        b"\x1b]0;cancelled\x18",
        b"\x1b[6n",
        b"\x1b[c",
        b"\x1b[>0c",
        b"\x1b[?1049h",
        b"\x1b[?25l",
        b"\x1b[21t",
        b"\x1b[3J",
        b"\x1b[1;5r",
        b"\x1b[5;1s",
        b"\x1b[!p",
        b"\x1b[1$}",
        b"\x1b(0",
        b"\x1b#8",
        b"\x1bc",
        b"\x1bZ",
        b"\x1b=",
        b"\x07\x00\x0e\x0f\x0b\x0c\x7f\x05",
        b"\xc2\x9b",
        b"\xc2\x85",
        b"\x9b",
    ],
)
def test_what_commands_the_terminal_is_dropped_however_it_is_cut(command: bytes) -> None:
    whole = b"before" + command + b"after\n"

    assert filtered(whole) == b"beforeafter\n"
    for cut in range(1, len(whole)):
        assert filtered(whole[:cut], whole[cut:]) == b"beforeafter\n"


def test_a_control_character_that_hides_in_a_broken_character_is_dropped() -> None:
    # e2 9b is the beginning of a character that never comes: an 8-bit terminal would read 9b as ESC [.
    assert filtered(b"\xe2\x9b6n") == b"\xe26n"
    assert filtered(b"\xc0\x9b6n") == b"\xc06n"
    assert filtered(b"\xe2\x1b[m\x9b\x9b") == b"\xe2\x1b[m"


def test_a_title_that_never_ends_takes_the_rest_of_its_line_only() -> None:
    assert filtered(b"\x1b]0;oops\nnext line\n") == b"\nnext line\n"


def test_a_title_without_any_end_hides_a_bounded_number_of_bytes() -> None:
    shown = filtered(*[b"\x1b]0;"] + [b"x" * 65536] * 20)

    assert len(shown) == 20 * 65536 + len("0;") - STRING_LIMIT + 1


def test_an_endless_sequence_of_parameters_is_not_held_back() -> None:
    through = EscapeFilter()

    shown = through.feed(b"\x1b[" + b"1;" * 5000) + through.feed(b"m\n")

    assert b"\x1b" not in shown
    assert len(shown) > 10_000 - CSI_LIMIT


def test_what_is_left_of_a_sequence_at_the_end_is_dropped() -> None:
    assert filtered(b"done\x1b[3") == b"done"
    assert filtered(b"done\x1b") == b"done"


def test_a_colour_is_remembered_so_that_it_can_be_switched_off() -> None:
    through = EscapeFilter()

    assert not through.coloured
    through.feed(b"\x1b[31mred")

    assert through.coloured


_TRICKY = st.sampled_from(
    [b"\x1b", b"[", b"]", b"P", b"\\", b"\x07", b"m", b"31", b";", b"?", b"\n", b"\xc2", b"\x9b", b"\x9c", b"\xe2",
     b"\xf0\x9f", b"\x18", b"0", b"J", b"text ", b"(", b" ", b"\x80", "é".encode(), "🙂".encode(), b"\x1b[0m"]
)  # fmt: skip
_WILD = st.lists(_TRICKY | st.binary(max_size=6), max_size=40).map(b"".join)


@given(_WILD, st.lists(st.integers(0, 200), max_size=12))
def test_a_stream_filtered_in_any_pieces_is_the_same_as_filtered_at_once(
    data: bytes, cuts: list[int]
) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]

    assert filtered(*pieces) == filtered(data)


@given(_WILD)
def test_nothing_but_the_allowed_sequences_ever_passes(data: bytes) -> None:
    shown = filtered(data)

    allowed = rb"\x1b(?:\[[0-9;:]*[A-HJKade-fm`]|\[[su]|[78DEM])"
    rest = re.sub(allowed, b" ", shown)
    assert not re.search(rb"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]", rest)
    assert not re.search("[\x80-\x9f]", rest.decode(errors="replace"))
    assert b"\x1b[3J" not in shown


@given(_WILD)
def test_filtering_twice_changes_nothing_more(data: bytes) -> None:
    assert filtered(filtered(data)) == filtered(data)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))))
def test_all_text_without_control_characters_passes(text: str) -> None:
    assert filtered(text.encode()) == text.encode()


def test_plain_text_passes_much_faster_than_any_terminal_draws() -> None:
    line = b"epoch 12 step 3456 loss 0.123456 acc 0.98765 lr 0.001\n"
    piece = line * 1200
    through = EscapeFilter()

    began = time.perf_counter()
    for _ in range(300):
        through.feed(piece)
    took = time.perf_counter() - began

    # 1,200 MB/s on the machine it was written on; a loop over bytes in Python would give 10.
    assert 300 * len(piece) / took > 100e6
