"""`dray forward`: ports of a live run on this computer."""

from __future__ import annotations

import click

from dray.cli import desk
from dray.cli.endings import LEFT
from dray.cli.options import voiced
from dray.cli.voice import Voice, pass_echo
from dray.core.errors import UsageError

PORTS = "PORT[:LOCALPORT]"


@click.command("forward")
@click.argument("word", metavar="RUN")
@click.argument("ports", metavar=f"{PORTS}...", nargs=-1)
@voiced
def forward(word: str, ports: tuple[str, ...], voice: Voice) -> int:
    """Bring ports of a live run to this computer.

    For TensorBoard, Jupyter and whatever else a run serves. Waits until the run serves the port, prints its address, and goes on
    until Ctrl-C or the run's end. Only you can reach it: not other computers, and no other users of this one. Without LOCALPORT it
    is the same number, or the next one that is free.

    \b
    Examples:
      dray forward @last 6006
      dray forward k3f9x2abqd 8888:9999 6006
    """  # noqa: D301
    from dray.workspace import Event, Said, Served
    from dray.workspace.forwarding import wish_of

    if not ports:
        if word.replace(":", "").isdigit():
            raise UsageError("of which run?", hint=f"dray forward @last {word}")
        raise UsageError("which port?", hint=f"dray forward {word} 6006")
    for port in ports:
        wish_of(port)

    def hear(event: Event) -> None:
        if isinstance(event, Served):
            click.echo(event.url)
            voice.say(f"that is port {event.port} of the run; Ctrl-C ends it, the run goes on")
        elif isinstance(event, Said):
            voice.say(event.text)

    with desk.workspace() as ws:
        run = desk.find(ws, word)
        with run.forward(*ports, on=hear) as brought:
            try:
                brought.wait()
            except KeyboardInterrupt:
                pass_echo()
                voice.say(f"left; {run.id} goes on")
                return LEFT
        voice.say(f"{run.id} has ended, and its ports with it")
    return 0
