"""What people say of a run afterwards: checked on its way in, and shown beside what the run itself said (decision 0012)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dray.core.errors import UsageError, printable

if TYPE_CHECKING:
    from dray.store import RunRecord, Store

LONGEST_NOTE = 100_000
LONGEST_NAME = 200
LONGEST_VALUE = 10_000


def check_note(text: str | None) -> None:
    """Refuse what is too long to be a note."""
    if text is not None and len(text) > LONGEST_NOTE:
        raise UsageError(f"the note has {len(text):,} characters", why=f"the most is {LONGEST_NOTE:,}")


def checked_tags(values: Mapping[str, Any]) -> dict[str, str | None]:
    """Tags as they are stored; None takes one away. Refuses names that could not be written in an expression."""
    for name, value in values.items():
        if not name or not name.isprintable() or len(name) > LONGEST_NAME:
            raise UsageError(
                f"`{printable(name[:80])}` cannot be the name of a tag",
                why=f"it has to be 1 to {LONGEST_NAME} printable characters",
            )
        if len(str(value)) > LONGEST_VALUE:
            raise UsageError(
                f"the value of the tag `{name}` has {len(str(value)):,} characters",
                why=f"the most is {LONGEST_VALUE:,}",
                hint="a note may be longer",
            )
    return {name: None if value is None else str(value) for name, value in values.items()}


def edits_of(store: Store, record: RunRecord) -> list[dict[str, Any]]:
    """Each edit that holds, and what the run itself had said in its place."""
    edits = store.edits(record.id)
    if not edits:
        return []
    said_tags = store.said_tags(record.id)
    said = {"name": record.said_name, "note": None}
    return [
        {
            "kind": edit.kind,
            "name": edit.key or None,
            "value": edit.value,
            "said": said_tags.get(edit.key) if edit.kind == "tag" else said.get(edit.kind),
            "time": edit.t,
        }
        for edit in edits
    ]
