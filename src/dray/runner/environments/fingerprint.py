"""A quick look that tells whether an environment is still as it was built: files that were deleted, cut short, or added.

Folders by their number of entries and files by their size, the largest and an even choice of the others: what a hand, a cleaning job
or a full disk damages. A look takes milliseconds, however large the environment is; it is no proof against malice.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple

_FOLDERS = 400
_FILES = 200
_BYTECODE = "__pycache__"


def take(prefix: str) -> Dict[str, Any]:
    """Of the environment at `prefix`, now: plain data for its marker."""
    counts: List[Tuple[str, int]] = []
    sizes: List[Tuple[int, str]] = []
    ahead = ["bin", "lib"]
    while ahead:
        below: List[str] = []
        for folder in ahead:
            count, folders = 0, []
            try:
                with os.scandir(os.path.join(prefix, folder)) as entries:
                    for entry in entries:
                        if entry.name == _BYTECODE:
                            continue
                        count += 1
                        place = folder + "/" + entry.name
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(place)
                        elif entry.is_file(follow_symlinks=False):
                            sizes.append((entry.stat(follow_symlinks=False).st_size, place))
            except FileNotFoundError:
                continue
            counts.append((folder, count))
            below += folders
        ahead = sorted(below)
    sizes.sort(reverse=True)
    largest, rest = sizes[: _FILES // 2], sizes[_FILES // 2 :]
    step = max(1, len(rest) * 2 // _FILES)
    return {
        "folders": counts[:_FOLDERS],  # by depth: the packages themselves are among them
        "files": [(place, size) for size, place in largest + rest[::step]],
        "count": len(sizes),
    }


def is_whole(prefix: str, taken: Any) -> bool:
    """Whether what was `taken` is still so."""
    try:
        for place, size in taken["files"]:
            if os.lstat(prefix + "/" + place).st_size != size:
                return False
        for folder, count in taken["folders"]:
            names = os.listdir(prefix + "/" + folder)
            if len(names) - (_BYTECODE in names) != count:
                return False
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return True
