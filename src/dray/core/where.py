"""Reads the small language of `--where`, `--sort` and `--columns`: text in, plain data out (decision 0011).

Read `parse` first. What an expression means is said in `dray.core.where_tree`, whose names are offered here too.
Every tree can be printed, and parsed again to an equal one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from dray.core.errors import nearest
from dray.core.scalars import Fact, as_number
from dray.core.states import RunState
from dray.core.where_error import WhereError
from dray.core.where_tree import (
    DURATION,
    EQUALS,
    FAMILIES,
    KINDS,
    NUMBER,
    ORDERS,
    PARAM,
    PARTS,
    PATTERNS,
    TEXT,
    TIME,
    And,
    Compare,
    Duration,
    Field,
    Has,
    Moment,
    Not,
    OneOf,
    Or,
    Sort,
    Tree,
    Value,
    as_span,
    fields_of,
    holds,
)

__all__ = [
    "And",
    "Compare",
    "Duration",
    "Fact",
    "Field",
    "Has",
    "Moment",
    "Not",
    "OneOf",
    "Or",
    "Sort",
    "Tree",
    "Value",
    "WhereError",
    "fields_of",
    "holds",
    "parse",
    "parse_columns",
    "parse_sort",
]

LONGEST = 10_000
DEEPEST = 50

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<term>(?:[^\s"'()=!<>~,&|;]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+)
    |(?P<op>==|!=|<=|>=|!~|[=<>~])
    |(?P<mark>[(),])
    |(?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)
_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_NUMBER_WORDS = {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf}
_BOOLS = {"true": True, "false": False}
_NOUNS = {NUMBER: "a number", TIME: "a time", DURATION: "a duration"}
_SUCH_AS = {
    NUMBER: "numbers look like 0.2, 5 or 1e-3",
    TIME: "times look like 2d (two days ago), 2026-11-18 or 2026-11-18T14:00",
    DURATION: "durations look like 90s, 10m, 4h, 2d or 1h30m",
}
_INSTEAD = {
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`, or `!=`",
    ";": "one expression is enough",
}


class _Token(NamedTuple):
    kind: str
    """term, op, mark or end."""
    text: str
    start: int


def parse(text: str) -> Tree:
    """The tree of an expression, such as `metrics.loss < 0.2 and params.lr = 0.1`. Raises WhereError."""
    reader = _Reader(text)
    tree = reader.either()
    if reader.now.kind != "end":
        if reader.now.kind == "op":
            reader.fail("an operator has a field in front of it", why="such as metrics.loss < 0.2")
        reader.fail(
            "`and` or `or` is missing here" if reader.now.text != ")" else "this bracket was never opened"
        )
    return tree


def parse_sort(text: str) -> tuple[Sort, ...]:
    """`-metrics.acc,created`: by which fields, the first one first; with `-` the greatest first. Raises WhereError."""
    return tuple(
        Sort(reader.field(skip=1 if down else 0), down)
        for reader in _Reader(text).items()
        for down in (reader.now.text.startswith("-"),)
    )


def parse_columns(text: str) -> tuple[Field, ...]:
    """`id,name,metrics.loss,params.lr`: the fields in that order. Raises WhereError."""
    return tuple(reader.field() for reader in _Reader(text).items())


class _Reader:
    """The tokens of a text, one after the other; `now` is the one to be read."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise WhereError(f"it is longer than {LONGEST:,} characters", text, LONGEST)
        self._tokens = self._split()
        self._depth = 0
        self.now = next(self._tokens)

    def fail(
        self, what: str, at: _Token | None = None, *, why: str | None = None, hint: str | None = None
    ) -> NoReturn:
        token = at or self.now
        raise WhereError(what, self.text, token.start, len(token.text), why=why, hint=hint)

    def take(self) -> _Token:
        token = self.now
        if token.kind != "end":
            self.now = next(self._tokens)
        return token

    def items(self) -> Iterator[_Reader]:
        """Itself, in front of each of the fields that commas separate."""
        while True:
            yield self
            if self.now.kind == "end":
                return
            if self.now.text != ",":
                self.fail(
                    "fields are separated by commas", hint='names with blanks stand in quotes: params."a b"'
                )
            self.take()

    def either(self) -> Tree:
        parts = [self._both()]
        while self._is_word("or"):
            self.take()
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def field(self, skip: int = 0) -> Field:
        """The field that comes next, behind `skip` characters."""
        token = self.take()
        if token.kind != "term":
            self.fail("a field is missing here", token, why="such as status, params.lr or metrics.loss")
        token = _Token(token.kind, token.text[skip:], token.start + skip)
        family, dot, rest = token.text.partition(".")
        if family in KINDS and not dot:
            return Field(family)
        if family not in FAMILIES:
            self._unknown(token, family)
        if not rest:
            self.fail(f"`{family}` needs a name behind it", token, why=f"such as {family}.{_example(family)}")
        return self._named(token, family, rest)

    def _both(self) -> Tree:
        parts = [self._negated()]
        while self._is_word("and"):
            self.take()
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negated(self) -> Tree:
        self._depth += 1
        if self._depth > DEEPEST:
            self.fail(f"it is nested more than {DEEPEST} deep")
        if self._is_word("not"):
            self.take()
            tree: Tree = Not(self._negated())
        elif self.now.text == "(":
            opened = self.take()
            tree = self.either()
            if self.now.text != ")":
                self.fail("this bracket is never closed" if self.now.kind == "end" else "a `)` is missing here",
                          opened if self.now.kind == "end" else None)  # fmt: skip
            self.take()
        else:
            tree = self._comparison()
        self._depth -= 1
        return tree

    def _comparison(self) -> Tree:
        start = self.now
        if start.kind == "term" and start.text.lower() in ("and", "or", "in"):
            self.fail(f"something is missing in front of `{start.text}`")
        field = self.field()
        if self._is_word("in"):
            self.take()
            return OneOf(field, tuple(self._list(field)))
        if self.now.kind != "op":
            return Has(field)
        op = self.take()
        name = "=" if op.text == "==" else op.text
        if name in PATTERNS and field.kind in _NOUNS:
            self.fail(f"`{field}` is {_NOUNS[field.kind]}, and patterns match texts", op)
        return Compare(field, name, self._value(field, name))

    def _list(self, field: Field) -> Iterator[Value]:
        if self.now.text != "(":
            self.fail("behind `in` comes a list in brackets", why="such as status in (failed, lost)")
        self.take()
        yield self._value(field, "=")
        while self.now.text == ",":
            self.take()
            yield self._value(field, "=")
        if self.now.text != ")":
            self.fail("a `,` or a `)` is missing here")
        self.take()

    def _value(self, field: Field, op: str) -> Value:
        token = self.take()
        if token.kind != "term" or token.text.lower() in ("and", "or", "not", "in"):
            self.fail("a value is missing here", token, hint="a text of that kind stands in double quotes")
        is_quoted = _STRING.fullmatch(token.text) is not None
        if not is_quoted and ('"' in token.text or "'" in token.text):
            self.fail("a quote in the middle of a word", token, why="quotes go around the whole text")
        word = self._unquoted(token, token.text) if is_quoted else _plain(token.text)
        if field.kind == TEXT:
            return self._text(field, op, token, word, is_quoted)
        if field.kind == PARAM:
            return self._for_param(field, op, token, word, is_quoted)
        value = None if is_quoted else _measure(field.kind, word)
        if value is None:
            self.fail(
                f"`{field}` is {_NOUNS[field.kind]}, and {token.text} is not",
                token,
                why="it stands in quotes" if _measure(field.kind, word) is not None else _SUCH_AS[field.kind],
            )
        if field.kind == TIME and isinstance(value, Duration) and op in EQUALS:
            self.fail(
                f"no run is exactly {word} old", token, why=f"write {field} > {word} for less than that ago"
            )
        return value

    def _text(self, field: Field, op: str, token: _Token, word: str, is_quoted: bool) -> str:
        if op in ORDERS and not is_quoted and as_number(word) is not None:
            self.fail(
                f"`{field}` is a text, and {word} a number",
                token,
                hint=f'to compare them as texts: {field} {op} "{word}"',
            )
        if field.family == "status" and op in EQUALS and word not in tuple(RunState):
            near = nearest(word, tuple(RunState))
            known = f"known: {', '.join(RunState)}"
            self.fail(f"there is no status `{word}`", token, why=f"did you mean `{near}`?" if near else known)
        return word

    def _for_param(self, field: Field, op: str, token: _Token, word: str, is_quoted: bool) -> Value:
        if is_quoted or op in PATTERNS:
            return word
        if word.lower() in _BOOLS:
            if op in ORDERS:
                self.fail(f"`{word}` is neither less nor more than anything", token)
            return _BOOLS[word.lower()]
        number = as_number(word)
        if number is not None and math.isinf(number):
            self.fail("this number is too big", token)
        return word if number is None else number

    def _named(self, token: _Token, family: str, rest: str) -> Field:
        string = _STRING.match(rest)
        if string is None:
            if '"' in rest or "'" in rest:
                self.fail("a quote in the middle of a name", token, why=f'write {family}."the whole name"')
            name, dot, part = rest.rpartition(".")
            if family == "metrics" and dot and name and part in PARTS:
                return Field(family, _plain(name), part)
            return Field(family, _plain(rest), "last" if family == "metrics" else "")
        name = self._unquoted(_Token("term", string[0], token.start + token.text.index(string[0])), string[0])
        part = rest[string.end() :]
        if family == "metrics" and part[1:] in PARTS and part[0] == ".":
            return Field(family, name, part[1:])
        if part:
            at = _Token("term", part, token.start + len(token.text) - len(part))
            some = f"only {', '.join('.' + p for p in PARTS)}" if family == "metrics" else "nothing"
            self.fail(f"{some} can follow the name", at)
        return Field(family, name, "last" if family == "metrics" else "")

    def _unknown(self, token: _Token, family: str) -> NoReturn:
        if _STRING.match(token.text) or as_number(token.text) is not None:
            self.fail("a field comes first, then the value", token, why="such as metrics.loss < 0.2")
        near = nearest(family.lower(), [*KINDS, *FAMILIES])
        fields = ", ".join(KINDS) + ", " + ", ".join(f"{name}.X" for name in FAMILIES)
        is_name = "." not in token.text and near is None
        self.fail(
            f"there is no field `{_plain(family)}`",
            _Token(token.kind, family or token.text, token.start),
            why=f"did you mean `{near}`?" if near else f"fields: {fields}",
            hint=f"metrics.{family} if it is a metric, params.{family} if it is a parameter"
            if is_name
            else None,
        )

    def _unquoted(self, token: _Token, string: str) -> str:
        """The text that stands in quotes."""

        def meant(found: re.Match[str]) -> str:
            if found[3] is not None:
                if found[3] not in _ESCAPED:
                    at = _Token("term", found[0], token.start + 1 + found.start())
                    self.fail("this means nothing in quotes", at, hint=r"a backslash is written \\")
                return _ESCAPED[found[3]]
            number = int(found[1] or found[2], 16)
            if number > 0x10FFFF or number == 0:
                at = _Token("term", found[0], token.start + 1 + found.start())
                self.fail("there is no such character", at)
            return chr(number)

        return _plain(_ESCAPE.sub(meant, string[1:-1]))

    def _is_word(self, word: str) -> bool:
        return self.now.kind == "term" and self.now.text.lower() == word

    def _split(self) -> Iterator[_Token]:
        place = 0
        while True:
            found = _TOKEN.match(self.text, place)
            if found is None:
                blanks = len(self.text) - len(self.text[place:].lstrip())
                self._stray(max(place, blanks))
            kind = found.lastgroup or "end"
            if "\0" in found[0]:
                raise WhereError(
                    "the character zero cannot be asked for", self.text, found.start() + found[0].index("\0")
                )
            yield _Token(kind, found[kind], found.start(kind))
            place = found.end()

    def _stray(self, place: int) -> NoReturn:
        char = self.text[place]
        if char in "\"'":
            raise WhereError("this quote is never closed", self.text, place)
        raise WhereError(f"`{char}` means nothing here", self.text, place, hint=_INSTEAD.get(char))


def _measure(kind: str, word: str) -> Value | None:
    """A number, a time or a duration; None when `word` is none."""
    number = as_number(word)
    if kind == NUMBER:
        found = _NUMBER_WORDS.get(word.lower()) if number is None else number
        return None if number is not None and math.isinf(number) else found
    span = as_span(word)
    if isinstance(span, Duration):
        # A bare number of seconds is a length, but "created > 90" could mean anything.
        return span if math.isfinite(span.seconds) and (kind == DURATION or number is None) else None
    if kind == TIME and isinstance(span, Moment):
        try:
            span.span()
        except (ValueError, OverflowError):
            return None
        return span
    return None


def _plain(text: str) -> str:
    """Without lone surrogates, which the history cannot hold either."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _example(family: str) -> str:
    return {"params": "lr", "tags": "stage"}.get(family, "loss")
