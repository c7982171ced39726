"""Brings files of a run from its machine: several asked for ahead, gone on with over new connections, checked by their digests.

Read `Fetching.each` first. A file comes into `.NAME.KEY.part` beside its place, and appears there by one rename. A part that a killed
client left is gone on with, if the machine says that it is the beginning of what is there now.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, LinkLost, printable
from dray.hosts.errors import HostUnreachable
from dray.workspace.errors import BadAnswer, NoRoomForOutputs
from dray.workspace.outputs import OF_THE_PLACE, Answering, Fetched, cannot_write, landing_place

if TYPE_CHECKING:
    from hashlib import _Hash

_AHEAD = 16
_PAUSES_S = (0.0, 0.5, 2.0, 5.0)
_WORTH_KEEPING = 1 << 20
_WORTH_LEAVING = 8 << 20
_PIECE = 1 << 20


class Fetching:
    """Files of one run on their way into one folder."""

    def __init__(
        self,
        connect: Callable[[], Answering],
        run_id: str,
        folder: Path,
        may_replace: Callable[[Path], bool],
        tell: Callable[[str, int], None],
        say: Callable[[str], None],
    ) -> None:
        """`tell` hears (file, bytes of it that are here), `say` hears sentences."""
        self._connect = connect
        self._run_id = run_id
        self._folder = folder
        self._may_replace = may_replace
        self._tell = tell
        self._say = say
        self._connection: Answering | None = None
        self._has_answered = False
        self._came = 0
        self._asked: deque[_File] = deque()

    def each(self, wanted: Iterable[tuple[str, str, int]]) -> Iterator[Fetched]:
        """(name, path on the machine, bytes) -> what became of each, in order. Raises what stops all."""
        waiting = deque(_File(self._run_id, *row) for row in wanted)
        vain = came = 0
        try:
            while waiting or self._asked:
                try:
                    self._ask_ahead(waiting)
                    outcome = self._take(self._asked[0])
                except (LinkLost, HostUnreachable) as lost:
                    if not self._has_answered:
                        raise
                    vain = 0 if self._came > came else vain + 1
                    came = self._came
                    if vain == len(_PAUSES_S):
                        lost.hint = f"dray outputs {self._run_id} --to DIR    (it goes on where it stopped)"
                        raise
                    if vain <= 1:
                        self._say(f"{lost.what}; going on with a new one")
                    time.sleep(_PAUSES_S[vain])
                    self._hang_up(waiting)
                    continue
                if outcome is None:  # once more, from its first byte
                    self._hang_up(waiting)
                    continue
                self._asked.popleft().close()
                if self._connection is None:
                    self._hang_up(waiting)
                yield outcome
        finally:
            self._hang_up(waiting)
            for file in waiting:
                file.close()

    def _hang_up(self, waiting: deque[_File]) -> None:
        """Whatever was asked for and has not come will be asked for over another connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for file in reversed(self._asked):
            file.close()
            waiting.appendleft(file)
        self._asked.clear()

    def _ask_ahead(self, waiting: deque[_File]) -> None:
        """Requests are small, and answers wait in the channel: so the machine is never idle between two files."""
        while waiting and len(self._asked) < _AHEAD:
            file = waiting[0]
            if file.trouble is None:
                self._prepare(file)
            if file.trouble is None:
                if self._connection is None:
                    self._connection = self._connect()
                self._connection.ask(file.request)
            self._asked.append(waiting.popleft())

    def _prepare(self, file: _File) -> None:
        """Find out what is here of it already. What is wrong with this file alone is kept for its turn."""
        try:
            place = file.place = landing_place(self._folder, file.name)
            if place.is_dir():
                raise cannot_write(place, "a folder of that name is there")
            # Its size may tell that it is another file before anything travels.
            if place.exists() and place.stat().st_size != file.size:
                self._agree(file)
            file.look_what_is_here()
        except DrayError as error:
            file.trouble = error
        except OSError as error:
            file.trouble = cannot_write(file.place or self._folder, error.strerror or str(error))
            if error.errno not in OF_THE_PLACE:
                raise file.trouble from None

    def _agree(self, file: _File) -> None:
        """The user wants another file at that place replaced; asked once. Raises CannotWrite."""
        if not file.is_agreed:
            place = file.where
            if not self._may_replace(place):
                raise cannot_write(
                    place,
                    "a different file of that name is there",
                    hint="`--force` to replace it, or name another folder with `--to`",
                )
            file.is_agreed = True

    def _take(self, file: _File) -> Fetched | None:
        """The answers to one request. None: it came damaged, and is worth another try. Raises LinkLost."""
        if file.trouble is not None:
            return Fetched(file.name, file.size, None, file.trouble)
        assert self._connection is not None
        try:
            return self._taken(file, self._connection)
        except (LinkLost, HostUnreachable):
            raise
        except BadAnswer:
            file.drop()
            raise
        except DrayError as refused:  # said by the machine in the place of an answer
            file.drop()
            return Fetched(file.name, file.size, None, refused)
        except OSError as error:
            # The system names the temporary file, which says nothing to the user.
            trouble = cannot_write(file.where, error.strerror or str(error))
            if error.errno not in OF_THE_PLACE:
                raise trouble from None
            self._leave(file, 1 << 62)
            return Fetched(file.name, file.size, None, trouble)

    def _taken(self, file: _File, connection: Answering) -> Fetched | None:
        header, _ = connection.receive()
        self._has_answered = True
        start, size = header.get("offset"), header.get("bytes")
        if start not in (0, file.offset) or not isinstance(size, int) or size < start:
            raise BadAnswer(connection.where, file.name, "its answer makes no sense")
        is_same = file.is_compared and start == size == file.offset and start == file.size
        if not is_same:
            try:
                if file.where.exists():
                    self._agree(file)
                check_room(file.where.parent, max(0, size - max(start, file.size)))
            except DrayError as trouble:
                self._leave(file, size - start)
                return Fetched(file.name, file.size, None, trouble)
            file.begin(start)
        digest = self._receive(file, connection, start, size)
        if digest != file.digest():
            file.drop()
            if file.tries > 1:
                hint = f"dray outputs {self._run_id} --to DIR"
                return Fetched(file.name, file.size, None, DrayError(_damaged(file.name), hint=hint))
            return None
        if is_same:
            return Fetched(file.name, file.size, file.where, was_there=True, digest=digest)
        return Fetched(file.name, size, file.where, was_there=not file.appear(), digest=digest)

    def _receive(self, file: _File, connection: Answering, at: int, size: int) -> str:
        """Everything up to the end of that file; the digest that the machine gives. Never more than it said."""
        while True:
            header, body = connection.receive()
            if "fetched" in header:
                return str(header.get("sha256"))
            if "piece" not in header or header.get("offset") != at:
                raise BadAnswer(connection.where, file.name, "its answer makes no sense")
            if at + len(body) > size:
                raise BadAnswer(connection.where, file.name, "it sent more than it said")
            file.add(body)
            at += len(body)
            self._came += len(body)
            self._tell(file.name, at)

    def _leave(self, file: _File, coming: int) -> None:
        """The rest of that file is not wanted: hear it out if it is short, else hang up."""
        if self._connection is None:
            return
        if coming > _WORTH_LEAVING:
            self._connection.close()
            self._connection = None
            return
        while "fetched" not in self._connection.receive()[0]:
            continue


class _File:
    """One file that is wanted: what is here of it, and what has become of it."""

    def __init__(self, run_id: str, name: str, remote: str, size: int) -> None:
        self.name = name
        self.remote = remote
        self.size = size
        self.place: Path | None = None
        self.trouble: DrayError | None = None
        self.is_agreed = False
        self.is_compared = False
        """What was offered is the file in the place itself, and not a part of ours."""
        self.offset = 0
        self.tries = 0
        self._run_id = run_id
        self._key = hashlib.sha256(f"{run_id}/{remote}".encode("utf-8", "surrogatepass")).hexdigest()[:10]
        self._part: _Part | None = None
        self._seen: _Hash = hashlib.sha256()

    @property
    def where(self) -> Path:
        """The place, once it is known."""
        assert self.place is not None
        return self.place

    @property
    def request(self) -> dict[str, Any]:
        """What to ask the machine for."""
        request = {"op": "fetch", "run": self._run_id, "path": self.remote, "offset": self.offset}
        return {**request, "prefix": self._seen.hexdigest()} if self.offset else request

    def look_what_is_here(self) -> None:
        """A part to go on with; or the whole, perhaps."""
        self.close()
        self.tries += 1
        self.is_compared = False
        self.offset = 0
        if self.where.exists() and self.where.stat().st_size == self.size and self.size:
            with self.where.open("rb") as file:
                self.offset, self._seen = _read(file.fileno())
            self.is_compared = True
            return
        kept = _Part.path(self.where, self._key)
        if kept.exists() and not kept.is_symlink():
            self._part = _Part(self.where, self._key)
            self.offset, self._seen = self._part.read()
            if self.offset > self.size:
                self.offset = 0

    def begin(self, start: int) -> None:
        """Its bytes come now, from `start` on."""
        self._part = self._part or _Part(self.where, self._key)
        if self.is_compared and start:
            shutil.copyfile(self.where, self._part.at)
        if not start:
            self._seen = hashlib.sha256()
        self._part.cut(start)

    def add(self, data: bytes) -> None:
        """The next bytes."""
        assert self._part is not None
        self._part.write(data)
        self._seen.update(data)

    def digest(self) -> str:
        """Of all that is here of it."""
        return self._seen.hexdigest()

    def appear(self) -> bool:
        """Let it be at its place; False when the very same is there already."""
        assert self._part is not None
        place = self.where
        if place.exists() and place.stat().st_size == self._part.size():
            with place.open("rb") as file:
                if _read(file.fileno())[1].digest() == self._seen.digest():
                    self._part.remove()
                    return False
        self._part.at.replace(place)
        return True

    def drop(self) -> None:
        """What came of it is of no use."""
        if self._part is not None:
            self._part.remove()
        self.close()

    def close(self) -> None:
        """Let go of the part; it stays if it is worth going on with."""
        if self._part is not None:
            self._part.close()
            self._part = None


class _Part:
    """A file that grows beside its place, ours alone while it is open."""

    def __init__(self, place: Path, key: str) -> None:
        self.at = self.path(place, key)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        self._fd = os.open(self.at, flags, 0o666)
        if not _lock(self._fd):  # another client fetches it at this moment
            os.close(self._fd)
            self.at = self.path(place, os.urandom(5).hex())
            self._fd = os.open(self.at, flags | os.O_EXCL, 0o666)
        self._is_there = True

    @staticmethod
    def path(place: Path, key: str) -> Path:
        """Where the part of `place` lies. A long name is cut: the key tells it from others."""
        name = place.name.encode("utf-8", "surrogateescape")[:150].decode("utf-8", "ignore")
        return place.with_name(f".{name}.{key}.part")

    def read(self) -> tuple[int, _Hash]:
        """How much there is, and a hash that has seen it."""
        return _read(self._fd)

    def cut(self, size: int) -> None:
        """Keep the first bytes; what is written comes after them."""
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    def write(self, data: bytes) -> None:
        """Append."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def size(self) -> int:
        """Bytes that are there."""
        return os.fstat(self._fd).st_size

    def remove(self) -> None:
        """Nobody goes on with it."""
        self.at.unlink(missing_ok=True)

    def close(self) -> None:
        """What is too little to go on with is not left lying about."""
        if self.size() < _WORTH_KEEPING and self._is_ours():
            self.remove()
        os.close(self._fd)

    def _is_ours(self) -> bool:
        """Not renamed to its place meanwhile, and not removed."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self.at))
        except OSError:
            return False


def _lock(fd: int) -> bool:
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # a file system without locks: then nobody else is told apart
        return True
    return True


def _read(fd: int) -> tuple[int, _Hash]:
    seen, size = hashlib.sha256(), 0
    os.lseek(fd, 0, os.SEEK_SET)
    while data := os.read(fd, _PIECE):
        seen.update(data)
        size += len(data)
    return size, seen


def check_room(folder: Path, needed: int) -> None:
    """Refuse what does not fit. Raises NoRoomForOutputs."""
    if needed > 0 and needed > (free := shutil.disk_usage(folder).free):
        raise NoRoomForOutputs(folder, needed, free)


def here_already(folder: Path, run_id: str, wanted: Iterable[tuple[str, str, int]]) -> int:
    """How many bytes need no room: they are in their place, or in a part that is gone on with."""
    found = 0
    for name, remote, size in wanted:
        place = folder / name
        part = _Part.path(place, _File(run_id, name, remote, size)._key)
        for candidate in (place, part):
            try:
                there = os.lstat(candidate).st_size
            except (OSError, ValueError):
                continue
            if candidate == part or there == size:
                found += min(size, there)
                break
    return found


def _damaged(name: str) -> str:
    return f"`{printable(name)}` arrived damaged"
