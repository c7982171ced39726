"""Machines behind ssh, reached with the user's own OpenSSH (decision 0019). Begin with `host.py`."""

from dray.hosts.ssh.host import SshHost, SshOptions

__all__ = ["SshHost", "SshOptions"]
