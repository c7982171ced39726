"""What is to be run: RunSpec and Environment, plain data that goes to JSON and comes back the same.

Read `RunSpec` first. A field that an older or newer dray does not know is dropped on reading, never an error:
run folders outlive versions. Secrets' values are never part of it, only their names.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Environment:
    """What must be installed for a run: a normalised list, named by its digest.

    Addresses in it never hold credentials: those travel beside the spec, as secrets do.
    """

    packages: tuple[str, ...] = ()
    """Requirements as pip writes them, sorted; those of the editable projects are among them."""
    python: str | None = None
    """Wanted version, such as "3.11", or clauses; None: whatever the machine has."""
    source: str = ""
    """The file it was read from, or its name in the workspace, for people; no part of the digest."""
    conda: tuple[str, ...] = ()
    """Match specs, sorted: set when something is wanted that is neither Python nor pip's; then all that conda named."""
    channels: tuple[str, ...] = ()
    """Of conda, the first one first."""
    lock: str | None = None
    """The text of a resolved lock, to be installed exactly as it is."""
    lock_kind: str | None = None
    """How `lock` is written: "pylock" (PEP 751) or "requirements" (frozen lines as pip writes them)."""
    editable: tuple[str, ...] = ()
    """Folders of projects, relative to the code folder: imported from the run's `code/`, never installed."""
    index: Mapping[str, Any] = field(default_factory=dict)
    """Where packages come from, if not from the machine's usual place: `index_url`, `extra_index_urls`, `find_links`; and
    `torch_backend`, the build of PyTorch (cpu, cu126)."""

    @property
    def digest(self) -> str:
        """Same needs, same digest; the machine adds its platform and Python to it."""
        return hashlib.sha256(canonical_json(self.needs())).hexdigest()

    def needs(self) -> dict[str, Any]:
        """What the digest is made of. What is not used is not named, so a field more changes no older digest."""
        needs = {name: value for name, value in self._plain().items() if value and name != "source"}
        return {**needs, "packages": list(self.packages), "python": self.python}

    def to_json(self) -> dict[str, Any]:
        """Plain data, digest included."""
        return {**self._plain(), "digest": self.digest}

    def _plain(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}
        return {**plain, "index": dict(self.index)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Environment:
        """Read what `to_json` gave, by this version or another."""
        known = {f.name for f in dataclasses.fields(cls)}
        values = {k: v for k, v in data.items() if k in known and v is not None}
        for name in ("packages", "conda", "channels", "editable"):
            values[name] = tuple(values.get(name) or ())
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Container:
    """That a run is to be in a container of its machine's engine, and how."""

    image: str | None = None
    """By name or digest; None: one that fits."""
    dockerfile: str | None = None
    """Path of a Dockerfile in the code folder, to build the image from."""
    engine: str | None = None
    """docker, podman, nerdctl, or a path; None: the first that the machine has."""
    mounts: tuple[tuple[str, str, bool], ...] = ()
    """(on the machine, in the container, whether it may only be read)."""
    memory: int | None = None
    """Bytes it may have."""
    shm: int | None = None
    """Bytes of shared memory; None: half of the machine's."""
    user: str | None = None
    """"image", "root", or what the engine takes; None: the user's own number."""
    network: str | None = None
    """One of the engine's; None: its default."""
    ca: str | None = None
    """"machine" or a path there: certificates that programs inside are to trust."""
    logins: tuple[str, ...] = ()
    """USER@REGISTRY: whom the image is pulled as. The passwords are in no spec."""

    def to_json(self) -> dict[str, Any]:
        """Plain data; what is not said is left out."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["mounts"] = [list(mount) for mount in self.mounts]
        data["logins"] = list(self.logins)
        return {"v": 1, **{name: value for name, value in data.items() if value not in (None, [])}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Container:
        """Read what `to_json` gave, by this version or another."""
        known = {f.name for f in dataclasses.fields(cls)}
        values = {k: v for k, v in data.items() if k in known}
        values["mounts"] = tuple((str(a), str(b), bool(c)) for a, b, c in values.get("mounts") or ())
        values["logins"] = tuple(map(str, values.get("logins") or ()))
        return cls(**values)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that defines a run, fixed before anything leaves the client."""

    id: str
    experiment: str
    compute: str
    command: tuple[str, ...]
    """A script and its arguments (`script` is set), or any command line."""
    script: bool = True
    """True: `command[0]` is a path below the code folder, started by the run's Python or its own interpreter."""
    token: str = ""
    """Random; tells this run from another that happens to have the same id."""
    name: str | None = None
    created: float = 0.0
    submitted_by: str = ""
    folder: str = ""
    """The code folder on the client, for people."""
    snapshot: str = ""
    """Digest of the manifest."""
    files: int = 0
    bytes: int = 0
    left_out: tuple[tuple[str, str], ...] = ()
    """(path, rule) of what did not travel, the first thousand."""
    git: Mapping[str, Any] | None = None
    """commit, branch, dirty."""
    python: str | None = None
    """Interpreter to use, already resolved for the local target; None: the machine's own."""
    environment: Environment | None = None
    refresh: bool = False
    """Resolve the environment again, even if the machine has it."""
    prepare: bool = False
    """End as soon as the environment is ready; nothing is started."""
    container: Container | None = None
    """None: a process on the machine itself."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that may be seen (`-e`)."""
    secrets: tuple[str, ...] = ()
    """Names only."""
    tags: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, Any] | None = None
    """What is asked of the machine's GPUs: docs/design.md, "The wire". None: nothing is said, and nothing hidden."""
    cpus: int | None = None
    """Cores to wait for; None: the run counts for none."""
    timeout_s: float | None = None
    outputs: tuple[str, ...] = ()
    """Globs, relative to the code folder, of results beside `outputs/`."""
    login: bool = False
    """Builder and script get the environment of the user's login shell on the machine, not that of the connection."""
    require_gpu: bool = False
    """The run fails before user code where no GPU works, and after it where none was used."""
    stop_if_idle_s: float | None = None
    """End the run when its GPUs were idle for that long."""
    setup: str | None = None
    """What that login shell runs first, as kept with the compute: `module load cuda`."""
    buffered: bool = False
    grace_s: float = 10.0
    """Between SIGTERM and SIGKILL at a timeout."""
    rerun_of: str | None = None
    """Id of the run that this one repeats."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for the wire, run.json and the store."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["environment"] = self.environment.to_json() if self.environment else None
        data["container"] = self.container.to_json() if self.container else None
        for name, value in data.items():
            if isinstance(value, tuple):
                data[name] = [list(v) if isinstance(v, tuple) else v for v in value]
            elif isinstance(value, Mapping):
                data[name] = dict(value)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSpec:
        """Read what `to_json` gave, by this version or another."""
        known = {f.name for f in dataclasses.fields(cls)}
        values = {k: v for k, v in data.items() if k in known}
        for name in ("command", "secrets", "outputs"):
            values[name] = tuple(values.get(name) or ())
        values["left_out"] = tuple((p, r) for p, r in values.get("left_out") or ())
        if values.get("environment"):
            values["environment"] = Environment.from_json(values["environment"])
        if values.get("container"):
            values["container"] = Container.from_json(values["container"])
        return cls(**values)


def canonical_json(value: Any) -> bytes:
    """The one way to write `value`, so that equal values have equal digests."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
