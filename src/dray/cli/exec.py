"""`dray exec`: a command inside a live run, as if typed there."""

from __future__ import annotations

import os
import signal
import stat
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.endings import LEFT, LINK_LOST
from dray.cli.options import LAST, voiced
from dray.cli.voice import Voice, is_terminal
from dray.core.errors import LinkLost, UsageError

if TYPE_CHECKING:
    from types import FrameType

    from dray.cli.raw import Raw
    from dray.workspace import Run
    from dray.workspace.executing import Execution

_SHELL = ("sh", "-c", 'exec "$(command -v bash || command -v sh)"')


class ExecCommand(click.Command):
    """Understands `exec RUN -it -- CMD -l` and `exec -it RUN CMD -l`: all options are ours up to the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put a `--` before the command, if there is none."""
        if "--" in args:
            at = args.index("--")
            ours, theirs = args[:at], args[at + 1 :]
        else:
            places = [at for at, word in enumerate(args) if not word.startswith("-") or word == "-"]
            at = places[1] if len(places) > 1 else len(args)
            ours, theirs = args[:at], args[at:]
        if len([word for word in ours if not word.startswith("-") or word == "-"]) > 1:
            raise click.UsageError("only RUN and options stand before `--`", ctx)
        ctx.meta["dray.command"] = theirs
        return super().parse_args(ctx, ours)


@click.command("exec", cls=ExecCommand, options_metavar="[OPTIONS]")
@click.argument("word", metavar="[RUN] -- COMMAND...", default=LAST)
@click.option("-i", "--interactive", is_flag=True, help="Pass on what is typed.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal; without a COMMAND a shell.")
@click.option("--secrets", is_flag=True, help="Let the command have the run's secrets.")
@voiced
@click.pass_context
def exec(ctx: click.Context, word: str, interactive: bool, tty: bool, secrets: bool, voice: Voice) -> int:  # noqa: A001
    """Run a command inside a live run.

    It starts in the run's code folder, with the run's environment: its Python, its variables, its GPUs, its container. Its
    output comes live, and what comes here by a pipe or a file is its stdin. Ctrl-C ends it. It ends with the run at the
    latest, and never keeps a run from ending.

    Ends with the command's exit code (128+n for signal n); 126 and 127 when it could not be started, 125 when the run is not
    running, 75 link lost. With -t, Enter ~ . leaves a terminal that has come to a halt.

    \b
    Examples:
      dray exec @last -- nvidia-smi
      dray exec k3f9x2abqd -it -- bash
      dray exec @last -- tar c outputs | tar x
    """  # noqa: D301
    command = tuple(ctx.meta["dray.command"])
    if not command:
        if not tty:
            raise UsageError(
                "nothing to run", hint=f"dray exec {word} -it, or dray exec {word} -- nvidia-smi"
            )
        command = _SHELL
    if tty and not is_terminal(0):
        raise UsageError(
            "there is no terminal here to pass on",
            why="-t was given, and stdin is none",
            hint="leave -t away",
        )
    with desk.workspace() as ws:
        run = desk.find(ws, word)
        try:
            return (
                _on_terminal(run, command, secrets, voice)
                if tty
                else _piped(run, command, interactive, secrets, voice)
            )
        except LinkLost as lost:
            lost.hint = f"the run goes on, the command has ended: dray follow {run.id}"
            lost.exit_code = LINK_LOST
            raise


def _piped(run: Run, command: tuple[str, ...], interactive: bool, secrets: bool, voice: Voice) -> int:
    """With pipes: stdout and stderr stay apart."""
    from dray.cli.spout import Spout
    from dray.workspace.executing import Execution, pump

    stdin = interactive or _has_stdin()
    with ExitStack() as stack:
        execution = stack.enter_context(Execution(run.reachable(), command, stdin=stdin, secrets=secrets))
        interrupts = _Interrupts(execution)
        stack.callback(_handled({signal.SIGINT: interrupts}))
        if stdin:
            threading.Thread(target=pump, args=(execution, 0), daemon=True).start()
        spouts = {1: Spout(1), 2: Spout(2)}
        for number, data in execution.output(
            lambda: voice.say(f"waiting for {run.id} to start"), lambda: _tell_hidden(execution, voice)
        ):
            spouts[number].write(data)
        for spout in spouts.values():
            spout.settle()
        return _ended(run, execution, voice)


def _on_terminal(run: Run, command: tuple[str, ...], secrets: bool, voice: Voice) -> int:
    """With a terminal there and ours in raw mode here: every key goes over."""
    from dray.cli.raw import Escape, Raw, size
    from dray.cli.spout import write_all
    from dray.workspace.executing import Execution, Terminal, pump

    with ExitStack() as stack:
        terminal = Terminal(os.environ.get("TERM") or "xterm", *size(0))
        execution = stack.enter_context(
            Execution(run.reachable(), command, terminal=terminal, stdin=True, secrets=secrets)
        )
        escape = Escape()
        left = threading.Event()

        def typed(data: bytes) -> bytes | None:
            passed = escape.feed(data)
            if passed is None:
                left.set()
                # Wakes the main thread from its wait for more.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            return passed

        raw: list[Raw] = []

        def started() -> None:
            _tell_hidden(execution, voice)
            raw.append(stack.enter_context(Raw(0)))
            threading.Thread(target=pump, args=(execution, 0, typed), daemon=True).start()

        interrupts = _Interrupts(execution)

        def interrupted(number: int, frame: FrameType | None) -> None:
            if left.is_set():
                raise KeyboardInterrupt
            interrupts(number, frame)

        handlers = {signal.SIGINT: interrupted, signal.SIGWINCH: lambda *_: execution.resize(*size(0))}
        stack.callback(_handled(handlers))
        try:
            for _, data in execution.output(lambda: voice.say(f"waiting for {run.id} to start"), started):
                write_all(1, data)
        except KeyboardInterrupt:
            if not left.is_set():
                raise
        for one in raw:
            one.close()
        if left.is_set():
            voice.say(f"left; the command has ended, {run.id} goes on")
            return LEFT
        return _ended(run, execution, voice)


def _tell_hidden(execution: Execution, voice: Voice) -> None:
    if execution.hidden:
        voice.say(
            f"without the run's secrets ({', '.join(execution.hidden)}); `--secrets` gives them to the command"
        )


def _ended(run: Run, execution: Execution, voice: Voice) -> int:
    if execution.run_ended:
        voice.say(f"{run.id} has ended, and the command with it")
    assert execution.code is not None
    return execution.code


class _Interrupts:
    """Ctrl-C: the first one asks the command to end, the second kills it, the third leaves."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 2:
            raise KeyboardInterrupt
        self._execution.signal("INT" if self._count == 1 else "KILL")


def _handled(handlers: dict[signal.Signals, Any]) -> Any:
    """Put signal handlers in place; the result puts the old ones back."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}

    def back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return back


def _has_stdin() -> bool:
    """Something stands ready to be read that is no terminal: a pipe, a file or a socket."""
    kind = os.fstat(0).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)
