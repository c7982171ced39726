"""Says whether a value out of somebody's JSON is what it has to be: the fields of run.json, end.json and edits.json.

Read `require` first. What fits here can be shown, asked for and stored like a run of this history.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dray.core.states import ENDED

Check = Callable[[Any], bool]
_INT64 = 1 << 63
_LONGEST_S = 1e300


class DoesNotFit(ValueError):
    """Says what is wrong."""


def require(value: Any, fields: Mapping[str, Check], what: str, *, optional: bool = False) -> dict[str, Any]:
    """`value` as the object it is; DoesNotFit names the field that does not fit. Unknown fields are left alone."""
    if not isinstance(value, dict):
        raise DoesNotFit(f"{what} is not an object")
    for name, check in fields.items():
        if name not in value:
            if not optional:
                raise DoesNotFit(f"{what} has no `{name}`")
        elif not check(value[name]):
            raise DoesNotFit(f"`{name}` in {what} is not what it has to be")
    return value


def text(value: Any) -> bool:
    """A string."""
    return isinstance(value, str)


def flag(value: Any) -> bool:
    """True or false."""
    return isinstance(value, bool)


def number(value: Any) -> bool:
    """A number that any program can hold."""
    return type(value) in (int, float) and -_LONGEST_S < value < _LONGEST_S


def moment(value: Any) -> bool:
    """Seconds since 1970 that fall on a date with four figures: others cannot be shown."""
    return number(value) and -6e10 < value < 2.5e11


def whole(value: Any) -> bool:
    """A whole number of at most 64 bits."""
    return type(value) is int and -_INT64 <= value < _INT64


def count(value: Any) -> bool:
    """The same, not negative."""
    return whole(value) and value >= 0


def maybe(check: Check) -> Check:
    """Or null."""
    return lambda value: value is None or check(value)


def several(check: Check) -> Check:
    """A list of such."""
    return lambda value: isinstance(value, list) and all(map(check, value))


def row(*checks: Check) -> Check:
    """A list of exactly these."""
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(checks)
        and all(check(item) for check, item in zip(checks, value, strict=True))
    )


def by_name(check: Check) -> Check:
    """An object whose values are such."""
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def fields(known: Mapping[str, Check]) -> Check:
    """An object with these fields, where they are there."""

    def fits(value: Any) -> bool:
        return isinstance(value, dict) and all(
            name not in value or check(value[name]) for name, check in known.items()
        )

    return fits


def _plain(value: Any) -> bool:
    return isinstance(value, (str, bool)) or value is None or number(value)


def _ended(value: Any) -> bool:
    return isinstance(value, str) and value in ENDED


_ENVIRONMENT = fields({"packages": several(text), "python": maybe(text), "source": text, "digest": text})
_CONTAINER = fields(
    {
        **dict.fromkeys(("image", "dockerfile", "engine", "user", "network", "ca"), maybe(text)),
        **dict.fromkeys(("memory", "shm"), maybe(count)),
        "mounts": several(row(text, text, flag)),
    }
)
REASON = fields({"kind": _plain, "text": _plain})

SPEC: Mapping[str, Check] = {"id": text, "experiment": text, "compute": text, "command": several(text)}
SPEC_MORE: Mapping[str, Check] = {
    "script": flag,
    "token": text,
    "name": maybe(text),
    "created": moment,
    "submitted_by": text,
    "folder": text,
    "snapshot": text,
    "files": count,
    "bytes": count,
    "left_out": several(row(text, text)),
    "git": maybe(fields({"commit": maybe(text), "branch": maybe(text)})),
    "python": maybe(text),
    "environment": maybe(_ENVIRONMENT),
    "container": maybe(_CONTAINER),
    "env": by_name(text),
    "secrets": several(text),
    "tags": by_name(text),
    "timeout_s": maybe(number),
    "outputs": several(text),
    "buffered": flag,
    "grace_s": number,
}

FACTS: Mapping[str, Check] = {
    "status": _ended,
    "created": moment,
    "reason": maybe(REASON),
    "attempts": count,
    "pid": maybe(whole),
    "exit_code": maybe(whole),
    "signal": maybe(whole),
    "started": maybe(moment),
    "ended": maybe(moment),
    "duration_s": maybe(number),
    "host": maybe(fields({})),
    "environment": maybe(fields({})),
    "complete": flag,
    "end": maybe(count),
}

STREAM: Mapping[str, Check] = {
    "attempt": count,
    "name": text,
    "bytes": count,
    "opened": maybe(lambda value: number(value) and math.isfinite(value)),
}

_FILES = fields({"files": several(row(text, count)), "count": count, "bytes": count})
END: Mapping[str, Check] = {
    "outputs": maybe(_FILES),
    "elsewhere": maybe(fields({"files": several(text), "count": count})),
    "leftovers": maybe(several(fields({"pid": whole, "name": text}))),
    "reason": maybe(REASON),
    "started": maybe(moment),
    "ended": maybe(moment),
}

EDIT: Mapping[str, Check] = {
    "kind": lambda value: value in ("name", "note", "tag"),
    "key": text,
    "value": maybe(text),
    "t": number,
}
