"""What can go wrong, in the user's words: one root class, and the errors that several rooms share.

DrayError
├── UsageError            the words of a command do not fit (exit code 2)
│   └── UnknownName       a name that is not there; lists the ones that are
├── NotStarted            a run was not started, for certain (exit code 125)
├── LinkLost              the way to the machine broke while the run goes on (exit code 75)
└── (each room's own, in its `errors.py`)

Every class has a stable `code`; docs/errors.md has a heading of that name.
"""

from __future__ import annotations

from collections.abc import Iterable


class DrayError(Exception):
    """The root of all errors that dray raises on purpose."""

    code = "error"
    exit_code = 1

    def __init__(self, what: str, *, why: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(
            part
            for part in (
                self.what,
                f"  why: {self.why}" if self.why else "",
                f"  try: {self.hint}" if self.hint else "",
            )
            if part
        )


class UsageError(DrayError):
    """The words of a call do not fit; nothing was done."""

    code = "usage"
    exit_code = 2


class UnknownName(UsageError):
    """A name that is not there."""

    code = "unknown-name"

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str | None = None) -> None:
        known = list(known)
        near = nearest(name, known)
        listed = ", ".join(f"`{printable(k)}`" for k in known[:12]) + (" ..." if len(known) > 12 else "")
        super().__init__(
            f"there is no {kind} `{printable(name)}`",
            why=f"did you mean `{printable(near)}`?"
            if near
            else (f"known: {listed}" if known else f"there is no {kind} yet"),
            hint=hint,
        )
        self.near = near


class NotStarted(DrayError):
    """The run was not started, and never will be under this id."""

    code = "not-started"
    exit_code = 125


class LinkLost(DrayError):
    """The connection to the machine broke; the run goes on without us."""

    code = "link-lost"
    exit_code = 75


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `word` was most likely meant to be."""
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def printable(text: str) -> str:
    """`text` safe to show in one line: no newline, no control character, no lone surrogate."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
