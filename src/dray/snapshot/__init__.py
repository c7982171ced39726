"""Turns a code folder into a manifest and content-addressed blobs: what a run carries with it.

Begin with `take` (taking.py); the walk is `plan` (walk.py), the ignore rules are ignores.py and patterns.py. For a run it is
laid out by the runner; for a person who wants it again by laying_out.py. Everything is imported on first use, because a CLI imports this room on each start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dray.snapshot.blobs import Arriving, BlobStore, WrongContent
    from dray.snapshot.errors import (
        BadLimit,
        BadManifest,
        FolderTooBig,
        NoRoomForBlobs,
        NoSuchFolder,
        NoSuchScript,
        ScriptOutside,
        SnapshotError,
        Unreadable,
    )
    from dray.snapshot.folder import find_code_folder, path_within
    from dray.snapshot.kept_code import KeptCode, entries
    from dray.snapshot.laying_out import is_same, lay_out, leads_out
    from dray.snapshot.manifests import checked, is_digest
    from dray.snapshot.plans import LeftOut, Plan, explain_missing, summary
    from dray.snapshot.taking import Snapshot, nothing, take
    from dray.snapshot.walk import plan

__all__ = [
    "Arriving",
    "BadLimit",
    "BadManifest",
    "BlobStore",
    "FolderTooBig",
    "KeptCode",
    "LeftOut",
    "NoRoomForBlobs",
    "NoSuchFolder",
    "NoSuchScript",
    "Plan",
    "ScriptOutside",
    "Snapshot",
    "SnapshotError",
    "Unreadable",
    "WrongContent",
    "checked",
    "entries",
    "explain_missing",
    "find_code_folder",
    "is_digest",
    "is_same",
    "lay_out",
    "leads_out",
    "nothing",
    "path_within",
    "plan",
    "summary",
    "take",
]

_HOMES = {
    "blobs": ("Arriving", "BlobStore", "WrongContent"),
    "errors": (
        "BadLimit",
        "BadManifest",
        "FolderTooBig",
        "NoRoomForBlobs",
        "NoSuchFolder",
        "NoSuchScript",
        "ScriptOutside",
        "SnapshotError",
        "Unreadable",
    ),
    "folder": ("find_code_folder", "path_within"),
    "kept_code": ("KeptCode", "entries"),
    "laying_out": ("is_same", "lay_out", "leads_out"),
    "manifests": ("checked", "is_digest"),
    "plans": ("LeftOut", "Plan", "explain_missing", "summary"),
    "taking": ("Snapshot", "nothing", "take"),
    "walk": ("plan",),
}


def __getattr__(name: str) -> Any:
    """Import `name` from where it lives, once."""
    for module, names in _HOMES.items():
        if name in names:
            import importlib

            value = getattr(importlib.import_module(f"dray.snapshot.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'dray.snapshot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
