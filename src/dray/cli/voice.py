"""What dray itself says: always on stderr, never in the script's way."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

from dray.core.errors import printable

INDENT = " " * 6  # the width of "dray: "
_COLOURS = {
    "completed": 32, "failed": 31, "canceled": 33, "lost": 35, "running": 36, "ok": 32, "warn": 33, "bad": 31,
    "dray:": 31,  # in front of an error
}  # fmt: skip


def is_terminal(fd: int) -> bool:
    """Somebody looks at it; a file descriptor that is closed is no terminal."""
    try:
        return os.isatty(fd)
    except OSError:
        return False


def can_ask() -> bool:
    """There is somebody to answer a question."""
    return is_terminal(0) and is_terminal(2)


def ask(question: str) -> bool:
    """Whether the answer is yes; no answer is no. Ctrl-C leaves, as everywhere."""
    try:
        sys.stderr.write(f"dray: {printable(question)} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        pass_echo()
        raise


def pass_echo() -> None:
    """After Ctrl-C: the terminal has written `^C`, and the next word deserves a line of its own."""
    if can_ask():
        sys.stderr.write("\n")
        sys.stderr.flush()


@dataclass(slots=True)
class Voice:
    """How much is said: `-q` errors and bad ends only, `-v` everything."""

    quiet: bool = False
    verbose: bool = False
    on_terminal: bool = field(default_factory=lambda: is_terminal(2))

    def say(self, text: str, *more: str, state: str = "") -> None:
        """A sentence, and lines that belong to it; not with -q. `state` is a word in it that has a colour."""
        if not self.quiet:
            self.warn(text, *more, state=state)

    def detail(self, text: str) -> None:
        """A sentence for those who asked for more."""
        if self.verbose:
            self.warn(text)

    def warn(self, text: str, *more: str, state: str = "") -> None:
        """A sentence that is said whatever was asked for."""
        # Texts may come from another machine: no control character of theirs reaches the terminal.
        before, word, after = printable(text).partition(state) if state else (printable(text), "", "")
        first = f"dray: {before}{paint_word(word, fd=2)}{after}"
        lines = [first, *(INDENT + printable(line) for line in more)]
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


def paints(fd: int) -> bool:
    """Colour is welcome on `fd`."""
    return is_terminal(fd) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint_word(word: str, *, fd: int = 1) -> str:
    """A state or level in its colour, where colours are welcome."""
    colour = _COLOURS.get(word.strip())
    return f"\x1b[{colour}m{word}\x1b[0m" if colour and paints(fd) else word
