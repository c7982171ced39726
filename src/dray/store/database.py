"""The one connection to history.db: opened, locked, and its errors said in the user's words.

Read `Database.reading` and `Database.writing`. Everything else in this room gets a connection from them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from _thread import RLock  # the one of `threading`, without the millisecond that the rest of it takes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dray import __version__
from dray.runner import mounts
from dray.store import errors, migrations

BUSY_S = 30.0

_SMALLEST = 512  # the least size of a page

_T = TypeVar("_T")

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


class Database:
    """history.db in `home`. May be used by several threads, and goes on in a forked child."""

    def __init__(self, home: Path, mountinfo: str = mounts.MOUNTINFO) -> None:
        self.home = home
        self.path = home / "history.db"
        self._mountinfo = mountinfo
        self._lock = RLock()
        self._owner = 0
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._inherited: list[sqlite3.Connection] = []
        self._copy: contextlib.AbstractContextManager[str] | None = None
        with self._lock, self.in_our_words():
            self.writable = _make_folder(home) and _may_write(self.path)
            self._connected()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view of the history, whatever others write meanwhile."""
        with self._lock, self.in_our_words(), self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All of it is stored, or nothing. Waits for other writers, up to 30 s."""
        with self._lock, self.in_our_words():
            if not self.writable:
                raise errors.HomeReadOnly(self.home)
            with self._transaction("BEGIN IMMEDIATE") as connection:
                yield connection

    def close(self) -> None:
        """Let go of the file. Safe to repeat."""
        with self._lock, self.in_our_words():
            # In a forked child the connection is the parent's: closing it here would shake the parent's locks.
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            elif self._connection is not None:
                self._inherited.append(self._connection)
            self._connection = None
            if self._copy is not None:
                self._copy.__exit__(None, None, None)
                self._copy = None

    def is_in_place(self) -> bool:
        """False when another file lies where ours was: then others may write what we cannot see."""
        with self._lock, self.in_our_words():
            self._connected()
            return self._file == _identity(self.path)

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self._connected()
        if connection.in_transaction:  # a step inside a larger one
            yield connection
            return
        _patiently(lambda: connection.execute(begin))
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # A full disk has already made SQLite roll back by itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._owner != os.getpid():
            self._inherited.append(self._connection)
            self._connection = None
        if self._connection is None:
            self._connection = self._open() if self.writable else self._open_to_read()
            self._owner = os.getpid()
            self._file = _identity(self.path)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if self.path.exists() and 0 < self.path.stat().st_size < _SMALLEST and not self._journal().exists():
            # SQLite would take the few bytes for nothing, and write over them.
            raise errors.HistoryDamaged(self.path, "it is no database")
        connection = _connect(self.path)
        try:
            version = _patiently(lambda: self._checked_version(connection))
            remote = mounts.is_network(str(self.home), self._mountinfo)
            wanted = "delete" if remote else "wal"
            (journal,) = _patiently(lambda: connection.execute("PRAGMA journal_mode").fetchone())
            if journal != wanted:
                # Two processes may both want the change; the later one must find it done, not fail.
                _patiently(lambda: connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone())
            # With a rollback journal NORMAL can lose the file itself in a power cut; with WAL only the last moment.
            connection.execute(f"PRAGMA synchronous = {'FULL' if remote else 'NORMAL'}")
            if version < migrations.LATEST:
                _patiently(lambda: migrations.migrate(connection, __version__))
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_to_read(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise errors.HomeReadOnly(
                self.home, "the folder is read-only for you, and there is no history in it yet"
            )
        address = self.path.absolute().as_uri()
        connection = _connect(address + "?mode=ro", uri=True)
        try:
            version = self._checked_version(connection)
        except sqlite3.OperationalError as error:
            connection.close()
            if _primary(error) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
                raise
            # SQLite wants to put its shared memory beside the file, and cannot.
            connection = _connect(self._frozen(address), uri=True)
            version = self._checked_version(connection)
        if version < migrations.LATEST:
            connection.close()
            raise errors.HomeReadOnly(
                self.home, "the history is from an older dray and must be brought up to date first"
            )
        return connection

    def _journal(self) -> Path:
        return Path(f"{self.path}-journal")

    def _frozen(self, address: str) -> str:
        """A name under which the file can be read without anything beside it."""
        log = Path(f"{self.path}-wal")
        if not log.exists() or log.stat().st_size == 0:
            return address + "?immutable=1"
        import shutil
        import tempfile

        # The last transactions are in the log only: read a copy, where SQLite may join the two.
        self._copy = tempfile.TemporaryDirectory(prefix="dray-history-", ignore_cleanup_errors=True)
        folder = Path(self._copy.__enter__())
        for source in (self.path, log):
            shutil.copyfile(source, folder / source.name)
        return (folder / self.path.name).as_uri() + "?mode=rw"

    def _checked_version(self, connection: sqlite3.Connection) -> int:
        """The layout's number; 0 for a file that is still empty."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != migrations.APPLICATION_ID:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            # Nothing at all: new. Ours meanwhile: another process has just made it, see below.
            if tables and connection.execute("PRAGMA application_id").fetchone() == (application,):
                raise errors.HistoryDamaged(self.path, "it is a database of another program")
        if version > migrations.LATEST:
            raise errors.HistoryTooNew(self.path, version, migrations.LATEST, _writer(connection))
        return int(version)

    @contextlib.contextmanager
    def in_our_words(self) -> Iterator[None]:
        """Errors of SQLite and of the operating system as ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except OSError as error:
            if error.errno in _FULL:
                raise errors.DiskFull(self.home) from error
            if error.errno in _FORBIDDEN:
                raise errors.HomeReadOnly(self.home) from error
            raise errors.DiskTrouble(self.home, error.strerror or str(error)) from error

    def _translated(self, error: sqlite3.Error) -> Exception:
        code = _primary(error)
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(self.home)):
            return errors.DiskFull(self.home)
        if code in _DAMAGED:
            return errors.HistoryDamaged(self.path, f"SQLite says: {error}")
        if code in _BUSY:
            return errors.HistoryBusy(self.path, BUSY_S)
        if code == sqlite3.SQLITE_READONLY:
            return errors.HomeReadOnly(self.home)
        if code == sqlite3.SQLITE_CANTOPEN:
            return (
                errors.DiskFull(self.home)
                if _is_full(self.home)
                else errors.HomeUnusable(self.home, str(error))
            )
        if code == sqlite3.SQLITE_IOERR:
            return errors.DiskTrouble(self.home, str(error))
        return error  # a mistake of ours, such as wrong SQL: it must stay visible as one


def _connect(name: str | Path, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(name, timeout=BUSY_S, isolation_level=None, check_same_thread=False, uri=uri)


def _patiently(step: Callable[[], _T]) -> _T:
    """Do `step` again while others are in the way: SQLite waits for most locks by itself, but not for all."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if _primary(error) not in _BUSY or time.monotonic() > until:
                raise
        # Of different length for each, so that fifty clients do not knock in step.
        time.sleep(0.005 + os.urandom(1)[0] / 5000)


def _primary(error: sqlite3.Error) -> int:
    # The upper bits only say where in SQLite it happened.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _make_folder(home: Path) -> bool:
    """Make `home` where it is missing; True when it can be written to."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        for place in (home, *home.parents):
            if os.path.isdir(place):
                break
            if os.path.exists(place):
                raise errors.HomeIsAFile(home, place) from error
            if os.path.islink(place):
                raise errors.HomeUnusable(home, f"`{place}` is a link that leads nowhere") from error
        if error.errno in _FORBIDDEN:
            raise errors.HomeReadOnly(home, "the folder is not there, and you may not make it") from error
        raise
    if not os.access(home, os.X_OK):
        raise errors.HomeUnusable(home, "you may not look into that folder")
    return os.access(home, os.W_OK)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def _may_write(path: Path) -> bool:
    return not path.exists() or os.access(path, os.W_OK)


def _is_full(folder: Path) -> bool:
    try:
        return os.statvfs(folder).f_bavail == 0
    except (AttributeError, OSError):  # Windows has no statvfs
        return False


def _writer(connection: sqlite3.Connection) -> str | None:
    """The version of dray that last changed the layout, if it still says so where we look."""
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'writer'").fetchone()
    except sqlite3.Error:
        return None
    return str(row[0]) if row else None
