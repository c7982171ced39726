"""Which container engine this machine has, and what it says of itself. Through its own command, so logins and proxies count.

`find` and `Engine.ask` touch the machine; all else reads text.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, Tuple, TypeVar

from ..environments import BuildFailed
from ..environments.pythons import find_program
from . import ENGINES as KNOWN

_FAR = ("ssh://", "tcp://", "http://", "https://", "npipe://", "fd://")
_PATIENCE_S = 60.0


class ContainerFailed(BuildFailed):
    """The container cannot be had; the text is for the user. `kind` is the reason's."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Engine:
    """The engine's command on this machine."""

    def __init__(self, program: str, environ: Dict[str, str]) -> None:
        self.program = program
        self.kind = kind_of(program)
        self.environ = environ

    def ask(self, *questions: List[str], limit_s: float = _PATIENCE_S) -> List[Answer]:
        """Ask several things at once; the answers in the same order. What takes too long is ended, and has no code."""
        import subprocess

        asked = [
            subprocess.Popen(
                [self.program, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environ,
                cwd="/",
            )
            for words in questions
        ]
        answers = []
        for one in asked:
            try:
                out, err = one.communicate(timeout=limit_s)
                answers.append(Answer(one.returncode, out, err))
            except subprocess.TimeoutExpired:
                one.kill()
                one.communicate()
                answers.append(Answer(None, b"", b"it did not answer in %d s" % int(limit_s)))
        return answers


class Answer:
    """What the engine's command said. `code` is None when it said nothing in time."""

    def __init__(self, code: int | None, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out.decode(errors="replace")
        self.err = err.decode(errors="replace")

    @property
    def words(self) -> str:
        """The line that tells most of what went wrong."""
        return telling(self.err) or telling(self.out) or "no word of why"

    def json(self) -> Any:
        """What it printed, as JSON; None when it is none."""
        return parsed(self.out) if self.code == 0 else None


def parsed(text: str) -> Any:
    """JSON, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def telling(said: str) -> str:
    """Of what an engine said, the sentence about the trouble, without the engine's own wrapping."""
    lines = [line.strip() for line in said.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("See '", "Run '", "WARNING", "time="))]
    marked = [line for line in lines if "rror" in line.split(":")[0] or line.startswith("docker:")]
    line = (marked or lines or [""])[-1]
    for prefix in ("docker: ", "Error: ", "ERROR: ", "Error response from daemon: "):
        line = line[len(prefix) :] if line.startswith(prefix) else line
    return line[:400]


def kind_of(program: str) -> str:
    """docker, podman or nerdctl, by the name of the program; what has another name is taken for docker."""
    name = os.path.basename(program)
    return next((known for known in KNOWN if known in name), "docker")


def find(wanted: str | None, environ: Dict[str, str]) -> List[Engine]:
    """The engine that was asked for, or those that there are, the best first. Raises ContainerFailed."""
    path = environ.get("PATH", os.defpath)
    if wanted and "/" in wanted:
        if os.access(wanted, os.X_OK):
            return [Engine(wanted, environ)]
        raise ContainerFailed("no-engine", "the container engine `%s` is not on this machine" % wanted)
    programs = [find_program([name], path) for name in ([wanted] if wanted else KNOWN)]
    found = [Engine(program, environ) for program in programs if program]
    if found:
        return found
    if wanted:
        there = [name for name in KNOWN if find_program([name], path)]
        more = "; there is %s" % ", ".join(there) if there else ""
        raise ContainerFailed(
            "no-engine", "the container engine `%s` is not on this machine's PATH%s" % (wanted, more)
        )
    raise ContainerFailed(
        "no-engine",
        "there is no container engine on this machine: none of %s is on the PATH; install one "
        "(Debian, Ubuntu: `apt install docker.io`; Fedora: `dnf install podman`)" % ", ".join(KNOWN),
    )


class Facts:
    """What an engine says of itself, whichever it is."""

    def __init__(
        self,
        version: str = "",
        name: str = "",
        is_rootless: bool = False,
        is_remapped: bool = False,
        has_selinux: bool = False,
        runtimes: List[str] | None = None,
        cdi: List[str] | None = None,
        has_init: bool = True,
        limits_memory: bool = True,
        memory: int = 0,
    ) -> None:
        self.version = version
        self.name = name
        self.is_rootless = is_rootless
        self.is_remapped = is_remapped
        self.has_selinux = has_selinux
        self.runtimes = runtimes or []
        self.cdi = cdi or []
        """Devices that it can hand in by CDI, such as `nvidia.com/gpu=all`, or folders of their descriptions."""
        self.has_init = has_init
        self.limits_memory = limits_memory
        self.memory = memory


def read_facts(kind: str, said: Dict[str, Any]) -> Facts:
    """From `ENGINE info` as JSON."""
    return _podman(said) if dialect_of(kind, said) == "podman" else _docker(said)


def dialect_of(kind: str, said: Dict[str, Any]) -> str:
    """Whose words it speaks: on some systems `docker` is another name of podman."""
    return "podman" if kind == "podman" or "host" in said else kind


def _docker(said: Dict[str, Any]) -> Facts:
    """docker, and nerdctl, which answers in its words."""
    security = [str(one) for one in said.get("SecurityOptions") or []]
    found = [str(one.get("ID")) for one in said.get("DiscoveredDevices") or [] if isinstance(one, dict)]
    return Facts(
        version=str(said.get("ServerVersion") or ""),
        name=str(said.get("Name") or ""),
        is_rootless=any(one.startswith("name=rootless") for one in security),
        is_remapped=any(one.startswith("name=userns") for one in security),
        has_selinux=any(one.startswith("name=selinux") for one in security),
        runtimes=sorted(said.get("Runtimes") or {}),
        cdi=found or [str(one) for one in said.get("CDISpecDirs") or []],
        has_init=bool(said.get("InitBinary", "docker-init")),
        limits_memory=bool(said.get("MemoryLimit", True)),
        memory=int(said.get("MemTotal") or 0),
    )


def _podman(said: Dict[str, Any]) -> Facts:
    host = said.get("host") or {}
    security = host.get("security") or {}
    return Facts(
        version=str((said.get("version") or {}).get("Version") or ""),
        name=str(host.get("hostname") or ""),
        is_rootless=bool(security.get("rootless")),
        has_selinux=bool(security.get("selinuxEnabled")),
        runtimes=[str((host.get("ociRuntime") or {}).get("name") or "")],
        cdi=["/etc/cdi", "/var/run/cdi"],
        has_init=any(
            os.access(path, os.X_OK)
            for path in ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit", "/usr/lib/podman/catatonit")
        ),
        limits_memory="memory" in (host.get("cgroupControllers") or ["memory"]),
        memory=int(host.get("memTotal") or 0),
    )


def far_away(endpoint: str) -> str | None:
    """Why an engine that is reached like this is on another machine; None when it is on this one."""
    if not endpoint or endpoint.startswith(("unix://", "/")):
        return None
    if endpoint.startswith(_FAR):
        return "it is reached by `%s`, and this run's files are on this machine" % endpoint
    return None


def endpoint_of(context: Any) -> tuple[str, str]:
    """(name, address) from `docker context inspect`."""
    if isinstance(context, list) and context and isinstance(context[0], dict):
        docker = (context[0].get("Endpoints") or {}).get("docker") or {}
        return str(context[0].get("Name") or ""), str(docker.get("Host") or "")
    return "", ""


def trouble_of(kind: str, words: str) -> str:
    """Why an engine does not answer, with what mends it."""
    if "permission denied" in words and "sock" in words:
        return (
            "you may not speak to the docker engine of this machine (%s); "
            "`sudo usermod -aG docker $USER`, then log in anew" % words
        )
    if "Cannot connect" in words or "connection refused" in words:
        start = (
            "`systemctl --user start docker`" if "/run/user/" in words else "`sudo systemctl start docker`"
        )
        return "the %s engine of this machine does not run: %s (%s)" % (kind, words, start)
    return "the %s engine of this machine does not answer: %s" % (kind, words)


def questions(kind: str) -> List[List[str]]:
    """What to ask for `met`: all at once."""
    context = ["context", "inspect"] if kind == "docker" else ["version"]
    return [["info", "--format", "{{json .}}"], context]


def met(engine: Engine, info: Answer, place: Answer) -> Facts:
    """Its facts, by its answers. Raises ContainerFailed when it does not answer, or is somewhere else."""
    endpoint = engine.environ.get("DOCKER_HOST") or endpoint_of(place.json())[1]
    why = far_away(endpoint) if engine.kind == "docker" else None
    if why:
        raise ContainerFailed(
            "engine-elsewhere",
            "the docker of this machine speaks to an engine on another one: %s; `docker context use default` "
            "(and `unset DOCKER_HOST`), or attach that machine itself" % why,
        )
    said = info.json()
    if not isinstance(said, dict) or said.get("ServerErrors"):
        trouble = "; ".join(map(str, (said or {}).get("ServerErrors") or [])) or info.words
        raise ContainerFailed("no-engine", trouble_of(engine.kind, trouble))
    engine.kind = dialect_of(engine.kind, said)
    facts = read_facts(engine.kind, said)
    if facts.name and engine.kind == "docker" and facts.name != os.uname().nodename:
        raise ContainerFailed(
            "engine-elsewhere",
            "the docker engine that answers here is on `%s`, and this run's files are on `%s`: "
            "a container there could not see them" % (facts.name, os.uname().nodename),
        )
    return facts


Met = TypeVar("Met")


def first_that_answers(found: List[Engine], meet: Callable[[Engine], Met]) -> Tuple[Engine, Met]:
    """What `meet` gives of the first that answers: a docker that is installed and does not run is no reason against podman."""
    troubles = []
    for engine in found:
        try:
            return engine, meet(engine)
        except ContainerFailed as trouble:
            troubles.append(trouble)
            if trouble.kind != "no-engine" or engine.environ.get("DOCKER_HOST"):
                break  # somebody has said which one is meant
    raise troubles[0]
