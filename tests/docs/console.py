"""Reads the examples of a page and compares what they promise with what happens.

A fenced block `console` holds lines `$ command`, each followed by the output it promises: `...` inside a line stands
for any text, a line that is only `...` for any lines. A fenced block `python NAME` is the file NAME.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class File:
    """A file that the reader is told to write."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the reader is told to type, and what the page says it prints."""

    line: int
    words: str
    promised: tuple[str, ...]


def examples(page: str) -> Iterator[File | Command]:
    """Files and commands of `page`, in reading order."""
    for block in FENCE.finditer(page):
        info = block["info"].split()
        if info[:1] == ["console"]:
            yield from commands(block["body"], page[: block.start("body")].count("\n") + 1)
        elif len(info) == 2 and info[0] in {"python", "text", "yaml"}:
            yield File(info[1], block["body"])


def commands(body: str, first_line: int) -> Iterator[Command]:
    """The commands of one block."""
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(body.splitlines(), first_line):
        if line.startswith("$ "):
            found.append((number, line[2:], []))
        elif found:
            found[-1][2].append(line.rstrip())
        elif line.strip():
            raise ValueError(f"line {number}: output before the first `$ ` of its block")
    for number, words, promised in found:
        yield Command(number, words, tuple(promised))


def matches(promised: Sequence[str], printed: str) -> bool:
    """Whether `printed` is what was promised. Space at the end of lines, and empty last lines, do not count."""
    pattern = ""
    for line in promised:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(re.escape(piece) for piece in line.rstrip().split("...")) + r"\n"
    text = "".join(line.rstrip() + "\n" for line in printed.rstrip().splitlines())
    return re.fullmatch(pattern, text) is not None
