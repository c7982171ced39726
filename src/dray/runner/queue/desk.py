"""The folder where all users of a machine meet: tickets and leases, each a file that is locked while it means something.

    t-17         a ticket: one run's place, and once it has begun what it holds. Written by its owner alone
    gpu-<UUID>   a lease: whoever has its flock has the GPU. Anybody may have made it; nothing is in it

What others wrote is data to doubt: no link is followed, nothing but a plain file is opened, nothing long is read, and whose ticket
it is says the file's owner and not its words.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

from .. import mounts
from ..machine import user_of
from . import wants as asked
from .turn import Held, Ticket

DEFAULT = "/var/tmp/dray-leases"  # noqa: S108 # everybody's, and what is in it is doubted
ADMINS = "/etc/dray/leases"
"""Its first line names the folder for everybody."""
VARIABLE = "DRAY_LEASES"
_TICKET = re.compile(r"t-([1-9][0-9]{0,8})\Z", re.ASCII)
_LAST = 10**9 - 1
_BYTES = 4096
_MOST_NAMES = 20000
_STALE_S = 30.0
_RIGHTS = 0o1777
_OURS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NoDesk(Exception):
    """The folder cannot be used. Its words are for the user."""


def folder_name(admins: str = ADMINS) -> str:
    """The folder of this machine: what its admin names, else DRAY_LEASES, else the usual one."""
    try:
        with open(admins) as file:
            named = file.readline().strip()
    except (OSError, ValueError):
        named = ""
    named = named or os.environ.get(VARIABLE, "")
    return named if named.startswith("/") else DEFAULT


class Desk:
    """The folder, checked."""

    def __init__(self, path: Optional[str] = None, mountinfo: str = mounts.MOUNTINFO) -> None:
        """Makes the folder if it is not there. Raises NoDesk."""
        self.path = path or folder_name()
        self.trouble: Dict[str, str] = {}
        """Why the lease of a device cannot be had by anybody, by UUID."""
        try:
            self._make()
            for _ in range(20):
                seen = os.lstat(self.path)
                if stat.S_IMODE(seen.st_mode) != 0o700:
                    break
                time.sleep(0.005)  # somebody is making it
        except OSError as trouble:
            raise NoDesk(
                "the folder for leases, %s, cannot be made: %s" % (self.path, trouble.strerror)
            ) from None
        owner = name_of(seen.st_uid)
        if not stat.S_ISDIR(seen.st_mode):
            raise NoDesk("%s, the folder for leases, is no folder; %s made it" % (self.path, owner))
        if stat.S_IMODE(seen.st_mode) != _RIGHTS:
            raise NoDesk(
                "the folder for leases cannot be used by everybody alike: `chmod 1777 %s` as %s mends it"
                % (self.path, owner)
            )
        if mounts.is_network(self.path, mountinfo):
            raise NoDesk(
                "the folder for leases, %s, is on a network file system, where locks do not tell who is alive;"
                " name another one in %s" % (self.path, ADMINS)
            )

    def _make(self) -> None:
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            return
        os.chmod(self.path, _RIGHTS)  # whatever the umask is

    # -- tickets

    def draw(self, ticket: Ticket) -> Tuple[int, int]:
        """A new place at the end of the queue: (number, the ticket's open file, which has its lock)."""
        import fcntl

        beside = os.path.join(self.path, ".%s" % os.urandom(8).hex())
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OURS, 0o644)
        try:
            os.fchmod(fd, 0o644)
            fcntl.flock(fd, fcntl.LOCK_EX)  # it is locked from the moment when anybody can see it
            while True:
                number = 1 + max(self._numbers(), default=0)
                if number > _LAST:
                    raise NoDesk("the ticket t-%d in %s leaves no number after it" % (_LAST, self.path))
                self.write(fd, ticket._replace(number=number))
                try:
                    os.link(beside, self._ticket(number))
                    return number, fd
                except FileExistsError:
                    continue
        except BaseException:
            os.close(fd)
            raise
        finally:
            os.unlink(beside)

    def write(self, fd: int, ticket: Ticket) -> None:
        """What the ticket says from now on. One write of always the same length, so that a reader sees the old or the new."""
        words = {
            "v": 1,
            "uid": os.getuid(),
            "pid": os.getpid(),
            "run": ticket.run,
            "wants": ticket.wants.to_json(),
            "ready": ticket.ready,
            "gpus": None if ticket.holds is None else [list(pair) for pair in ticket.holds],
            "since": ticket.since,
        }
        os.pwrite(fd, json.dumps(words, separators=(",", ":")).encode().ljust(_BYTES - 1) + b"\n", 0)

    def tear(self, number: int) -> None:
        """The ticket means nothing any more."""
        try:
            os.unlink(self._ticket(number))
        except FileNotFoundError:
            return

    def tickets(self, bury: Callable[[Ticket], bool] = lambda ticket: False) -> List[Ticket]:
        """All whose people live, in order. Of dead ones that are ours `bury` decides whether they can go."""
        found = []
        for number in sorted(self._numbers()):
            seen = self._read(number)
            if seen is None:
                continue
            ticket, is_alive = seen
            if is_alive:
                found.append(ticket)
            elif ticket.uid == os.getuid():
                if bury(ticket):
                    self.tear(number)
                elif ticket.holds is not None:
                    found.append(ticket)  # something of it lives on, and nobody can end it
        return found

    def _read(self, number: int) -> Optional[Tuple[Ticket, bool]]:
        """(ticket, whether its people live); None for what is none."""
        try:
            fd = os.open(self._ticket(number), os.O_RDONLY | _OURS)
        except OSError:
            return None
        try:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode):
                return None
            is_alive = not _can_share(fd)
            for _ in range(3):
                ticket = _understood(os.pread(fd, _BYTES, 0), number, seen)
                if ticket is not None:
                    return ticket, is_alive
                if not is_alive:
                    return None
                time.sleep(0.002)  # it was being written just now, or never will be one
        except OSError:
            return None
        finally:
            os.close(fd)
        return None

    def _numbers(self) -> List[int]:
        found = []
        with os.scandir(self.path) as entries:
            for count, entry in enumerate(entries):
                if count >= _MOST_NAMES:
                    raise NoDesk("there are too many files in %s" % self.path)
                match = _TICKET.match(entry.name)
                if match:
                    found.append(int(match.group(1)))
        return found

    def _ticket(self, number: int) -> str:
        return os.path.join(self.path, "t-%d" % number)

    # -- leases

    def take(self, held: Held) -> Optional[List[int]]:
        """The locks of all those devices, or None when one of them cannot be had now. Raises NoDesk for a file that is none."""
        taken: List[int] = []
        for uuid, memory in sorted(held):
            fd = self._lease(uuid, alone=memory is None)
            if fd is None:
                for one in taken:
                    os.close(one)
                return None
            taken.append(fd)
        return taken

    def locked(self, uuids: List[str]) -> FrozenSet[str]:
        """Those that somebody holds alone."""
        found = set()
        for uuid in uuids:
            try:
                fd = self._open(self._lease_name(uuid), make=False)
            except NoDesk as trouble:
                self.trouble[uuid] = str(trouble)
                found.add(uuid)
                continue
            if fd is not None:
                if not _can_share(fd):
                    found.add(uuid)
                os.close(fd)
        return frozenset(found)

    def is_in_place(self, fd: int, uuid: Optional[str] = None, number: int = 0) -> bool:
        """Whether the file that we have open is the one that others find: a device's lease, or a ticket."""
        return _is_there(fd, self._ticket(number) if uuid is None else self._lease_name(uuid))

    def refresh(self, fd: int) -> None:
        """Let nobody who sweeps old files take this one for old."""
        try:
            os.utime(fd)
        except OSError:
            os.pread(fd, 1, 0)  # another user's: reading counts, too

    def _lease(self, uuid: str, alone: bool) -> Optional[int]:
        import fcntl

        path = self._lease_name(uuid)
        how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        for _ in range(8):  # others look at it for a moment, or it was removed just now
            fd = self._open(path, make=True)
            if fd is None:
                continue
            try:
                fcntl.flock(fd, how | fcntl.LOCK_NB)
                if _is_there(fd, path):
                    return fd
            except OSError as trouble:
                if trouble.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    os.close(fd)
                    raise
                time.sleep(0.003)
            os.close(fd)
        return None

    def _open(self, path: str, make: bool) -> Optional[int]:
        """The open file; None when it is not there, or came and went. Raises NoDesk for what is no lease."""
        try:
            # Never O_CREAT on what is there: in a folder for all the kernel refuses that for another user's file.
            fd = os.open(path, os.O_RDONLY | _OURS)
        except FileNotFoundError:
            return self._made(path) if make else None
        except OSError as trouble:
            raise self._hostile(path, trouble.strerror or "") from None
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise self._hostile(path, "it is no plain file")

    def _made(self, path: str) -> Optional[int]:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | _OURS, 0o644)
        except FileExistsError:
            return None
        os.fchmod(fd, 0o644)
        return fd

    def _hostile(self, path: str, why: str) -> NoDesk:
        try:
            owner = name_of(os.lstat(path).st_uid)
        except OSError:
            owner = "somebody"
        return NoDesk("the lease %s cannot be had (%s); %s or an admin has to remove it" % (path, why, owner))

    def _lease_name(self, uuid: str) -> str:
        return os.path.join(self.path, "gpu-" + re.sub(r"[^A-Za-z0-9-]", "_", uuid)[:120])


def name_of(uid: Optional[int]) -> str:
    """A user's name, for people."""
    if uid is None:
        return "somebody"
    return user_of(uid)[0] or "user %d" % uid


def let_go(fds: List[int]) -> None:
    """Give the locks back, whoever else has the files open; then close them."""
    import fcntl

    for fd in fds:
        try:
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)
        except OSError:
            continue


def _can_share(fd: int) -> bool:
    """Whether nobody has that file's lock alone."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_there(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def _understood(data: bytes, number: int, seen: os.stat_result) -> Optional[Ticket]:
    try:
        words: Dict[str, Any] = json.loads(data.decode())
        held = words["gpus"]
        wants = asked.from_json(words["wants"])
        run, since = words["run"], float(words["since"])
        if held is not None:
            held = tuple((str(uuid)[:100], None if m is None else int(m)) for uuid, m in held[: asked.MOST])
        if not isinstance(run, str) or not 0 <= since < 1e11:
            return None
        # Who does not say for long that it is ready is stopped, or frozen: it keeps its place, and is passed.
        ready = words["ready"] is True and abs(time.time() - seen.st_mtime) < _STALE_S
        pid = words["pid"] if isinstance(words["pid"], int) else 0
        return Ticket(number, wants, ready, held, seen.st_uid, pid, run[:40], since)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
