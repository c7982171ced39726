"""Ways to a machine: a byte channel per host, and the connection of frames on top of any of them.

Machines behind ssh are in `dray.hosts.ssh`, which is imported only where there are some.
"""

from dray.hosts.connection import Connection
from dray.hosts.errors import (
    HostKeyChanged,
    HostKeyUnknown,
    HostPythonMissing,
    HostPythonTooOld,
    HostUnreachable,
    LoginRefused,
    WayBarred,
)
from dray.hosts.local import LocalHost
from dray.hosts.process import ProcessChannel
from dray.hosts.questions import Answers, Question, nobody

__all__ = [
    "Answers",
    "Connection",
    "HostKeyChanged",
    "HostKeyUnknown",
    "HostPythonMissing",
    "HostPythonTooOld",
    "HostUnreachable",
    "LocalHost",
    "LoginRefused",
    "ProcessChannel",
    "Question",
    "WayBarred",
    "nobody",
]
