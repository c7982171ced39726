"""The outputs of an imported run: they are here, and are read with the same care as when they came."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, printable
from dray.workspace.errors import BadExport
from dray.workspace.listing import Place, Row

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
        row = self._row(OUTPUTS + path)
        with self._in_our_words():
            for piece in self._place.pieces(OUTPUTS + path, row):
                write(piece)
        return row.sha256

    def answer(self, asked: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], bytes]]:
        """What a machine would answer to one `fetch`; the digest is checked before the last frame."""
        remote = str(asked["path"])
        # What `--outputs` named is told with its path in the code folder; the export has it below outputs/ too.
        path = OUTPUTS + remote.removeprefix(OUTPUTS)
        row = self._row(path)
        yield {"fetching": remote, "offset": 0, "bytes": row.size}, b""
        at = 0
        with self._in_our_words():
            for piece in self._place.pieces(path, row):
                yield {"piece": remote, "offset": at}, piece
                at += len(piece)
        yield {"fetched": remote, "sha256": row.sha256, "bytes": at}, b""

    def _row(self, path: str) -> Row:
        row = self._listing.files.get(path)
        if row is None:
            why = self.missing.get(path) or self.missing.get("outputs") or "the export did not have it"
            raise DrayError(
                f"the output `{printable(path.removeprefix(OUTPUTS))}` of run {self._run_id} is not here",
                why=printable(why),
            )
        return row


class ImportedAnswers:
    """Answers as the machine of an imported run would, from what is here."""

    def __init__(self, run: Run) -> None:
        self._outputs = ImportedOutputs(run).__enter__()
        self.where = f"the import of run {run.id}"
        self._asked: deque[Iterator[tuple[dict[str, Any], bytes]]] = deque()

    def ask(self, header: dict[str, Any]) -> None:
        """Its answers come after those to what was asked before."""
        self._asked.append(self._outputs.answer(header))

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next frame. Raises DrayError for what is not here, or not as it was."""
        try:
            header, body = next(self._asked[0])
        except DrayError:
            self._asked.popleft()
            raise
        if "fetched" in header:
            self._asked.popleft()
        return header, body

    def close(self) -> None:
        """Nothing more is read."""
        self._asked.clear()
        self._outputs.__exit__()
