"""The command line that starts a run's container, from plain data: what docker, podman and nerdctl have in common, and where not.

Inside, a run finds the same as outside: `/dray/code` is its code folder, `/dray/streams` what it logs, `/dray/travel` the tracking module.
"""

from __future__ import annotations

import shlex
from typing import Dict, List, Tuple

CODE = "/dray/code"
STREAMS = "/dray/streams"
TRAVEL = "/dray/travel"
HOME = "/dray/home"
LOG = "/dray/log"
SECRETS = "/dray/secrets"
CA = "/dray/ca.pem"

MISSING = "dray: not in the image: "

# Before the run's own words. The log is the run's own file, or the guard's pipe: no process of the engine is on the way of a byte.
# Secrets come by a pipe, so that neither the engine nor a disk knows them.
BEGIN = (
    "[ ! -p %s ] || . %s\n" % (SECRETS, SECRETS)
    + 'command -v "$1" >/dev/null 2>&1 || { echo "%s$1"; exit 127; }\n' % MISSING
    + 'exec "$@" >>%s 2>&1' % LOG
)

Mount = Tuple[str, str, bool]
"""Here, there, and whether it may only be read."""


class Container:
    """One container that is to be started: everything its command line says."""

    def __init__(self, engine: str, name: str, image: str) -> None:
        self.engine = engine
        """docker, podman or nerdctl: whose dialect."""
        self.name = name
        self.image = image
        self.labels: Dict[str, str] = {}
        self.mounts: List[Mount] = []
        self.hidden_mounts: List[Mount] = []
        """Those that only dray needs, and that no line for people shows."""
        self.env: Dict[str, str] = {}
        self.named: List[str] = []
        """Variables whose values the engine's command takes from its own environment."""
        self.who: List[str] = []
        """The words about users: users.py."""
        self.gpus: List[str] = []
        """The words about GPUs: gpus.py."""
        self.memory: int | None = None
        self.shm: int | None = None
        self.network: str | None = None
        self.init = True
        self.selinux = False
        self.entrypoint: List[str] = []
        """The image's own."""
        self.command: List[str] = []

    def start(self, has_shell: bool) -> List[str]:
        """The words after the engine's name that start it in the background."""
        words = ["run", "--detach", "--name", self.name]
        for key, value in sorted(self.labels.items()):
            words += ["--label", "%s=%s" % (key, value)]
        words += self._settings([*self.mounts, *self.hidden_mounts])
        if self.engine == "docker":
            words += ["--pull", "never"]
        if not has_shell:
            return [*words, *_whole_log(self.engine), self.image, *self.command]
        inner = [*self.entrypoint, *self.command]
        return [*words, "--entrypoint", "/bin/sh", self.image, "-c", BEGIN, "dray", *inner]

    def line(self) -> str:
        """What a person would type to have the same without dray."""
        words = [self.engine, "run", "--rm", *self._settings(self.mounts), self.image, *self.command]
        return " ".join(shlex.quote(word) for word in words)

    def _settings(self, mounts: List[Mount]) -> List[str]:
        words = ["--init"] if self.init else []
        words += ["--security-opt", "no-new-privileges"]
        if self.selinux:
            words += ["--security-opt", "label=disable"]
        words += self.who
        words += ["--workdir", CODE]
        for mount in mounts:
            words += ["--mount", mount_word(mount)]
        if self.memory:
            # Without a limit of its own, swap would be as large again, and the run slow instead of ended.
            words += ["--memory", str(self.memory), "--memory-swap", str(self.memory)]
        if self.shm:
            words += ["--shm-size", str(self.shm)]
        if self.network:
            words += ["--network", self.network]
        words += self.gpus
        for name, value in self.env.items():
            words += ["--env", "%s=%s" % (name, value)]
        for name in self.named:
            words += ["--env", name]
        return words


def mount_word(mount: Mount) -> str:
    """The value of `--mount`: a folder that is missing is refused, where `-v` would make one that belongs to root."""
    here, there, read_only = mount
    fields = ["type=bind", _field("src=" + here), _field("dst=" + there)]
    if read_only:
        fields.append("readonly")
    return ",".join(fields)


def _field(text: str) -> str:
    """One field of a line of comma-separated values, as the engines read it."""
    if "," in text or '"' in text or "\n" in text:
        return '"%s"' % text.replace('"', '""')
    return text


def _whole_log(engine: str) -> List[str]:
    """The engine keeps what is said, all of it, whatever its own settings are: it is read from there."""
    if engine == "podman":
        return ["--log-driver", "k8s-file"]
    words = ["--log-driver", "json-file"]
    return words if engine == "nerdctl" else [*words, "--log-opt", "max-size=1000g"]


def exports(values: Dict[str, str]) -> bytes:
    """Lines for a shell that set these variables, whatever is in them."""
    lines = ["export %s='%s'\n" % (name, value.replace("'", "'\\''")) for name, value in values.items()]
    return "".join(lines).encode("utf-8", "surrogateescape")


def can_export(name: str) -> bool:
    """Whether a shell takes that name for a variable."""
    return name.replace("_", "a").isalnum() and name.isascii() and not name[0].isdigit()
