"""A command line as far as it has been typed: its words, and the one that the cursor is in.

The quoting is that of sh, which zsh and fish share as far as people type it. A quote may still be open.
"""

from __future__ import annotations

from typing import NamedTuple

_BLANKS = " \t\n"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-")


class Typed(NamedTuple):
    """What stands in front of the cursor."""

    words: list[str]
    """Those that are finished, without their quotes; the program's name is the first."""
    word: str
    """What there is of the word at the cursor, without its quotes."""
    raw: str
    """The same as it was typed."""
    quote: str
    """The quote that is open at the cursor, or nothing."""


def read(line: str) -> Typed:
    """Take `line` apart; it ends at the cursor."""
    words: list[str] = []
    word, start, quote, is_inside = "", 0, "", False
    at = 0
    while at < len(line):
        char = line[at]
        if not quote and char in _BLANKS:
            if is_inside:
                words.append(word)
            word, start, is_inside = "", at + 1, False
        elif not quote and char in "'\"":
            quote, is_inside = char, True
        elif char == quote:
            quote = ""
        elif char == "\\" and quote != "'":
            at += 1
            following = line[at : at + 1]
            # Inside double quotes a backslash means something in front of these only.
            word += following if not quote or following in '"\\$`' else char + following
            is_inside = True
        else:
            word += char
            is_inside = True
        at += 1
    return Typed(words, word, line[start:], quote)


def continued(typed: Typed, whole: str) -> str:
    """What must be typed in place of the current word for it to become `whole`, which begins with it."""
    rest = whole[len(typed.word) :]
    if typed.quote == "'":
        return typed.raw + rest.replace("'", "'\\''")
    if typed.quote == '"':
        return typed.raw + "".join(f"\\{char}" if char in '"\\$`' else char for char in rest)
    # A character that is no letter of ASCII means nothing to a shell.
    return typed.raw + "".join(c if c in _PLAIN or ord(c) > 127 else f"\\{c}" for c in rest)
