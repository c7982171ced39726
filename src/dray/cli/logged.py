"""What `dray tables` and `dray images` share: find a run and the things of one name, and bring them into a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.endings import FAILED
from dray.cli.facts import count_of
from dray.cli.trouble import say_error
from dray.cli.voice import Voice, ask, can_ask
from dray.core.errors import DrayError, UnknownName, printable

if TYPE_CHECKING:
    from dray.workspace import Run, Workspace


class Thing(Protocol):
    """A table or a picture."""

    @property
    def name(self) -> str:
        """What the script called it."""

    @property
    def step(self) -> int | None:
        """Where it was logged."""


T = TypeVar("T", bound=Thing)


def find(
    ws: Workspace, word: str, name: str | None, things_of: Callable[[Run], list[T]], voice: Voice
) -> tuple[Run, list[T], str | None]:
    """The run, all things in it, and the name that is wanted: the first word, where it names no run but a thing."""

    def has(run: Run) -> bool:
        return name is None and any(thing.name == word for thing in things_of(run))

    run, is_last = desk.find_or_last(ws, word, has, voice)
    return run, things_of(desk.fresh(run, voice)), word if is_last else name


def chosen(kind: str, things: Sequence[T], name: str | None, step: int | None) -> list[T]:
    """Those of that name and step, if any are wanted. Raises UnknownName when there are none."""
    named = [thing for thing in things if name in (None, thing.name)]
    if name is not None and not named:
        raise UnknownName(kind, name, dict.fromkeys(thing.name for thing in things))
    if step is None:
        return named
    found = [thing for thing in named if thing.step == step]
    if not found:
        steps = list(dict.fromkeys(str(thing.step) for thing in named if thing.step is not None))
        raise UnknownName(f"{kind} of step", str(step), steps)
    return found


def bring(
    folder: str,
    files: Sequence[tuple[str, Callable[[Path, bool], object]]],
    *,
    force: bool,
    wants_json: bool,
    voice: Voice,
) -> int:
    """Let each write itself into `folder`, under its name; 1 when one could not, whatever became of the others."""
    places: list[str] = []
    troubles: list[DrayError] = []
    for name, save in files:
        place = Path(folder) / name
        try:
            try:
                save(place, force)
            except DrayError:
                if (
                    force
                    or not place.is_file()
                    or not can_ask()
                    or not ask(f"{place} is different. Replace it?")
                ):
                    raise
                save(place, True)
            places.append(str(place))
        except DrayError as error:
            troubles.append(error)
    if wants_json:
        write_json(places)
    else:
        for text in places:
            click.echo(printable(text))
    for trouble in troubles:
        say_error(trouble)
    voice.say(f"{count_of(len(places), 'file')} in {folder}")
    return FAILED if troubles else 0
