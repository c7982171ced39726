"""Answers a shell that asks how a word may go on: `dray _complete SHELL LINE [WORD]`.

Read `main`. Commands and options come from a table that is written from the commands (`completion_table`), so that nothing
of them has to be imported; the rest comes from the history, read only. Every trouble is an empty answer.

The answer's first line says what follows: `words`, `nospace` (words that go on), `files` or `dirs` (the shell knows them).
Each further line is a word, for zsh and fish with a tab and what it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dray.cli import commands, typed
from dray.cli.completion_table import TABLE

LAST = "@last"
FILES, DIRS = "files", "dirs"
_MOST = 300
_LOGS = ("script", "environment", "image")


class Word(NamedTuple):
    """One way to go on."""

    text: str
    about: str = ""
    goes_on: bool = False
    """No blank belongs behind it."""


class _Option(NamedTuple):
    names: tuple[str, ...]
    kind: str
    """What its value is; nothing for a flag."""
    about: str


Answer = list[Word] | str
"""Words, or FILES or DIRS."""


def main(words: Sequence[str]) -> int:
    """Write the answer; the exit code is always 0."""
    try:
        shell, line, *rest = words
        lines = answer(shell, line, rest[0] if rest else None)
        # Bytes: a word that is not UTF-8 was typed so, and goes back so.
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
        sys.stdout.buffer.flush()
    except BaseException:  # also Ctrl-C: nothing may disturb a half-typed line
        os._exit(0)
    return 0


def answer(shell: str, line: str, replaced: str | None = None) -> list[str]:
    """The lines of the answer. `replaced` is what bash will replace, which may be less than the word."""
    at = typed.read(line)
    found = complete(at.words[1:], at.word, is_open=bool(at.quote))
    if isinstance(found, str):
        return [found]
    fitting = [word for word in found if word.text.startswith(at.word) and word.text.isprintable()][:_MOST]
    first = "nospace" if any(word.goes_on for word in fitting) else "words"
    if shell != "bash":
        # What it is may hold anything, such as the name that somebody gave a run.
        return [
            first,
            *(f"{word.text}\t{word.about if word.about.isprintable() else ''}" for word in fitting),
        ]
    kept = at.raw[: len(at.raw) - len(replaced)] if replaced and at.raw.endswith(replaced) else ""
    kept = at.raw if replaced == "" else kept
    return [first, *(typed.continued(at, word.text)[len(kept) :] for word in fitting)]


def complete(words: Sequence[str], word: str, *, is_open: bool = False) -> Answer:
    """How `word` may go on behind `words`, which follow the program's name."""
    if words and words[0] == "help":
        words = words[1:]
        if words:
            return []
    if not words:
        named = {name: about for name, about, *_ in reversed(commands.COMMANDS)}
        tops = [Word(name, named.get(name, "")) for name in [*commands.top_level(), "help"]]
        return [*tops, Word("--help"), Word("--version")] if word.startswith("-") else tops
    name = words[0]
    inner = {key.partition(" ")[2]: key for key in TABLE if key.startswith(f"{name} ")}
    if inner:
        if len(words) == 1:
            return [Word(one) for one in inner]
        name = inner.get(words[1], "")
        words = words[1:]
    if name not in TABLE:
        return []
    return _Command(name, is_open=is_open).complete(words[1:], word)


class _Command:
    """One command of the table."""

    def __init__(self, name: str, *, is_open: bool) -> None:
        options, self.arguments, self.is_mixed = TABLE[name]
        self.options = [_Option(*row) for row in options]
        self.is_open = is_open
        self.places: list[str] = []
        """Words that are no options and no values of options."""

    def complete(self, words: Sequence[str], word: str) -> Answer:
        """Its words so far, and the one to be completed."""
        waiting: _Option | None = None
        only_places = False
        for one in words:
            if waiting is not None:
                waiting = None
            elif only_places or not one.startswith("-") or one == "-":
                self.places.append(one)
                only_places = only_places or not self.is_mixed
            elif one == "--":
                only_places = True
            elif "=" not in one:
                option = self._option(one)
                waiting = option if option and option.kind else None
        if waiting is not None:
            return self._of_kind(waiting.kind, word)
        if word.startswith("-") and not only_places:
            return self._of_option(word)
        return self._of_kind(self._argument(len(self.places)), word)

    def _option(self, name: str) -> _Option | None:
        return next((option for option in self.options if name in option.names), None)

    def _argument(self, place: int) -> str:
        """The kind of the place-th argument; the last one may be repeated."""
        if not self.arguments:
            return ""
        kind, repeats = self.arguments[min(place, len(self.arguments) - 1)]
        return kind if repeats or place < len(self.arguments) else ""

    def _of_option(self, word: str) -> Answer:
        name, equals, value = word.partition("=")
        if not equals:
            return [
                Word(one, option.about)
                for option in self.options
                for one in option.names
                # A single letter is quicker typed than chosen.
                if one.startswith("--") or len(word) == 1 or one == word
            ]
        option = self._option(name)
        found = self._of_kind(option.kind, value) if option and option.kind else []
        if isinstance(found, str):
            return found
        return [one._replace(text=f"{name}={one.text}") for one in found]

    def _of_kind(self, kind: str, word: str) -> Answer:
        if kind in (FILES, DIRS):
            return kind
        if kind.startswith("choice "):
            return [Word(one) for one in kind.split()[1:]]
        if kind == "log":
            return [Word(one) for one in _LOGS]
        finder = _FINDERS.get(kind)
        return [] if finder is None else list(finder(_History(self), word))


class _History:
    """What the history knows, opened when it is asked."""

    def __init__(self, command: _Command) -> None:
        from dray.cli.home import home
        from dray.store.peek import Peek

        self.command = command
        self.peek = Peek(home())

    def runs(self, word: str) -> Iterable[Word]:
        """Ids, then names; those that were named before are left out."""
        found = self.peek.runs("" if word.startswith("@") else word)
        if found and (not word or word.startswith("@")):
            yield Word(LAST, "the newest run")
        for run_id, name in found:
            if run_id not in self.command.places:
                yield Word(run_id, name or "")
        # Names after all ids: they are what begins with other letters, mostly.
        for name in dict.fromkeys(name for _, name in found if name):
            if name not in self.command.places:
                yield Word(name, next(run_id for run_id, other in found if other == name))

    def runs_or_tags(self, word: str) -> Iterable[Word]:
        """`dray tag`: runs first, then K=V."""
        key, equals, _ = word.partition("=")
        if equals:
            return self._values_of_tag(key)
        tags = [Word(f"{name}=", "tag", goes_on=True) for name in self.peek.names("tags", word)]
        if any("=" in place for place in self.command.places):
            return tags
        return [*self.runs(word), *(tags if self.command.places else ())]

    def tags(self, word: str) -> Iterable[Word]:
        """K=V."""
        key, equals, _ = word.partition("=")
        if equals:
            return self._values_of_tag(key)
        return [Word(f"{name}=", goes_on=True) for name in self.peek.names("tags", word)]

    def tag_names(self, word: str) -> Iterable[Word]:
        """Names of tags."""
        return map(Word, self.peek.names("tags", word))

    def runs_or_metrics(self, word: str) -> Iterable[Word]:
        """`dray metrics`: metrics of the runs that were named, else a run, or a metric of the newest one."""
        named = [name for place in self.command.places for name in self.peek.metrics_of(place)]
        own = [Word(name, "metric") for name in dict.fromkeys(named) if name.startswith(word)]
        if own and word:
            return own
        other = [] if named else [Word(name, "metric") for name in self.peek.names("metrics", word)]
        return [*own, *self.runs(word), *other]

    def experiments(self, word: str) -> Iterable[Word]:
        """Names of experiments."""
        return self._values("experiment", word)

    def computes(self, word: str) -> Iterable[Word]:
        """Computes that are attached, and those of old runs, without asking anybody."""
        used = [word.text for word in self._values("compute", word)]
        return map(Word, dict.fromkeys(["local", *self.peek.computes(), *used]))

    def where(self, word: str) -> Iterable[Word]:
        """Expressions."""
        from dray.cli.completing_fields import expression

        found = expression(self.peek, word, is_open=self.command.is_open)
        return [Word(one.text, one.about, goes_on=not one.is_end) for one in found]

    def sorting(self, word: str) -> Iterable[Word]:
        """Fields with `-` in front, or without."""
        from dray.cli.completing_fields import fields

        return [Word(one.text, one.about, goes_on=True) for one in fields(self.peek, word, may_descend=True)]

    def columns(self, word: str) -> Iterable[Word]:
        """Fields."""
        from dray.cli.completing_fields import fields

        return [Word(one.text, one.about, goes_on=True) for one in fields(self.peek, word, may_descend=False)]

    def _values(self, field: str, word: str) -> list[Word]:
        from dray.core.where_tree import Field

        return [Word(value, _runs(count)) for value, count in self.peek.values(Field(field), word)]

    def _values_of_tag(self, key: str) -> list[Word]:
        from dray.core.where_tree import Field

        return [
            Word(f"{key}={value}", _runs(count)) for value, count in self.peek.values(Field("tags", key), "")
        ]


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


_FINDERS: dict[str, Callable[[_History, str], Iterable[Word]]] = {
    "run": _History.runs,
    "run-or-tag": _History.runs_or_tags,
    "run-or-metric": _History.runs_or_metrics,
    "tag": _History.tags,
    "tag-name": _History.tag_names,
    "experiment": _History.experiments,
    "compute": _History.computes,
    "where": _History.where,
    "sort": _History.sorting,
    "columns": _History.columns,
}
