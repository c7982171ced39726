"""`dray ssh`: a shell on a compute, over the connection that dray uses, too."""

from __future__ import annotations

import os

import click

from dray.cli import desk
from dray.cli.options import voiced
from dray.cli.progress import Activity
from dray.cli.voice import Voice
from dray.core.errors import UsageError, printable


@click.command("ssh", context_settings={"allow_interspersed_args": False})
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@voiced
def ssh(name: str, command: tuple[str, ...], voice: Voice) -> int:
    """Open a shell on a compute.

    Logs in if need be, asking what the machine asks; the connection is kept for hours, and dray's other commands use it.
    Words after NAME are a command for that shell; `--` before them may stand or not. Ends with its code.

    \b
    Examples:
      dray ssh gpu1
      dray ssh gpu1 nvidia-smi
    """  # noqa: D301
    from dray.workspace.attaching import named

    if command[:1] == ("--",):
        command = command[1:]
    with desk.workspace() as ws, Activity(voice) as activity:
        ws.answers = desk.person(activity)
        host = ws.attached_target(named(ws, name)).host
        if not host.is_connected():
            activity.begin(f"logging in to {host.describe()}")
            host.log_in()
        argv = host.shell(command)
    try:
        os.execvp(argv[0], argv)  # from here on it is the user's own ssh
    except OSError as trouble:
        raise UsageError(f"`{printable(argv[0])}` cannot be started", why=trouble.strerror) from None
