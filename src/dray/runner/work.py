"""What a launcher may do while it makes a run ready: run commands whose output is a stream of the run, and say things.

Nothing in here knows what is made: an environment, an image, or nothing at all.
"""

from __future__ import annotations

import os
from typing import Any, Dict

from . import environment, processes
from .folder import RunFolder
from .machine import Machine
from .steps import Steps
from .streams import StateStream


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

    def run(
        self, what: str, argv: list[str], env: dict[str, str], stream: str = "log.environment"
    ) -> dict[str, Any]:
        """Run one command to its end, below the guard, its output in `stream` after a line that says `what`.

        How it ended; with "last", what it said that tells most, and "stopped", whether the run is to end.
        """
        log = os.path.join(self.folder.streams(self.number), stream)
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(fd, ("dray: %s\n" % what).encode())
        since = os.fstat(fd).st_size
        os.close(fd)
        env = dict(env, **{processes.MARK: str(self.folder.id)})
        step = {"step": "environment", "argv": argv, "env": env, "cwd": self.machine.folder, "log": log}
        seen = self._steps.run(dict(step, mask=[]))
        if "cannot" in seen:
            seen = {"code": 127, "last": "`%s` cannot be executed" % argv[0]}
        else:
            seen["last"] = environment.last_words(log, since)
        seen["stopped"] = bool(self._steps.asked())
        return seen
