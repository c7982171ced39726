"""What a launcher may do while it makes a run ready: run commands whose output is a stream of the run, and say things.

Nothing in here knows what is made: an environment, an image, or nothing at all.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional, Sequence

from . import processes
from .environments.said import last_words
from .files import write_all
from .folder import RunFolder
from .machine import Machine
from .steps import Steps
from .streams import StateStream

LOG = "log.environment"
Look = Callable[[str, int], bool]
"""Called with a command's log, and where its part of it begins, now and then while it runs; True: end it."""


class Work:
    """The means of one run on its way from claimed to running."""

    def __init__(
        self,
        machine: Machine,
        folder: RunFolder,
        number: int,
        said: StateStream,
        steps: Steps,
        environ: Dict[str, str],
    ) -> None:
        self.machine = machine
        self.folder = folder
        self.number = number
        self.environ = environ
        """The machine's own environment, or that of the user's login shell there."""
        self.attempt = folder.attempt(number)
        self._said = said
        self._steps = steps

    def note(self, text: str) -> None:
        """A sentence for the user, kept with the run."""
        self._said.say("note", text=text)

    def tell(self, kind: str, **facts: Any) -> None:
        """A fact of the run: docs/design.md, "Streams"."""
        self._said.say(kind, **facts)

    def may_go_on(self) -> bool:
        """False as soon as somebody asked for the end."""
        return not self._steps.asked()

    def append(self, data: bytes, stream: str = LOG) -> None:
        """Into a stream, beside what commands print there."""
        fd = os.open(self._path(stream), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)

    def keep(self, stream: str, data: bytes) -> None:
        """A stream that is complete when it appears."""
        beside = os.path.join(self.folder.attempt(self.number), stream + ".new")
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        os.rename(beside, self._path(stream))

    def run(
        self,
        what: str,
        argv: list[str],
        env: dict[str, str],
        stream: str = LOG,
        *,
        mask: Sequence[str] = (),
        look: Optional[Look] = None,
        sweep: Optional[Dict[str, Any]] = None,
    ) -> dict[str, Any]:
        """Run one command to its end, below the guard, its output in `stream` after a line that says `what`.

        How it ended; with "last", what it said that tells most, and "stopped", whether the run is to end; "given_up" when `look`
        had it ended. What is in `mask` is not seen in the log. `sweep` is what the guard clears away if we are gone.
        """
        log = self._path(stream)
        self.append(("dray: %s\n" % what).encode(), stream)
        since = os.stat(log).st_size
        env = dict(env, **{processes.MARK: str(self.folder.id)})
        step = {"step": "environment", "argv": argv, "env": env, "cwd": self.machine.folder, "log": log}
        if sweep:
            step["sweep"] = sweep
        given_up: list[bool] = []

        def meanwhile() -> None:
            if look and not given_up and look(log, since):
                given_up.append(True)
                self._steps.limit(0.0, 1.0)

        seen = self._steps.run(dict(step, mask=list(mask)), meanwhile=meanwhile)
        self._steps.no_limit()
        if "cannot" in seen:
            seen = {"code": 127, "last": "`%s` cannot be executed" % argv[0]}
        else:
            if look:
                look(log, since)
            seen["last"] = last_words(log, since)
        if seen.get("signal"):
            seen["last"] = "it was ended by signal %d" % seen["signal"]
        seen["given_up"] = bool(given_up)
        seen["stopped"] = bool(self._steps.asked())
        return seen

    def _path(self, stream: str) -> str:
        return os.path.join(self.folder.streams(self.number), stream)
