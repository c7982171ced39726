"""Facts about a run or a plan in words: what a person reads in `show` and `--dry-run`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dray.core.errors import printable


def write_facts(facts: Iterable[tuple[str, object]]) -> None:
    """One line for each (name, value) that has a value; further lines of a value stand below it."""
    known = [(name, value) for name, value in facts if value not in (None, "", [])]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        lines = value if isinstance(value, list) else [value]
        for i, line in enumerate(lines):
            sys.stdout.write(f"{name if i == 0 else '':{width}}  {printable(str(line))}\n")


def shell_words(command: Sequence[str]) -> str:
    """A command line that could be pasted."""
    return " ".join(shlex.quote(word) for word in command)


def git_text(git: Mapping[str, Any] | None) -> str:
    """1a2b3c4d5e6f on main, with changes that are not committed."""
    if not git or not git.get("commit"):
        return ""
    branch = f" on {git['branch']}" if git.get("branch") else ""
    dirty = ", with changes that are not committed" if git.get("dirty") else ""
    return f"{str(git['commit'])[:12]}{branch}{dirty}"


def environment_text(environment: Mapping[str, Any] | None) -> str:
    """conda.yml: python 3.11, 4 packages, 0123456789ab."""
    if not environment:
        return ""
    packages, conda = environment.get("packages") or [], environment.get("conda") or []
    pieces = [
        f"python {environment['python']}" if environment.get("python") else "",
        count_of(len(packages) + len(conda), "package") if packages or conda else "",
        "locked" if environment.get("lock") else "",
        "by conda" if conda else "",
        str(environment.get("digest") or "")[:12],
    ]
    source = f"{environment['source']}: " if environment.get("source") else ""
    return source + ", ".join(piece for piece in pieces if piece)


def count_of(count: int, thing: str) -> str:
    """1 file, 2 files."""
    return f"{count} {thing}{'s' * (count != 1)}"


def pairs_text(values: Mapping[str, Any] | None) -> str:
    """lr=0.1 stage=dev."""
    return " ".join(f"{name}={value}" for name, value in (values or {}).items())


def show_number(value: float) -> str:
    """As many figures as help a person: 0.0312, 12, 3.1e-05."""
    if isinstance(value, int) or (value == value and abs(value) < 1e15 and value == int(value)):
        return str(int(value))
    return f"{value:.4g}"
