"""Ways to a machine: a byte channel per host, and the connection of frames on top of any of them."""

from dray.hosts.connection import Connection
from dray.hosts.local import LocalHost
from dray.hosts.process import ProcessChannel

__all__ = ["Connection", "LocalHost", "ProcessChannel"]
