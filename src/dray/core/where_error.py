"""The error that points at a word of an expression."""

from __future__ import annotations

from dray.core.errors import UsageError, printable

_AROUND = 60
"""So many characters each side of the word are shown, and so many of the word."""
_LONGEST = 300


class WhereError(UsageError):
    """An expression, a sorting or a list of columns that cannot be read; points at the word."""

    code = "bad-expression"

    def __init__(
        self,
        what: str,
        text: str,
        position: int,
        length: int = 1,
        *,
        why: str | None = None,
        hint: str | None = None,
    ) -> None:
        what, why, hint = _short(what), why and _short(why), hint and _short(hint)
        super().__init__(f"{what}\n{_pointed(text, position, min(length, _AROUND))}", why=why, hint=hint)
        self.problem = what
        self.text = text
        self.position = position
        self.length = length


def _pointed(text: str, position: int, length: int) -> str:
    """The expression, or the part around the word, and a line that points at the word."""
    start, end = max(0, position - _AROUND), min(len(text), position + length + _AROUND)
    before, word, after = (
        "".join(c if c.isprintable() else " " for c in piece)
        for piece in (text[start:position], text[position : position + length], text[position + length : end])
    )
    left, right = "... " if start else "", " ..." if end < len(text) else ""
    pad, under = _width(left + before), max(_width(word), 1)
    return f"  {left}{before}{word}{after}{right}\n  {' ' * pad}{'^' * under}"


def _width(text: str) -> int:
    """Columns of a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _short(words: str) -> str:
    """Words with a piece of the expression in them, which may be anything."""
    return printable(words if len(words) <= _LONGEST else words[:_LONGEST] + " ...")
