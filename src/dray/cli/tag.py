"""`dray tag`: words on runs, to find them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.each import for_each
from dray.cli.facts import shell_words
from dray.cli.options import as_json, voiced
from dray.cli.voice import Voice
from dray.core.errors import UsageError, printable

if TYPE_CHECKING:
    from dray.workspace import Run


@click.command("tag")
@click.argument("words", metavar="RUN... [K=V]...", nargs=-1, required=True)
@click.option("--rm", "gone", metavar="K", multiple=True, help="Take the tag K away; may be repeated.")
@as_json("the runs' tags")
@voiced
def tag(words: tuple[str, ...], gone: tuple[str, ...], wants_json: bool, voice: Voice) -> int:
    """Put tags on runs, or take them away.

    RUNs come first; from the first word with a `=` on all words are tags. Without any the tags are shown. What a run
    itself said is kept: `dray show` has both.

    \b
    Examples:
      dray tag @last stage=dev owner=ana
      dray tag k3f9x2abqd b7m2p8nrct --rm stage
    """  # noqa: D301
    runs, tags = _parted(words)
    both = sorted(tags.keys() & set(gone))
    if both:
        raise UsageError(f"the tag `{printable(both[0])}` is to be set and to be taken away")

    def one(run: Run) -> dict[str, Any]:
        if gone:
            run.untag(*gone)
        if tags:
            run.tag(tags)
        # Without asking the machine: what was said here is known here.
        now = ws.store.tags(run.id)
        if not wants_json:
            click.echo(
                f"{run.id}\t{printable(shell_words([f'{key}={value}' for key, value in now.items()]))}"
            )
        return {"id": run.id, "tags": now}

    with desk.workspace() as ws:
        code, done = for_each(ws, runs, one)
    if wants_json:
        write_json(done)
    return code


def _parted(words: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """RUNs, and the tags behind them."""
    first = next((at for at, word in enumerate(words) if "=" in word), len(words))
    for word in words[first:]:
        key, equals, _ = word.partition("=")
        if not equals or not key:
            raise UsageError(
                f"`{printable(word)}` is not of the form K=V",
                why="RUNs come first, then tags; a value with blanks stands in quotes: 'k=two words'",
            )
    if first == 0:
        raise UsageError(
            "no RUN to tag", why="RUNs come first", hint=f"dray tag @last {printable(shell_words(words))}"
        )
    return list(words[:first]), {
        key: value for key, _, value in (word.partition("=") for word in words[first:])
    }
