"""Answers the questions that ssh asks while it logs in, over a socket that only this user can reach (decision 0019).

ssh starts a helper with the question as its argument (SSH_ASKPASS); the helper passes it to `Asking` and prints the answer.
No secret is in an argument, in the environment, or on a disk.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable

from dray.hosts.questions import Question
from dray.hosts.ssh.words import read_question

_LONGEST = 65536
_HELPER = """\
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["DRAY_ASK"])
s.sendall(sys.argv[1].encode("utf-8", "surrogateescape") if len(sys.argv) > 1 else b"")
s.shutdown(socket.SHUT_WR)
a = b""
while True:
    p = s.recv(65536)
    if not p:
        break
    a += p
if a[:1] != b"+":
    sys.exit(1)
os.write(1, a[1:] + b"\\n")
"""


class Asking:
    """Waits for ssh's questions in a thread of its own, until it is closed."""

    def __init__(self, folder: str, answer: Callable[[Question], str | None]) -> None:
        """`folder` belongs to this user alone."""
        self.unanswered: Question | None = None
        """The first question that nobody could answer: what came after it may be another way to log in."""
        self.was_wrong = False
        """That question had been answered before: the answer was not the right one."""
        self._answered: set[tuple[str, str]] = set()
        self._answer = answer
        self._path = os.path.join(folder, f"ask-{os.getpid()}-{os.urandom(4).hex()}")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self._path)
        self._socket.listen(8)
        self._closed = False
        self._helper = helper(folder)
        threading.Thread(target=self._serve, daemon=True).start()

    def env(self) -> dict[str, str]:
        """What ssh has to find in its environment."""
        return {
            "SSH_ASKPASS": self._helper,
            "SSH_ASKPASS_REQUIRE": "force",
            "DRAY_ASK": self._path,
            # Older than 8.4, ssh asks a helper only where it believes in a display.
            "DISPLAY": os.environ.get("DISPLAY") or "none:0",
        }

    def close(self) -> None:
        """Answer nothing any more. Safe to repeat."""
        if not self._closed:
            self._closed = True
            try:
                # Wakes the thread that waits for the next question; closing alone would not.
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # where a listening socket cannot be shut down, its closing wakes the thread
            self._socket.close()
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass  # somebody tidied up

    def _serve(self) -> None:
        while not self._closed:
            try:
                asker, _ = self._socket.accept()
            except OSError:
                return
            with asker:
                asker.settimeout(5.0)
                try:
                    self._hear(asker)
                except OSError:
                    continue  # the helper was killed

    def _hear(self, asker: socket.socket) -> None:
        helper_pid, user = _peer(asker)
        if user not in (None, os.getuid()):
            return
        text = b""
        while len(text) < _LONGEST:
            piece = asker.recv(_LONGEST)
            if not piece:
                break
            text += piece
        question = read_question(text.decode("utf-8", "surrogateescape"))
        asker.settimeout(None)  # a person takes their time
        answer = self._answer(question)
        key = (question.kind, question.about)
        if answer is None:
            if self.unanswered is None:
                self.unanswered, self.was_wrong = question, key in self._answered
            if helper_pid is not None:
                _end_parent(helper_pid)
            asker.sendall(b"-")
        else:
            self._answered.add(key)
            asker.sendall(b"+" + answer.encode("utf-8", "surrogateescape"))


def _peer(asker: socket.socket) -> tuple[int | None, int | None]:
    """Process and user at the other end; None where the system does not tell."""
    wanted = getattr(socket, "SO_PEERCRED", None)
    if wanted is None:
        return None, None
    pid, user, _ = struct.unpack("3i", asker.getsockopt(socket.SOL_SOCKET, wanted, struct.calcsize("3i")))
    return int(pid), int(user)


def _end_parent(pid: int) -> None:
    """End the ssh whose helper this is. Left alone it would go on with empty passwords, and be locked out for it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
        with open(f"/proc/{parent}/comm", "rb") as file:
            if file.read().strip() == b"ssh":
                os.kill(parent, signal.SIGTERM)
    except (OSError, ValueError, IndexError):
        return  # it has ended, or there is no /proc here


def helper(folder: str) -> str:
    """The program that ssh starts, in `folder`: made when it is not there yet."""
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(_HELPER)} "$@"\n'
    path = os.path.join(folder, f"askpass-{len(text)}-{_sum(text)}")
    if not os.access(path, os.X_OK):
        beside = f"{path}.{os.urandom(4).hex()}"
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "w") as file:
            file.write(text)
        os.replace(beside, path)
    return path


def _sum(text: str) -> str:
    import zlib

    return f"{zlib.crc32(text.encode()):08x}"  # names the file; nobody else may write here
