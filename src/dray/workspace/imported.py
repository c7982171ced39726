"""The outputs of an imported run: they are here, and are read with the same care as when they came."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, printable
from dray.workspace.errors import BadExport
from dray.workspace.listing import Place

if TYPE_CHECKING:
    from dray.workspace.run import Run

OUTPUTS = "outputs/"


class ImportedOutputs:
    """What the export brought along. Use it in a `with`."""

    def __init__(self, run: Run) -> None:
        self._run_id = run.id
        self._folder = run._workspace.store.imported_folder(run.id)

    def __enter__(self) -> ImportedOutputs:
        with self._in_our_words():
            self._place = Place(self._folder)
            self._listing = self._place.listing()
        self.missing = self._listing.missing
        return self

    def __exit__(self, *_: object) -> None:
        self._place.__exit__()

    @contextlib.contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except BadExport as error:
            what = f"the outputs of the imported run {self._run_id} cannot be read"
            raise DrayError(what, why=f"{printable(str(self._folder))}: {error.why}") from error

    def listing(self) -> Sequence[Any]:
        """Paths as the machine had them: what is not below outputs/ there cannot be told from what is."""
        files = self._listing.files
        return [[path, row.size] for path, row in files.items() if path.startswith(OUTPUTS)]

    def receive(self, path: str, remote: str, write: Callable[[bytes], object]) -> str:
        """Give the bytes of `path` to `write`; their digest, after it was checked."""
        row = self._listing.files.get(OUTPUTS + path)
        if row is None:
            raise DrayError(
                f"the output `{printable(path)}` of run {self._run_id} is not here",
                why=printable(
                    self.missing.get(OUTPUTS + path)
                    or self.missing.get("outputs")
                    or "the export did not have it"
                ),
            )
        with self._in_our_words():
            for piece in self._place.pieces(OUTPUTS + path, row):
                write(piece)
        return row.sha256
