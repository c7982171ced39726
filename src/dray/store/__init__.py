"""The history: what every run was, said and left, in one SQLite file with the bytes of the logs beside it.

Read `Store`. It stands on `core` alone; who fetches the bytes, and from where, is not known here.
"""

from dray.store.contents import BrokenLine, Edit, Line
from dray.store.errors import (
    AmbiguousRun,
    CursorGap,
    DiskFull,
    DiskTrouble,
    HistoryBusy,
    HistoryDamaged,
    HistoryTooNew,
    HomeIsAFile,
    HomeReadOnly,
    HomeUnusable,
    NoSuchRun,
    RunExists,
    StoreError,
    UnsafeName,
)
from dray.store.events import decided
from dray.store.points import Series
from dray.store.runs import RunRecord
from dray.store.store import Store
from dray.store.streams import Shared

__all__ = [
    "AmbiguousRun",
    "BrokenLine",
    "CursorGap",
    "DiskFull",
    "DiskTrouble",
    "Edit",
    "HistoryBusy",
    "HistoryDamaged",
    "HistoryTooNew",
    "HomeIsAFile",
    "HomeReadOnly",
    "HomeUnusable",
    "Line",
    "NoSuchRun",
    "RunExists",
    "RunRecord",
    "Series",
    "Shared",
    "Store",
    "StoreError",
    "UnsafeName",
    "decided",
]
