"""Tables and pictures that a run logged, as objects. What a machine says of them is checked where it is used.

Names come from scripts: `file_names` makes of them names of files that lie in one folder, whatever they try.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dray.core.errors import DrayError, printable
from dray.workspace.errors import CannotWrite

if TYPE_CHECKING:
    from dray.store import Line, Store

_PICTURE = re.compile(r"media\.[0-9a-z]{1,40}\.([a-z0-9]{1,8})")
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Table:
    """What one `log_table` gave."""

    name: str
    step: int | None
    time: float
    """Seconds since 1970."""
    attempt: int
    columns: list[str]
    rows: list[list[Any]]
    """As wide as there are columns."""

    def to_pandas(self) -> Any:
        """The table as a DataFrame. Raises PandasMissing."""
        from dray.workspace.frames import table_frame

        return table_frame(self)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Image:
    """What one `log_image` gave."""

    name: str
    step: int | None
    time: float
    """Seconds since 1970."""
    attempt: int
    format: str
    """png, jpg, svg ...; empty when the run named none."""
    size: int
    """In bytes, as far as they are here."""
    _store: Store = field(repr=False, compare=False)
    _run_id: str = field(repr=False, compare=False)
    _stream: str = field(repr=False, compare=False)

    @property
    def bytes(self) -> bytes:
        """The picture itself, in its own format."""
        if not self.size:
            raise DrayError(
                f"the picture `{printable(self.name)}` of {self._run_id} is not here",
                why="its bytes have not come from the machine, or were never written",
                hint=f"dray images {self._run_id}",
            )
        return self._store.read_log(self._run_id, self.attempt, self._stream, 0, self.size)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write it to `path`, or into it where that is a folder; where it is now.

        The same picture there is left alone; anything else is replaced with `force` only. Raises CannotWrite.
        """
        place = Path(path)
        if place.is_dir():
            place /= file_names([self], [self.format])[0]
        write(place, self.bytes, force=force)
        return place

    def to_json(self) -> dict[str, Any]:
        """All but the bytes as plain data."""
        shown = ("name", "step", "time", "attempt", "format")
        return {**{name: getattr(self, name) for name in shown}, "bytes": self.size}


def tables(lines: Iterable[Line]) -> list[Table]:
    """The tables in those events."""
    return [_table(line) for line in lines]


def images(store: Store, run_id: str, lines: Iterable[Line]) -> list[Image]:
    """The pictures in those events."""
    return [_image(store, run_id, line) for line in lines]


def _table(line: Line) -> Table:
    columns = [str(column) for column in line.data["columns"]]
    rows = [[*row[: len(columns)], *[None] * (len(columns) - len(row))] for row in line.data["rows"]]
    return Table(line.data["name"], line.data["step"], line.t, line.attempt, columns, rows)


def _image(store: Store, run_id: str, line: Line) -> Image:
    stream = line.data["stream"]
    # A run must not have its log, or another file, taken for a picture.
    match = _PICTURE.fullmatch(stream)
    size = store.log_size(run_id, line.attempt, stream) if match else 0
    told = (line.data["name"], line.data["step"], line.t, line.attempt)
    return Image(*told, match[1] if match else "", size, store, run_id, stream)


class _Logged(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def step(self) -> int | None: ...


def file_names(things: Sequence[_Logged], endings: Sequence[str]) -> list[str]:
    """For each a name of its own in one folder: `loss-curve-12.png`. The same things always get the same names."""
    names: list[str] = []
    taken: set[str] = set()
    for thing, ending in zip(things, endings, strict=True):
        word = "".join(c if c.isalnum() or c in "._- " else "_" for c in thing.name).strip("._- ")
        # Bytes count for the system, not letters.
        stem = word.encode(errors="replace")[:_LONGEST_NAME].decode(errors="ignore") or "unnamed"
        stem += "" if thing.step is None else f"-{thing.step}"
        name, count = f"{stem}.{ending or 'bin'}", 1
        while name.casefold() in taken:
            count += 1
            name = f"{stem}-{count}.{ending or 'bin'}"
        taken.add(name.casefold())
        names.append(name)
    return names


def write(place: Path, content: bytes, *, force: bool) -> bool:
    """Let the file appear at `place`, whole or not at all; False when it is there already. Raises CannotWrite."""
    try:
        if place.is_dir():
            raise CannotWrite(OSError(0, "a folder of that name is there", str(place)))
        if os.path.lexists(place) and not force:
            if place.exists() and place.stat().st_size == len(content) and place.read_bytes() == content:
                return False
            refused = CannotWrite(OSError(0, "a different file of that name is there", str(place)))
            refused.hint = "`--force` to replace it, or name another folder with `--to`"
            raise refused
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{os.getpid()}.{os.urandom(4).hex()}.part")
        try:
            beside.write_bytes(content)
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise CannotWrite(OSError(error.errno, error.strerror or str(error), str(place))) from None
    return True
