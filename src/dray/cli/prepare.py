"""`dray prepare` and `dray env build`: an environment made ahead, on the machine that will need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.environment_options import names_an_environment
from dray.cli.facts import count_of
from dray.cli.options import as_json, voiced
from dray.cli.voice import Voice
from dray.core.states import RunState

if TYPE_CHECKING:
    from dray.workspace import Run


@click.command("prepare")
@click.option("-c", "--compute", metavar="NAME", help="Where to make it; default: $DRAY_COMPUTE, else local.")
@click.option("--dir", "folder", metavar="D", help="The code folder; default: the current one.")
@names_an_environment
@as_json("what was made")
@voiced
def prepare(wants_json: bool, voice: Voice, **fields: Any) -> int:
    """Make an environment ahead, so that a submit finds it ready.

    What a submit from this folder would need is made on the machine of the compute; nothing is run. When it fails, the
    whole log of the build stays: `dray logs @last --stream environment`.

    \b
    Examples:
      dray prepare -c gpu1
      dray prepare -c gpu1 --env conda_dependencies.yml --refresh
    """  # noqa: D301
    return build_and_tell(wants_json, voice, fields)


def build_and_tell(wants_json: bool, voice: Voice, fields: dict[str, Any]) -> int:
    """Make it, show the making, and forget the run that did; the exit code."""
    from dray.cli.following import watch
    from dray.cli.spout import Spout
    from dray.cli.starting import start
    from dray.workspace import Submission

    with desk.workspace() as ws:
        wish = Submission(command=("true",), prepare=True, **fields)
        run = start(lambda on: ws.submit_planned(wish, on), voice)
        code = watch(run, voice, Spout(2), may_close=False)
        if run.status is not RunState.COMPLETED:
            _say_failure(run, voice)
            return code
        made = dict(run.record.environment or {})
        run.remove()
    was_there = made.get("built_s") is None
    if wants_json:
        write_json(made)
    else:
        click.echo(made.get("name") or made.get("python") or "")
    words = "it was there already" if was_there else f"made in {made['built_s']:g} s"
    packages = made.get("packages")
    about = f", {count_of(packages, 'package')}" if isinstance(packages, int) else ""
    voice.say(f"ready on {run.record.compute}: python {made.get('version') or '?'}{about}; {words}")
    return 0


def _say_failure(run: Run, voice: Voice) -> None:
    if not run.ended:
        return
    reason = (run.reason or {}).get("text") or str(run.status)
    voice.warn(f"the environment was not made: {reason}", f"its log: dray logs {run.id} --stream environment")
