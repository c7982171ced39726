"""The person at the terminal, answering what a login wants to know: a password, a code, whether a host key is the right one."""

from __future__ import annotations

import getpass
import sys

from dray.cli.voice import can_ask, pass_echo
from dray.core.errors import printable
from dray.hosts import Question

_TRIES = 3


class Person:
    """Asks, if there is somebody to ask. Whatever is being drawn rests meanwhile."""

    def __call__(self, question: Question) -> str | None:
        """The answer; None where nobody is, or who is there does not want to."""
        if not can_ask():
            return None
        try:
            return self._about_key(question) if question.kind == "host-key" else self._secret(question)
        except (KeyboardInterrupt, EOFError):
            pass_echo()
            return None

    def _secret(self, question: Question) -> str | None:
        lines = [printable(line) for line in question.text.strip().splitlines()] or ["?"]
        for line in lines[:-1]:
            _write(f"      {line}\n")
        return getpass.getpass(f"dray: {lines[-1]} ", stream=sys.stderr) or None

    def _about_key(self, question: Question) -> str | None:
        from dray.hosts.ssh.words import fingerprint

        kind, shown = fingerprint(question)
        _write(f"dray: {printable(question.about)} is new. It shows this host key:\n")
        _write(f"        {printable(kind)} {printable(shown)}\n")
        _write(
            "      Compare it with what its administrator says, or with `ssh-keygen -lf` on the machine.\n"
        )
        for _ in range(_TRIES):
            _write("dray: Is it the right machine? [yes/no] ")
            line = sys.stdin.readline()
            word = line.strip().lower()
            if word in ("yes", "y"):
                return "yes"
            if word in ("no", "n") or not line:
                return "no"
        return "no"


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
