"""Exported runs into this history: checked first, then taken in whole. Who wrote them is not known, so nothing is believed.

Read `Importing.one` first. Everything is copied, and what is checked is the copy: what becomes of the original meanwhile does
not matter. docs/reference/export.md has the limits.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dray.core.errors import DrayError, UsageError, printable
from dray.core.ids import PATTERN
from dray.runner import gate
from dray.store import DiskFull, NoSuchRun, RunExists, from_files
from dray.store.to_files import EDITS, RUN
from dray.workspace import beside
from dray.workspace.errors import BadExport, NoRoomToImport, RunDiffers
from dray.workspace.events import Event, Progress
from dray.workspace.listing import NAME, Listing, Making, Place, require_a_tree, require_inside

if TYPE_CHECKING:
    from dray.store import Store
    from dray.store.whole import WholeRun
    from dray.workspace.facade import Workspace

MANIFEST = "manifest.json"
CODE = "code/"
OUTPUTS = "outputs/"
IMPORTED, HERE, FINE = "imported", "already here", "can be imported"
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Imported(NamedTuple):
    """What became of one folder that was to be imported."""

    folder: Path
    run_id: str | None
    """None: the folder does not say."""
    outcome: str | None
    """`imported`, `already here`, with `dry_run` `can be imported`; None: none of these, and `trouble` says why."""
    remarks: tuple[str, ...] = ()
    """What it came without, and what differs without being another run."""
    trouble: DrayError | None = None


class Importing:
    """Exported runs on their way into one history."""

    def __init__(self, workspace: Workspace, on: Callable[[Event], None] | None, *, dry_run: bool) -> None:
        self._workspace = workspace
        self._store = workspace.store
        self._home = workspace.home
        self._tell = on or (lambda event: None)
        self._dry_run = dry_run

    def all(self, folder: Path) -> Iterator[Imported]:
        """Import what is in `folder`, one after the other; what is wrong with one keeps none of the others away."""
        found = exports_in(folder)
        if not self._dry_run and self._store.is_writable:
            beside.clear(self._home / "imported")
        for count, place in enumerate(found):
            self._tell(Progress("importing", count, len(found)))
            run_id = None
            try:
                with Place(place) as export:
                    listing = export.listing()
                    run_id = listing.run_id
                    outcome, *remarks = self.one(export, listing)
            except DrayError as error:
                yield Imported(place, run_id, None, trouble=error)
            else:
                yield Imported(place, run_id, outcome, tuple(remarks))

    def one(self, export: Place, listing: Listing) -> list[str]:
        """What became of it, and remarks."""
        size = export.check_sizes(listing)
        known = self._compared(export, listing)
        if known is not None or self._dry_run:
            export.check(listing)
            if known is None:
                _read(export, listing)
            return [FINE, *_remarks(listing)] if known is None else known
        free = shutil.disk_usage(self._home).free
        if size > free:
            raise NoRoomToImport(export.folder, size, free)
        place = self._store.imported_folder(listing.run_id)
        self._require_no_other(export, listing, place)
        try:
            with beside.made_beside(place) as folder:
                self._take(export, listing, folder)
        except RunExists:  # somebody else has just imported it
            return self._compared(export, listing) or []
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFull(self._home) from error
            raise
        return [IMPORTED, *_remarks(listing)]

    def _take(self, export: Place, listing: Listing, folder: Path) -> None:
        """Copy, check the copy, store it. Its code is not cleared away before the history has the run that names it."""
        inside = gate.enter(str(self._home))
        try:
            self._take_inside(export, listing, folder)
        finally:
            gate.leave(inside)

    def _take_inside(self, export: Place, listing: Listing, folder: Path) -> None:
        from dray.snapshot import KeptCode

        making, kept = Making(folder), KeptCode(self._home)
        for path, row in listing.files.items():
            if path.startswith(CODE) and kept.has(*row):
                for _ in export.pieces(path, row):
                    continue  # a thousand runs of one code bring it once
            else:
                making.add(path, export.pieces(path, row))
        folder.joinpath(NAME).write_bytes(listing.to_bytes())
        with Place(folder) as copy:
            try:
                whole = _read(copy, listing)
            except BadExport as error:
                error.what = f"cannot import `{printable(str(export.folder))}`"
                raise
        if MANIFEST in listing.files:
            # What is left in the folder has none of the code: all runs share it.
            code = {path: row for path, row in making.files.items() if path.startswith(CODE)}
            kept.take([(folder / path, *row) for path, row in code.items()], folder / MANIFEST)
            if code:
                shutil.rmtree(folder / CODE)
        self._store.import_run(whole, folder, time.time())

    def _require_no_other(self, export: Place, listing: Listing, place: Path) -> None:
        """A folder without a run in the history: an import that was killed, or the history was lost since."""
        if place.exists():
            with Place(place) as there:
                if there.listing().files != listing.files:
                    error = RunDiffers(listing.run_id, NAME)
                    error.hint = "dray rebuild    (it is in no history, but its files are here)"
                    raise error

    def _compared(self, export: Place, listing: Listing) -> list[str] | None:
        """None: no run of that id is here. The same one is, and remarks. Raises RunDiffers."""
        try:
            here = self._digests(listing.run_id)
        except NoSuchRun:
            return None
        there = {path: row.sha256 for path, row in listing.files.items() if _is_history(path)}
        differing = sorted(set(here.items()) ^ set(there.items()))
        said = [path for path, _ in differing if path == EDITS]
        other = [path for path, _ in differing if path != EDITS]
        if other:
            raise RunDiffers(listing.run_id, other[0])
        remarks = ["what was said of it afterwards differs, and was left as it is here"] if said else []
        return [HERE, *remarks]

    def _digests(self, run_id: str) -> dict[str, str]:
        found = {}

        def put(path: str, content: Iterable[bytes]) -> None:
            seen = hashlib.sha256()
            for piece in content:
                seen.update(piece)
            found[path] = seen.hexdigest()

        self._store.write_files(run_id, put)
        return found


def exports_in(folder: Path) -> list[Path]:
    """`folder`, if it is an exported run; else those in it. Raises UsageError where there are none."""
    folder = folder.expanduser()
    if not folder.is_dir():
        why = "it is a file" if folder.exists() else "there is no such folder"
        raise UsageError(f"cannot import `{printable(str(folder))}`", why=why)
    folder = folder.resolve()
    names = {entry.name for entry in os.scandir(folder)}
    if NAME in names or RUN in names:
        return [folder]
    found = [
        folder / name
        for name in sorted(names)
        if not name.startswith(".") and (PATTERN.fullmatch(name) or os.path.lexists(folder / name / NAME))
    ]
    if not found:
        raise UsageError(
            f"there is no exported run in `{printable(str(folder))}`",
            why=f"one is a folder with a file `{NAME}`",
            hint=f"dray export @last --to {printable(str(folder))}",
        )
    return found


def take_again(store: Store, place: Path) -> str | None:
    """A run that was imported into a history that is lost: from its folder, with its code in the blob store.

    Its id; None when the history has it. Raises BadExport.
    """
    with Place(place) as folder:
        said = folder.listing()
        if said.run_id != place.name:
            raise BadExport(place, NAME, f"it is about the run {said.run_id}")
        listing = said._replace(files={p: row for p, row in said.files.items() if not p.startswith(CODE)})
        folder.check(listing)
        whole = _read(folder, said)
        try:
            t = place.joinpath(NAME).stat().st_mtime
            store.import_run(whole, place, t, edits_are_known=True)
        except RunExists:
            return None
    return whole.id


def _read(place: Place, listing: Listing) -> WholeRun:
    """The run in those files; every word of them is checked. Raises BadExport."""
    sizes = {path: row.size for path, row in listing.files.items()}
    try:
        whole = from_files.read(sizes, place.open)
    except from_files.Misfit as error:
        raise BadExport(place.folder, error.path, error.why) from error
    if whole.id != listing.run_id:
        raise BadExport(place.folder, RUN, f"it is about the run {whole.id}, and the list about another")
    _check_code(place, listing, whole.spec.get("snapshot") or "")
    return whole


def _check_code(place: Place, listing: Listing, snapshot: str) -> None:
    """The files below code/ are those of the manifest, and that is the one of the run."""
    code = {path.removeprefix(CODE): row for path, row in listing.files.items() if path.startswith(CODE)}
    if MANIFEST not in listing.files:
        if code:
            raise BadExport(place.folder, MANIFEST, "it is not there, and there is code")
        return
    from dray.snapshot import entries

    if listing.files[MANIFEST].sha256 != snapshot:
        raise BadExport(place.folder, MANIFEST, "it is not the one of the run's code (SHA-256)")
    try:
        manifest = entries(place.read(MANIFEST, from_files.MOST_LINE))
        paths = [row[0] for kind in ("files", "links") for row in manifest[kind]]
        for path in (*paths, *manifest["dirs"]):
            require_inside(path)
        if len(set(paths)) < len(paths):
            raise ValueError("it has a path twice")
        require_a_tree(paths, manifest["dirs"])
        named = {path: (size, digest) for path, digest, size, _ in manifest["files"]}
    except (ValueError, RecursionError) as error:
        raise BadExport(place.folder, MANIFEST, str(error)) from error
    for path, row in code.items():
        if named.get(path) != tuple(row):
            raise BadExport(place.folder, CODE + path, "it is not what the manifest says")
    for path in named:
        if path not in code and CODE + path not in listing.missing:
            raise BadExport(place.folder, CODE + path, "it is not there")


def _is_history(path: str) -> bool:
    return path in (RUN, EDITS) or path.startswith("attempts/")


def _remarks(listing: Listing) -> list[str]:
    if not listing.missing:
        return []
    some = sorted(listing.missing)
    shown = ", ".join(printable(what) for what in some[:5]) + (" ..." if len(some) > 5 else "")
    return [f"without {shown}, which the export does not have"]
