"""This machine: the channel is a child process."""

from __future__ import annotations

import os
from collections.abc import Collection

from dray.core.interfaces import ByteChannel, Host
from dray.hosts.errors import HostUnreachable
from dray.hosts.process import ProcessChannel
from dray.hosts.questions import SECRET_VARIABLES


class LocalHost(Host):
    """The machine that dray itself runs on."""

    name = "local"

    def open(self, word: str, *, without: Collection[str] = ()) -> ByteChannel:
        """Start `sh -c word`. The run inherits this shell's environment, as `python X` would."""
        env = {
            name: value
            for name, value in os.environ.items()
            if name not in without and name not in SECRET_VARIABLES
        }
        try:
            return ProcessChannel(["sh", "-c", word], env=env)
        except OSError as trouble:
            raise HostUnreachable(self.describe(), str(trouble)) from None

    def describe(self) -> str:
        """For people."""
        return "this machine"
