"""The options that many commands share, and the kinds of values they take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dray.cli.voice import Voice
from dray.core.durations import parse_duration
from dray.core.errors import UsageError, printable
from dray.core.gpus import Wish
from dray.core.sizes import parse_size

F = TypeVar("F", bound=Callable[..., Any])
LAST = "@last"


class Duration(click.ParamType):  # type: ignore[type-arg] # generic since click 8.2 only
    """90s, 10m, 4h, 2d, 1h30m: seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds; the text is refused in the user's words."""
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return parse_duration(value)
        except UsageError as error:
            self.fail(f"{error.what}; {error.why}", param, ctx)


class Size(click.ParamType):  # type: ignore[type-arg] # generic since click 8.2 only
    """50GB, 500MB, 1.5TiB: bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; the text is refused in the user's words."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except UsageError as error:
            self.fail(f"{error.what}; {error.why}", param, ctx)


class Pair(click.ParamType):  # type: ignore[type-arg] # generic since click 8.2 only
    """NAME=VALUE."""

    name = "pair"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """(name, value); the value may be empty and hold more `=`."""
        if isinstance(value, tuple):
            return value
        name, equals, rest = value.partition("=")
        if not name or not equals:
            self.fail(f"`{printable(value)}` is not of the form NAME=VALUE", param, ctx)
        return name, rest


def voiced(command: F) -> F:
    """Add -q and -v; the command gets them as `voice`."""

    @click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
    @click.option("-v", "--verbose", is_flag=True, help="Say more.")
    @functools.wraps(command)
    def with_voice(*args: Any, quiet: bool, verbose: bool, **kwargs: Any) -> Any:
        return command(*args, voice=Voice(quiet=quiet, verbose=verbose and not quiet), **kwargs)

    return with_voice  # type: ignore[return-value] # `voice` is taken out of the signature that click sees


def as_json(what: str) -> Callable[[F], F]:
    """Add --json."""
    return click.option("--json", "wants_json", is_flag=True, help=f"Print {what} as JSON.")


def one_run(command: F) -> F:
    """Add RUN, by default the newest one."""
    return click.argument("word", metavar="[RUN]", default=LAST)(command)


# fmt: off
def with_gpus(command: F) -> F:
    """Add what can be asked of the machine's GPUs and cores; the command gets it as `gpus`, a Wish."""

    @click.option("--gpus", metavar="G", help="Wait for these: 2, all, a100:1, 0,1 (index or UUID), 0 (none); default: the compute's.")
    @click.option("--gpu-memory", type=Size(), metavar="S", help="Memory that each of them needs (20GB).")
    @click.option("--gpu-ids", metavar="uuid|index", type=click.Choice(["uuid", "index"]), help="How CUDA_VISIBLE_DEVICES names them; default: uuid.")
    @click.option("--share", is_flag=True, help="Beside others that share, each with its --gpu-memory.")
    @click.option("--cpus", type=click.IntRange(1), metavar="N", help="Wait for N cores that no other run asked for.")
    @functools.wraps(command)
    def with_wish(*args: Any, gpus: str | None, gpu_memory: int | None, gpu_ids: str | None, share: bool, cpus: int | None, **kwargs: Any) -> Any:
        return command(*args, gpus=Wish(gpus, gpu_memory, gpu_ids, share, cpus), **kwargs)

    return with_wish  # type: ignore[return-value] # the words are taken out of the signature that click sees
# fmt: on


def in_a_container(command: F) -> F:
    """Add what can be said of a run's container; the command gets it as fields of a ContainerWish."""
    for option in (
        click.option("--image", metavar="I", help="Run in a container of this image, by name or digest; `none`: in none."),
        click.option("--dockerfile", metavar="F", help="Build the image from this file of the code folder, once for what goes into it."),
        click.option("--engine", metavar="E", help="docker, podman, nerdctl or a path; default: the first there is."),
        click.option("--mount", "mounts", metavar="HERE[:THERE][:ro]", multiple=True, help="Show the container a folder of the machine; may be repeated."),
        click.option("--memory", type=Size(), metavar="S", help="Memory the container may have (8GB)."),
        click.option("--shm-size", "shm", type=Size(), metavar="S", help="Shared memory; default: half of the machine's."),
        click.option("--user", metavar="U", help="Whose process: `image`, `root`, NAME or UID[:GID]; default: yours."),
        click.option("--network", metavar="N", help="The engine's network: none, host ..."),
        click.option("--registry-login", "logins", metavar="USER@REGISTRY", multiple=True, help="Pull as this user; the password is kept here, not there. May be repeated."),
        click.option("--ca-bundle", "ca", metavar="F", help="Certificates to trust inside: a file of the machine, or `machine`."),
    ):  # fmt: skip
        command = option(command)
    return command


def many_runs(*, required: bool) -> Callable[[F], F]:
    """Add RUN...; commands that change something demand at least one."""
    metavar = "RUN..." if required else "[RUN]..."
    return click.argument("words", metavar=metavar, nargs=-1, required=required)
