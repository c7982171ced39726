"""What commands that start a run share: the options that describe it, and what happens from the start to the exit code."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dray.cli.documents import write_json
from dray.cli.endings import FAILED, NOT_STARTED
from dray.cli.options import Duration, Pair
from dray.cli.progress import Activity
from dray.cli.voice import Voice, pass_echo
from dray.core.errors import DrayError

if TYPE_CHECKING:
    from dray.workspace import Event, Run

F = TypeVar("F", bound=Callable[..., Any])


def describes_a_run(compute: str, experiment: str) -> Callable[[F], F]:
    """Add -c, --experiment, --name, --tag, -e, --secret, --timeout, -d and -y; the two words are the help's defaults."""
    options = (
        click.option(
            "-c",
            "--compute",
            metavar="NAME",
            help=f"Where to run; default: {compute}.",
        ),
        click.option(
            "--experiment", metavar="E", help=f"The experiment it belongs to; default: {experiment}."
        ),
        click.option("--name", metavar="N", help="A name for the run, to use in place of its id."),
        click.option(
            "--tag", "tags", type=Pair(), metavar="K=V", multiple=True, help="A tag; may be repeated."
        ),
        click.option(
            "-e",
            "--env-var",
            "env",
            type=Pair(),
            metavar="K=V",
            multiple=True,
            help="A variable for the script that may be seen; may be repeated.",
        ),
        click.option(
            "--secret",
            "secret_words",
            metavar="NAME[=@FILE]",
            multiple=True,
            help="A variable that may not be seen, from the file; else from the environment, the keyring "
            '(service "dray"), or a prompt, in this order. Masked in the output.',
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=Duration(),
            metavar="D",
            help="End the script after this long (90s, 10m, 4h, 2d), counted from `running`.",
        ),
        click.option("-d", "--detach", is_flag=True, help="Print the run's id and leave it running."),
        click.option("-y", "--yes", is_flag=True, help="Ask nothing."),
    )

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def start_and_follow(
    begin: Callable[[Callable[[Event], None]], Run], voice: Voice, *, detach: bool, wants_json: bool
) -> int:
    """Start what `begin` starts, and follow it unless it is to be left; the exit code."""
    run = start(begin, voice)
    if detach:
        run.detach()
        if wants_json:
            write_json(run.to_json())
        else:
            click.echo(run.id)
        return 0
    from dray.cli.following import to_the_end

    if _has_stdin():
        voice.say("the script gets no stdin: what comes here by a pipe or a file stays unread")
    return to_the_end(run, voice, wants_json=wants_json)


def start(begin: Callable[[Callable[[Event], None]], Run], voice: Voice) -> Run:
    """Until the machine has claimed the run, saying what happens."""
    with Activity(voice) as activity:
        try:
            return begin(activity.hear)
        except KeyboardInterrupt:
            activity.rest()
            pass_echo()
            voice.say("left while the run was being sent", "what became of it: dray runs")
            raise
        except DrayError as error:
            raise _not_started(error) from error.__cause__
        except OSError as error:
            from dray.cli.trouble import of_the_world

            known = of_the_world(error)
            if known is None:
                raise
            raise _not_started(known) from error


def _not_started(error: DrayError) -> DrayError:
    """Whatever it was: the script has not run, and 1 would say that it had."""
    if error.exit_code == FAILED:
        error.exit_code = NOT_STARTED
    return error


def _has_stdin() -> bool:
    """Something stands ready to be read that is no terminal: a pipe or a file."""
    kind = os.fstat(0).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)
