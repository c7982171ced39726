"""The gate of a store: it keeps what a submit needs while no run names it yet.

Who is about to use blobs or environments goes through the gate together with others, and stays in it until a run names what
it uses. Who clears away goes through it alone, reads afresh what the runs name, and removes some of the rest. It is a lock of the
operating system, so it ends with its holder, however that ends. One gate in the client's home, one in each machine's folder.
"""

from __future__ import annotations

import os
import time

NAME = "gate"


def enter(folder: str) -> int | None:
    """Go in together with others; waits for one who is alone, which takes a moment. Close what it returns to leave.

    None where such locks cannot be had (another system, a disk that may only be read): nobody clears away there either.
    """
    try:
        return _locked(folder, alone=False)
    except (OSError, ImportError):
        return None


def enter_alone(folder: str, patience_s: float) -> int | None:
    """Go in alone; None when others were inside all the time. Raises OSError where such locks cannot be had."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return _locked(folder, alone=True)
        except BlockingIOError:
            if time.monotonic() > until:
                return None
        except ImportError:
            raise OSError("this system has no such locks") from None
        time.sleep(0.004)


def leave(held: int | None) -> None:
    """Leave the gate. In a forked child only the child leaves."""
    if held is not None:
        os.close(held)


def _locked(folder: str, alone: bool) -> int:
    import fcntl  # not on Windows, where a client has no gate

    file = os.open(os.path.join(folder, NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
    except BaseException:
        os.close(file)
        raise
    return file
