"""The word for an answer that is an error."""

from __future__ import annotations


class Trouble(Exception):
    """An answer of `{"error":code,"text":...}`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
