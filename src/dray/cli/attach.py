"""`dray attach`: a machine becomes a compute. `compute attach` and the old `computetarget attach` are the same."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dray.cli import desk
from dray.cli.documents import write_json
from dray.cli.facts import count_of
from dray.cli.options import as_json, in_a_container, voiced
from dray.cli.progress import Activity
from dray.cli.voice import Voice
from dray.core.container_wish import ContainerWish
from dray.core.durations import show_bytes
from dray.core.errors import DrayError, UnknownName, UsageError, printable
from dray.targets import KINDS, OLD_WORDS, VmOptions, options_of

if TYPE_CHECKING:
    from dray.workspace import Workspace
    from dray.workspace.attaching import Attached, Login

F = TypeVar("F", bound=Callable[..., Any])
_FROM_STDIN = ("password", "passphrase", "registry-password")
_NOT_YET = ("cluster", "slurm", "spark", "hdinsight")
_PASSWORD, _PASSPHRASE = "DRAY_PASSWORD", "DRAY_PASSPHRASE"  # names of variables
_REGISTRY = "DRAY_REGISTRY_PASSWORD"  # likewise


def machine_options(*, name_the_address: bool) -> Callable[[F], F]:
    """The flags that VmOptions has; the command gets them as one dict `changes` of those that were given."""
    flags = [one for one in dataclasses.fields(VmOptions) if "help" in one.metadata]

    def decorate(command: F) -> F:
        for one in reversed(flags):
            text = str(one.metadata["help"])
            text = text if name_the_address else text.partition("; default")[0].rstrip(".") + "."
            kind = int if "int" in str(one.type) else str
            metavar = "N" if kind is int else one.name.rpartition("_")[2].upper()[:1]
            command = click.option(
                f"--{one.name.replace('_', '-')}", one.name, type=kind, metavar=metavar, help=text
            )(command)
        return command

    return decorate


def login_options(command: F) -> F:
    """How to log in; the command gets it as the parts that `login_of` takes."""
    for option in (
        click.option("--password", metavar="P", help="The password. Visible to others while dray runs: --password-stdin is better."),
        click.option("--password-stdin", is_flag=True, help=f"Read the password from stdin. ${_PASSWORD} works too."),
        click.option("--passphrase-stdin", is_flag=True, help=f"Read the key's passphrase from stdin. ${_PASSPHRASE} works too."),
        click.option("--registry-password-stdin", is_flag=True, help=f"Read the password of --registry-login from stdin. ${_REGISTRY} works too."),
        click.option("--accept-new", is_flag=True, help="Trust a host key that was never seen. $DRAY_ACCEPT_NEW=1 does it too."),
        click.option("--no-keep", is_flag=True, help="Keep no password or passphrase for the next time."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command("attach")
@click.argument("kind", metavar="KIND|RUN")
@click.argument("name", required=False)
@click.option("--name", "old_name", metavar="NAME", help="The same as the word NAME.")
@machine_options(name_the_address=True)
@login_options
@in_a_container
@as_json("the compute")
@voiced
def attach(
    kind: str, name: str | None, old_name: str | None, wants_json: bool, voice: Voice, **words: Any
) -> int:
    """Make a machine a compute, reached with your own ssh; or this machine's container engine.

    KIND is vm, remotedocker (a vm whose runs are in containers) or docker (this machine's engine). A machine needs an ssh
    server and python3 (3.8 or later), and nothing else. All of ~/.ssh/config counts: jump hosts, agents, ports, certificates.
    Done twice, it changes nothing. `dray attach RUN` tells how to return to a run.

    \b
    Examples:
      dray attach vm gpu1
      dray attach vm gpu1 --address ana@10.0.0.5 --port 2222
      dray attach vm lab --address lab.example.org --setup 'module load cuda'
      dray attach docker box --image python:3.12
      dray attach docker box --image ghcr.io/ana/train:3 --registry-login ana@ghcr.io
      dray attach remotedocker gpu2 --address ana@10.0.0.6 --memory 32GB
    """  # noqa: D301
    with desk.workspace() as ws:
        meant = _kind(ws, kind, name or old_name)
        if (name is None) == (old_name is None):
            raise UsageError("name the compute", hint=f"dray attach {kind} gpu1 --address USER@HOST")
        login, options = login_of(words, voice)
        with Activity(voice) as activity:
            # Not the address: somebody may have put a password into it.
            activity.begin(f"reaching {name or old_name}")
            ws.answers = desk.person(activity)
            from dray.workspace.attaching import attach as make

            made = options_for(meant, options, ContainerWish.of(words))
            found = make(ws, str(name or old_name), meant, made, login)
        return show_attached(found, wants_json, voice)


def options_for(kind: str, options: Mapping[str, Any], container: ContainerWish) -> VmOptions:
    """The options of that kind. Refuses what says something of containers where there are none."""
    if kind == "vm":
        if container:
            raise UsageError(
                "the runs of a `vm` are processes, not containers",
                why="a single run is in one with `dray submit --image ...`",
                hint="dray attach remotedocker NAME ...",
            )
        return VmOptions(**options)
    from dray.workspace.containers import checked

    checked(container)
    said: dict[str, Any] = {**options, "container": container.to_json()}
    return options_of(kind)(**said)


def container_changes(ws: Workspace, name: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """What `compute update` says of containers, beside what was said before; an empty text takes something away."""
    said = {key: words[key] for key in ContainerWish.__dataclass_fields__ if words.get(key) not in (None, ())}
    said = {key: "" if value == ("",) else value for key, value in said.items()}
    if not said:
        return {}
    there = ws.computes.get(name)
    if there is None or there.kind == "vm":
        options_for("vm", {}, ContainerWish.of(said))  # tells why not
    from dray.workspace.containers import checked

    before = dict(getattr(there.options, "container", {})) if there else {}
    wish = ContainerWish.of({key: value for key, value in {**before, **said}.items() if value not in ("", 0)})
    checked(wish)
    return {"container": wish.to_json()}


def _kind(ws: Workspace, word: str, name: str | None) -> str:
    """The kind of compute that is meant. Refuses everything else: a run, what cannot be attached yet, a mistake."""
    meant = OLD_WORDS.get(word, word)
    if meant in KINDS:
        return meant
    try:
        run = ws.run(word)
    except DrayError:
        if word in _NOT_YET:
            why = f"this version knows: {', '.join(KINDS)}"
            raise UsageError(f"`{word}` cannot be attached yet", why=why) from None
        raise UnknownName(
            "kind of compute", word, [*KINDS, *OLD_WORDS], hint=_meant(ws, word, name)
        ) from None
    raise UsageError(
        f"`{printable(word)}` is a run, and `attach` is for machines", hint=f"dray follow {run.id}"
    )


def _meant(ws: Workspace, word: str, name: str | None) -> str:
    """What somebody who got the kind wrong, or forgot it, wanted to type."""
    from dray.workspace.computes import check_name

    if name is not None:
        return f"dray attach vm {printable(name)}"
    try:
        check_name(word)
    except UsageError:
        return "dray attach vm NAME"
    return f"dray compute check {word}" if ws.computes.get(word) else f"dray attach vm {word}"


def login_of(words: Mapping[str, Any], voice: Voice) -> tuple[Login, dict[str, Any]]:
    """The login that the flags speak of, and the options of the machine that were given."""
    from dray.workspace.attaching import Login

    known = {one.name for one in dataclasses.fields(VmOptions)}
    options = {key: value for key, value in words.items() if key in known and value is not None}
    if words["password"] is not None:
        voice.warn(
            "the password stood on the command line, where every process of this machine could read it",
            "the shell keeps it in its history, too; better: --password-stdin, or let dray ask",
        )
    from_stdin = [f"--{key}-stdin" for key in _FROM_STDIN if words[f"{key.replace('-', '_')}_stdin"]]
    if len(from_stdin) > 1:
        raise UsageError(f"`{from_stdin[0]}` and `{from_stdin[1]}` exclude one another")
    password = words["password"] or os.environ.get(_PASSWORD) or None
    passphrase = os.environ.get(_PASSPHRASE) or None
    if words["password_stdin"]:
        password = _line("password")
    if words["passphrase_stdin"]:
        passphrase = _line("passphrase")
    registry = os.environ.get(_REGISTRY) or None
    if words["registry_password_stdin"]:
        registry = _line("registry-password")
    named = tuple(one for one in words.get("logins") or () if one)
    if words["registry_password_stdin"] and not named:
        raise UsageError(
            "whose password is it?", hint="--registry-login USER@REGISTRY --registry-password-stdin"
        )
    login = Login(
        password,
        passphrase,
        words["accept_new"],
        not words["no_keep"],
        registry=registry,
        registry_logins=named,
    )
    return login, options


def _line(what: str) -> str:
    text = sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise UsageError(
            f"there was no {what} on stdin", hint=f"printf '%s\\n' \"$SECRET\" | dray ... --{what}-stdin"
        )
    return text


def show_attached(found: Attached, wants_json: bool, voice: Voice, how: str | None = None) -> int:
    """The compute's name on stdout, and what was found on stderr."""
    compute, machine = found.compute, found.machine
    if wants_json:
        write_json(
            {"name": compute.name, **compute.to_json(), "facts": dict(machine), "was_attached": found.was_there,
             "same_machine_as": found.same_as}
        )  # fmt: skip
        return 0
    click.echo(compute.name)
    who = f"{machine['user']}@{machine['host']}: {machine['os']}, Python {machine['python']}"
    room = f"{count_of(machine['cpus'], 'core')}, {show_bytes(machine['disk_free'])} free"
    more = [f"{who}, {room}", *found.notes]
    if found.same_as:
        names = ", ".join(found.same_as)
        more.append(f"the same machine as {names}: both names work, and share cache, queue and runs")
    how = how or ("already attached" if found.was_there else "attached")
    voice.say(f"{compute.name} is {how}", *more, f"try it: dray submit -c {compute.name} train.py")
    return 0
