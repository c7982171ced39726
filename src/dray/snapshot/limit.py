"""How much may travel, and what to leave out when it is too much."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from dray.core.errors import UsageError
from dray.core.sizes import parse_size
from dray.snapshot.errors import BadLimit, FolderTooBig
from dray.snapshot.plans import FileRow, Plan

DEFAULT_LIMIT = 4_000_000_000
VARIABLE = "DRAY_SNAPSHOT_LIMIT"


def limit_from_environment() -> int:
    """The most bytes that may travel."""
    text = os.environ.get(VARIABLE, "")
    if not text.strip():
        return DEFAULT_LIMIT
    try:
        return parse_size(text)
    except UsageError:
        raise BadLimit(text) from None


def require_below(limit: int, plan: Plan) -> None:
    """Raise FolderTooBig when the files of `plan` are more than `limit` bytes."""
    if plan.bytes > limit:
        entries = biggest(plan.files)
        # Next to gigabytes, the script itself would be offered for being left out.
        entries = [entry for entry in entries if entry[1] * 100 >= plan.bytes] or entries
        told = [(path, size, ignore_line(path)) for path, size in entries]
        raise FolderTooBig(plan.root, plan.bytes, limit, told, plan.ignore_file)


def biggest(files: Iterable[FileRow], count: int = 5) -> list[tuple[str, int]]:
    """The `count` biggest entries of the top folder, folders ending in `/`.

    A folder that owes nine tenths of its size to one entry gives way to it, because `src/data/` says more than `src/`.
    """
    sizes: dict[str, int] = {}
    children: dict[str, set[str]] = {"": set()}
    for row in files:
        path, size = row[0], row[1]
        folder = ""
        for step in path.split("/")[:-1]:
            inner = f"{folder}{step}/"
            children[folder].add(inner)
            children.setdefault(inner, set())
            sizes[inner] = sizes.get(inner, 0) + size
            folder = inner
        children[folder].add(path)
        sizes[path] = size
    named = sorted(children[""], key=lambda p: (-sizes[p], p))[:count]
    return [(told, sizes[told]) for told in (_weightiest(path, sizes, children) for path in named)]


def _weightiest(path: str, sizes: dict[str, int], children: dict[str, set[str]]) -> str:
    while inner := children.get(path):
        heaviest = max(inner, key=lambda p: (sizes[p], p))
        if sizes[heaviest] < 0.9 * sizes[path] or not heaviest.endswith("/"):
            return path
        path = heaviest
    return path


def ignore_line(path: str) -> str:
    """The line for an ignore file at the top that drops exactly `path`; what no line can say becomes `?`."""
    quoted = re.sub(r"([\\*?\[])", r"\\\1", path)
    quoted = re.sub(r"[\n\r\udc80-\udcff]", "?", quoted)
    return "/" + (quoted[:-1] + "\\ " if quoted.endswith(" ") else quoted)
