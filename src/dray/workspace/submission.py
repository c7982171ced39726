"""From what a person asked for to what will be run: Submission -> Plan and RunSpec, before anything is sent."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.core.container_wish import ContainerWish
from dray.core.durations import parse_duration
from dray.core.errors import UnknownName, UsageError, printable
from dray.core.gpus import VISIBLE, Wish, wish_of, words
from dray.core.ids import new_run_id
from dray.core.interfaces import Target
from dray.core.sizes import parse_size
from dray.core.spec import Container, Environment, RunSpec
from dray.runner.mask import SHORTEST
from dray.runner.processes import MARK
from dray.workspace import containers
from dray.workspace.choosing import choose
from dray.workspace.errors import BadScript, ScriptLeftOut, WholeFileSystem
from dray.workspace.git import GitQuestion

if TYPE_CHECKING:
    from dray.gpu.drivers import Gpus
    from dray.hosts import Connection

_MOST_LEFT_OUT = 1000
_LISTS = ("extras", "groups", "extra_index_urls", "find_links")


@dataclass(frozen=True, slots=True)
class Submission:
    """Everything a submit can say, as plain data."""

    script: str | None = None
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    compute: str | None = None
    folder: str | None = None
    experiment: str | None = None
    name: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    outputs: tuple[str, ...] = ()
    environment: str | Environment | None = None
    """None: the nearest file that says what is needed, if any; "none": none; else a file, or a registered name (`NAME:2`)."""
    python: str | None = None
    """An existing interpreter, used as it is; or a version, wished for in the environment."""
    extras: tuple[str, ...] = ()
    """Of a pyproject.toml."""
    groups: tuple[str, ...] = ()
    """Of a pyproject.toml."""
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    locked: str | None = None
    """A lock's file, installed in place of what the environment names."""
    refresh: bool = False
    """Resolve the environment again."""
    offline_host: bool = False
    """Resolve and download here, and send the wheels."""
    prepare: bool = False
    """Nothing but the environment is made; no code travels."""
    upgrade_retired: bool = False
    """Take the successors of packages and Pythons that do not exist any more."""
    torch: str | None = None
    """Which build of PyTorch: "auto" (what fits the driver there), "cpu", "cu126" ..."""
    require_gpu: bool = False
    """A build that could not use the GPU is an error, and so is a machine without one, or a run that ended without using it."""
    buffered: bool = False
    stop_if_idle_s: float | None = None
    """End it when its GPUs were idle for so long."""
    cwd: str | None = None
    gpus: Wish = field(default_factory=Wish)
    """What is said of GPUs and cores. In Python its fields are fields of the submit: gpus, gpu_memory, share, cpus ..."""
    container: ContainerWish = field(default_factory=ContainerWish)
    """What is said of a container. In Python its fields are fields of the submit: image, engine, mounts, memory ..."""


def submission_of(script: str | None, args: Iterable[object], fields: Mapping[str, Any]) -> Submission:
    """A Submission from the words of a Python call: numbers become text, and one pattern or length of time may be a text."""
    fields = dict(fields)
    for name in ("timeout", "stop_if_idle"):
        if name in fields:
            fields[f"{name}_s"] = fields.pop(name)
    fields["gpus"] = wish_of(fields)
    of_container = {name: fields.pop(name) for name in ContainerWish.__dataclass_fields__ if name in fields}
    for name in ("memory", "shm"):
        if isinstance(of_container.get(name), str):
            of_container[name] = parse_size(of_container[name])
    if isinstance(of_container.get("mounts"), str):
        of_container["mounts"] = (of_container["mounts"],)
    if of_container:
        fields["container"] = ContainerWish.of(of_container)
    unknown = set(fields) - set(Submission.__dataclass_fields__)
    if unknown:
        known = [name.removesuffix("_s") for name in Submission.__dataclass_fields__]
        known += ContainerWish.__dataclass_fields__
        raise UnknownName("submit option", min(unknown), known)
    if isinstance(fields.get("command"), str):
        words = ["sh", "-c", fields["command"]]
        raise UsageError("a command is a list of words, not one text", hint=f"command={words!r}")
    if isinstance(fields.get("outputs"), str):
        fields["outputs"] = (fields["outputs"],)
    for name in ("timeout_s", "stop_if_idle_s"):
        if isinstance(fields.get(name), str):
            fields[name] = parse_duration(fields[name])
    for name in _LISTS:
        if isinstance(fields.get(name), str):
            fields[name] = (fields[name],)
    if isinstance(fields.get("environment"), os.PathLike):
        fields["environment"] = os.fspath(fields["environment"])
    for name in ("command", "outputs", *_LISTS):
        fields[name] = tuple(map(str, fields.get(name) or ()))
    for name in ("tags", "env"):
        fields[name] = {str(key): str(value) for key, value in (fields.get(name) or {}).items()}
    for name, value in (fields.get("secrets") or {}).items():
        if not isinstance(value, str):
            raise UsageError(f"the value of the secret `{printable(str(name))}` is not a text")
    return Submission(script=os.fspath(script) if script else None, args=tuple(map(str, args)), **fields)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a submit would do."""

    compute: str
    folder: str
    command: list[str]
    script: bool
    python: str | None
    python_from: str
    environment: Environment | None
    container: Container | None
    gpus: Mapping[str, Any]
    cpus: int | None
    environment_why: str
    notes: list[str]
    experiment: str
    git: dict[str, Any] | None
    summary: str
    files: list[tuple[str, int]]
    links: list[tuple[str, str]]
    left_out: list[tuple[str, str]]

    def to_json(self) -> dict[str, Any]:
        """For `--dry-run --json`."""
        return {
            "compute": self.compute,
            "folder": self.folder,
            "command": self.command,
            "python": self.python,
            "python_from": self.python_from,
            "environment": self.environment.to_json() if self.environment else None,
            "gpus": dict(self.gpus),
            "cpus": self.cpus,
            "container": self.container.to_json() if self.container else None,
            "environment_why": self.environment_why,
            "notes": self.notes,
            "experiment": self.experiment,
            "git": self.git,
            "summary": self.summary,
            "files": [{"path": p, "bytes": n} for p, n in self.files],
            "links": [{"path": p, "to": t} for p, t in self.links],
            "left_out": [{"path": p, "rule": r} for p, r in self.left_out],
        }


class Prepared:
    """A submission whose folder, command, Python and environment are known; the code is not read yet."""

    def __init__(self, wish: Submission, target: Target, home: Path) -> None:
        from dray.snapshot import find_code_folder, path_within

        if bool(wish.script) == bool(wish.command) or wish.command[:1] == ("",):
            raise UsageError("name a script, or a command after `--`", hint="dray submit train.py")
        self.wish = wish
        self.target = target
        cwd = Path(wish.cwd or os.getcwd())
        explicit = (cwd / wish.folder).absolute() if wish.folder else None
        script = cwd / wish.script if wish.script else None
        self.folder = find_code_folder(Path(wish.script), cwd, explicit) if wish.script else explicit or cwd
        if self.folder == self.folder.parent:
            raise WholeFileSystem
        self.git = GitQuestion(self.folder)
        self.is_script = script is not None
        if script is None:
            self.command = wish.command
        else:
            # Not None: `find_code_folder` has refused a script outside.
            inside = path_within(self.folder, script, cwd)
            self.command = (inside or script.name, *wish.args)
            if script.suffix not in (".py", ".sh") and not os.access(script, os.X_OK):
                raise BadScript(str(wish.script))
        check_words(wish)
        default, gpus = target.container, target.default_gpus
        if default is not None:
            default, gpus = containers.with_old_file(default, gpus, self.folder, target.name)
        self.container = containers.of(wish.container, default)
        # What the user's shell or `-e` says is a wish, too. Inside a run the variable is dray's own.
        shells = os.environ.get(VISIBLE) if target.is_here and MARK not in os.environ else None
        visible = wish.env.get(VISIBLE) or shells
        self.gpus = wish.gpus.asked(gpus, target.name, visible)
        if self.container and self.container.dockerfile:
            containers.check_dockerfile(self.container.dockerfile, self.folder)
        self.choice = choose(wish, target, self.folder, script, home, in_container=self.container is not None)
        if self.container:
            containers.refuse_for_builds(wish.offline_host, self.choice.credentials)

    def check_gpus(self, connection: Connection) -> None:
        """Ask the machine whether what is to be installed would use its GPUs, if that can be asked. Raises WouldNotUseGpu."""
        if self.container is not None or self.choice.environment is None:
            return
        from dray.workspace.preflight import checked, gpus_of

        def ask() -> Gpus:
            return gpus_of(connection.call({"op": "probe", "gpus": True})["machine"])

        self.choice = checked(self.choice, self.wish.torch, required=self.wish.require_gpu, ask=ask)

    def check_script_travels(self, paths: Iterable[str], left_out: Sequence[tuple[str, str, bool]]) -> None:
        """Refuse a script that an ignore rule keeps here. `paths` are those that travel."""
        if self.is_script and self.command[0] not in set(paths):
            from dray.snapshot import explain_missing

            raise ScriptLeftOut(
                self.command[0], explain_missing([(p, r) for p, r, _ in left_out], self.command[0])
            )

    @property
    def experiment(self) -> str:
        """Named, or after the code folder."""
        return self.wish.experiment or self.folder.name or "default"

    def spec(self, snapshot: Any) -> RunSpec:
        """The RunSpec for that snapshot."""
        wish = self.wish
        return RunSpec(
            id=new_run_id(),
            token=os.urandom(12).hex(),
            experiment=self.experiment,
            compute=self.target.name,
            command=tuple(self.command),
            script=self.is_script,
            name=wish.name,
            created=time.time(),
            submitted_by=me(),
            folder=str(self.folder),
            snapshot=snapshot.digest,
            files=snapshot.files,
            bytes=snapshot.bytes,
            left_out=tuple((item.path, item.rule) for item in snapshot.left_out[:_MOST_LEFT_OUT]),
            git=self.git.answer(),
            python=self.choice.python,
            environment=self.choice.environment,
            refresh=wish.refresh,
            prepare=wish.prepare,
            container=self.container,
            gpus=self.gpus,
            cpus=wish.gpus.cpus,
            env=dict(wish.env),
            secrets=tuple(wish.secrets),
            tags=dict(wish.tags),
            timeout_s=wish.timeout_s,
            outputs=tuple(wish.outputs),
            login=not self.target.is_here,
            setup=self.target.setup,
            buffered=wish.buffered,
            require_gpu=wish.require_gpu,
            stop_if_idle_s=wish.stop_if_idle_s,
        )


def header(spec: RunSpec, python_from: str, summary: str, environment_why: str = "") -> list[str]:
    """The first lines of a submit: what goes where, and with which Python."""
    named = f" ({spec.name})" if spec.name else ""
    command = shlex.join(spec.command)
    shown = command[:117] + "..." if len(command) > 120 else command
    lines = [f"run {spec.id}{named}: {shown} on {spec.compute}", f"sent: {summary}"]
    if spec.prepare:
        lines = [f"run {spec.id}: makes an environment ahead on {spec.compute}"]
    wanted = words(spec.gpus, spec.cpus)
    if wanted:
        lines.append(f"asks for: {wanted}")
    if spec.env.get(VISIBLE) not in (None, "", "-1"):
        lines.append(
            f"-e {VISIBLE} only takes away from the GPUs that the run holds: others are asked for with --gpus"
        )
    if spec.container:
        lines.append(f"container: {containers.in_words(spec.container)}")
    if spec.environment:
        lines.append(f"environment: {environment_words(spec.environment, spec.folder, environment_why)}")
    elif spec.python and spec.script:
        lines.append(f"python: {spec.python} (from {python_from})")
    return lines


def environment_words(environment: Environment, folder: str, why: str = "") -> str:
    """requirements.txt (3 packages, python 3.11; beside the script)."""
    source = environment.source
    if source and folder and os.path.isabs(source):
        below = os.path.relpath(source, folder)
        source = source if below.startswith("..") else below
    count = len(environment.packages) + len(environment.conda)
    pieces = [f"{count} package{'s' * (count != 1)}"] if count or not environment.lock else []
    pieces += ["locked"] if environment.lock else []
    pieces += ["by conda"] if environment.conda else []
    pieces += [f"python {environment.python}"] if environment.python else []
    return (f"{source} " if source else "") + f"({', '.join(pieces)}{f'; {why}' if why else ''})"


def me() -> str:
    """Who submits, from where: `ana@laptop`."""
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{os.uname().nodename or 'here'}"


def check_word(kind: str, text: str) -> None:
    """Refuse what cannot be the name of a run or an experiment."""
    if not text.strip() or not text.isprintable() or len(text) > 200 or text.startswith(("@", "-")):
        raise UsageError(
            f"`{printable(text[:80])}` cannot be the {kind}",
            why="it has to be 1 to 200 printable characters, not beginning with @ or -",
        )


def check_words(wish: Submission) -> None:
    """Refuse what could not be told apart, or not be written, later."""
    for kind, text in (("name", wish.name), ("experiment", wish.experiment)):
        if text is not None:
            check_word(kind, text)
    for name in (*wish.env, *wish.secrets):
        if not name or "=" in name or "\0" in name or not name.isprintable():
            raise UsageError(f"`{printable(name)}` cannot be the name of an environment variable")
    for name, value in (*wish.env.items(), *wish.secrets.items()):
        if "\0" in value:
            raise UsageError(f"the value of `{name}` holds a NUL byte", why="no environment variable can")
    said = [*wish.args, *wish.command, *wish.env.values(), *wish.tags.values(), wish.name or ""]
    for name, value in wish.secrets.items():
        if len(value.encode("utf-8", "surrogateescape")) < SHORTEST:
            raise UsageError(
                f"the secret `{name}` is too short to be masked",
                why=f"replacing fewer than {SHORTEST} bytes would garble the output",
                hint=f"-e {name}=... if it may be seen",
            )
        if any(value in text for text in said):
            raise UsageError(
                f"the value of the secret `{name}` stands among the words of this submit",
                why="those are stored and shown",
                hint="let the script read it from its environment",
            )
    both = sorted(set(wish.env) & set(wish.secrets))
    if both:
        raise UsageError(f"`{both[0]}` is given as a secret and as a plain variable")
    if wish.timeout_s is not None and wish.timeout_s <= 0:
        raise UsageError("a timeout has to be longer than nothing")
    if wish.stop_if_idle_s is not None and wish.stop_if_idle_s <= 0:
        raise UsageError("`--stop-if-idle` has to be longer than nothing")
    for pattern in wish.outputs:
        if pattern.startswith("/") or ".." in pattern.split("/") or not pattern.strip():
            raise UsageError(
                f"`{printable(pattern)}` cannot name outputs",
                why="it has to be a pattern inside the code folder",
            )
