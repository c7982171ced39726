"""A run in a container of this machine's engine: which engine, which image, what the container is given, how it is started and swept.

The order of things is that of `ContainerLauncher.make_ready`. What a command line says is `words`', who looks after the container
while it runs is `keeper`'s.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List

from .. import processes, results
from ..files import dump, remove_tree, write_once
from ..folder import RunFolder
from ..launch import Launcher, Order
from ..machine import user_of
from ..work import Work
from . import DEFAULT_IMAGE, building, engines, gpus, images, mounts, strays, users, words
from .engines import ContainerFailed, Engine, Facts
from .images import Image, Images, Inside
from .logins import Logins

_CA_VARIABLES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip


class ContainerLauncher(Launcher):
    """A process in a container."""

    def __init__(self, order: Order, folder: RunFolder, number: int) -> None:
        self.order = order
        self.spec = order.spec
        self.wish: Dict[str, Any] = self.spec.get("container") or {}
        self.folder = folder
        self.number = number
        self.attempt = folder.attempt(number)
        self.engine: Engine | None = None
        self.facts = Facts()
        self.image: Image | None = None
        self.inside = Inside({})
        self.container: words.Container | None = None
        self.who = users.Who([], None, is_own=True)
        self.gpu_way = ""
        self._work: Work | None = None
        self._built_s: float | None = None

    # -- making ready

    def make_ready(self, work: Work) -> None:
        """Have an engine that is here, the image, and the container's command line."""
        name = self._wanted_image()
        self.engine, found = engines.first_that_answers(
            engines.find(self.wish.get("engine"), work.environ), lambda engine: self._meet(engine, name)
        )
        self._check_gpus()
        with Logins(self.order.logins, self.engine, self.attempt) as logins:
            self._leave_a_trace(logins.folder)
            strays.sweep(self.engine, work.machine)
            logins.write()
            pictures = Images(self.engine, work, logins)
            built_s = self._have_image(pictures, name, found, work.environ)
        assert self.image
        self.who = users.choose(
            self.engine.kind, self.facts, os.getuid(), os.getgid(), os.getgroups(), self.wish.get("user")
        )
        self.inside = pictures.inside(self.image, [])
        self.container = self._described(work)
        self._built_s, self._work = built_s, work
        self._tell(work)

    def _tell(self, work: Work) -> None:
        """The image and the line, as facts of the run."""
        assert self.engine
        assert self.image
        assert self.container
        work.tell(
            "environment",
            python=self.inside.python,
            version=self.inside.version,
            digest=(self.spec.get("environment") or {}).get("digest"),
            built_s=self._built_s,
            container={
                "engine": self.engine.kind,
                "version": self.facts.version,
                "image": self.image.name,
                "id": self.image.id,
                "digest": self.image.digest,
                "name": self.container.name,
                "line": self.container.line(),
            },
        )

    def _wanted_image(self) -> str:
        """By name; of an environment that wishes for a Python, the image of that Python."""
        named = self.wish.get("image")
        if named:
            return str(named)
        version = re.match(r"3\.[0-9]+", str((self.spec.get("environment") or {}).get("python") or ""))
        return "python:%s-slim" % version.group() if version else DEFAULT_IMAGE

    def _have_image(
        self, pictures: Images, name: str, found: Image | None, environ: Dict[str, str]
    ) -> float | None:
        """Have the image here: pulled, built, with its environment. How long making one took; None: none was made."""
        built_s = None
        file = self.wish.get("dockerfile")
        if file:
            self.image, built_s = building.from_dockerfile(pictures, str(file), self.folder.code)
        else:
            self.image = found or pictures.pull(name)
        wanted = self.spec.get("environment")
        if wanted and any(wanted.get(part) for part in ("packages", "lock", "conda", "python")):
            base = self.image
            settings = [*_root(self.facts), *_mounted(mounts.certificates(self.wish, environ))]
            if self.wish.get("network"):
                settings += ["--network", str(self.wish["network"])]
            for mount in mounts.wanted(self.wish, environ):
                settings += ["--mount", words.mount_word((mount[0], mount[1], True))]
            provisions = self.order.provisions()
            uv = provisions.uv(pictures.work.machine, environ) if provisions else None
            self.image, more_s = building.with_environment(
                pictures, base, wanted, os.path.realpath(uv) if uv else None, settings
            )
            self.image.name = base.name
            built_s = more_s if built_s is None else built_s + (more_s or 0)
        return built_s

    def _check_gpus(self) -> None:
        """Before anything is pulled: can containers get the GPUs that the run asks for. Raises ContainerFailed."""
        if self.order.asked.wants.gpus and self.engine:
            from . import looking

            try:
                self.gpu_way = gpus.way(self.engine.kind, self.facts, looking.toolkit_of(self.engine))
            except ContainerFailed as trouble:
                raise ContainerFailed(
                    trouble.kind, "%s; `--gpus 0` runs it without a GPU" % trouble
                ) from None

    def _meet(self, engine: Engine, name: str) -> Image | None:
        """Ask the engine all there is to ask at once: is it here, what is it, has it the image."""
        info, place, picture = engine.ask(*engines.questions(engine.kind), ["image", "inspect", name])
        self.facts = engines.met(engine, info, place)
        return images.image_of(name, picture.code, picture.out, picture.err)

    def _leave_a_trace(self, login: str | None) -> None:
        """Who finds the run without its people knows from this how to end its container, and where logins lie."""
        assert self.engine
        traced = strays.trace(self.engine, self.folder.id, login)
        write_once(os.path.join(self.attempt, "container.json"), dump(traced))

    def _described(self, work: Work) -> words.Container:
        """The container, but for what is known only when it starts."""
        assert self.engine
        assert self.image
        one = words.Container(self.engine.kind, self.folder.id, self.image.id)
        if self.image.digest != self.image.id:
            one.image = self.image.digest
        one.labels = strays.labels(work.machine, self.folder.id)
        one.init = self.facts.has_init
        one.selinux = self.facts.has_selinux
        one.who = self.who.words
        one.entrypoint = self.image.entrypoint
        one.command = self._command()
        one.memory = self.wish.get("memory")
        one.shm = self.wish.get("shm") or _half(self.facts.memory)
        one.network = self.wish.get("network")
        one.mounts = self._mounts(work.environ)
        one.env = self._env()
        self._ca(one, work.environ)
        self._secrets(one)
        return one

    def _command(self) -> List[str]:
        """The run's words, behind the image's entrypoint."""
        command = [str(word) for word in self.spec["command"]]
        if not self.spec.get("script", True):
            return command
        script, *rest = command
        named = "./" + script if script.startswith("-") else script
        if script.endswith(".py"):
            entry = self.image.entrypoint if self.image else []
            if entry and images.is_python(entry[-1]):
                return [named, *rest]  # the image is a Python already
            if self.inside.has_shell and not self.inside.python:
                raise ContainerFailed("image-failed", "there is no Python in the image `%s`" % self._name())
            return [self.inside.python or "python3", named, *rest]
        if script.endswith(".sh"):
            return ["sh", named, *rest]
        return [words.CODE + "/" + script, *rest]

    def _name(self) -> str:
        return self.image.name if self.image else ""

    def _mounts(self, environ: Dict[str, str]) -> List[words.Mount]:
        streams = self.folder.streams(self.number)
        travel = self.order.travel if self.who.is_own else mounts.copy_of(self.order.travel, self.attempt)
        found = [
            (self.folder.code, words.CODE, False),
            (streams, words.STREAMS, False),
            (travel, words.TRAVEL, True),
        ]
        if self.who.is_own and self.who.uid:
            found += mounts.account(self.attempt, self.inside)
        elif not self.who.is_own:
            mounts.open_for_others(self.folder.code, streams)
        return found + mounts.wanted(self.wish, environ)

    def _env(self) -> Dict[str, str]:
        """What the script finds beside the image's own variables."""
        assert self.image
        env: Dict[str, str] = {}
        if self.who.is_own and self.who.uid:
            name = user_of(self.who.uid)[0] or "user"
            env.update({"HOME": words.HOME, "USER": name, "LOGNAME": name})
        elif self.who.uid == 0:
            env.update({"HOME": "/root", "USER": "root", "LOGNAME": "root"})
        env.update(self.spec.get("env") or {})
        if not self.spec.get("buffered"):
            env.setdefault("PYTHONUNBUFFERED", "1")
        theirs = env.get("PYTHONPATH") or self.image.env.get("PYTHONPATH")
        env["PYTHONPATH"] = theirs + ":" + words.TRAVEL if theirs else words.TRAVEL
        env[processes.MARK] = self.spec["id"]
        env["DRAY_ATTEMPT"] = str(self.number)
        env["DRAY_STREAMS"] = words.STREAMS
        env["DRAY_OUTPUTS"] = words.CODE + "/" + results.OUTPUTS
        env["DRAY_EXPERIMENT"] = str(self.spec.get("experiment") or "")
        if self.order.secrets:
            env["DRAY_SECRETS"] = ",".join(self.order.secrets)
        return env

    def _ca(self, one: words.Container, environ: Dict[str, str]) -> None:
        """The certificates that the user trusts, for all programs that ask for a file of them."""
        mount = mounts.certificates(self.wish, environ)
        if mount:
            one.mounts.append(mount)
            for name in _CA_VARIABLES:
                one.env.setdefault(name, words.CA)

    def _secrets(self, one: words.Container) -> None:
        """By the pipe to the shell where there is one and it can name them, else through the engine's own environment."""
        for name in self.order.secrets:
            one.env.pop(name, None)
            if not self.inside.has_shell or not words.can_export(name):
                if name in ("PATH", "HOME") or name.startswith(("DOCKER_", "CONTAINER_", "XDG_")):
                    raise ContainerFailed(
                        "container-failed", "the secret `%s` cannot be handed to a container" % name
                    )
                one.named.append(name)

    # -- starting

    def step(self, machines: Dict[str, str]) -> Dict[str, Any]:
        """The order to the guard: a keeper rather than a program."""
        assert self.engine
        assert self.container
        one, bare = self.container, not self.inside.has_shell
        self._give_gpus(one)
        secrets = {} if bare else {n: v for n, v in self.order.secrets.items() if n not in one.named}
        log = os.path.join(self.folder.streams(self.number), "log.script")
        mask = [form.decode("utf-8", "surrogateescape") for form in self.order.hidden()]
        step: Dict[str, Any] = {
            "step": "script",
            "argv": [self.engine.program],
            # What the script sees, for whoever measures; the keeper has the engine's.
            "env": {**one.env, **self.order.granted.variables(self.spec.get("env") or {})},
            "cwd": "/",
            "log": log,
            "mask": mask,
            "sweep": strays.trace(self.engine, self.folder.id),
        }
        if not bare:
            path = self._log(one, log, bool(mask))
            if mask:
                step["pipe"] = path
        keeper: Dict[str, Any] = {
            "engine": self.engine.program,
            "name": one.name,
            "env": self.engine.environ,
            "named": {name: self.order.secrets[name] for name in one.named},
            "bare": bare,
            "limit": one.memory,
        }
        if secrets:
            keeper["pipe"] = self._pipe("secrets")
            keeper["secrets"] = words.exports(secrets).decode("utf-8", "surrogateescape")
            one.hidden_mounts.append((keeper["pipe"], words.SECRETS, False))
        keeper["start"] = one.start(not bare)
        step["keeper"] = keeper
        return step

    def door(self, step: Dict[str, Any]) -> Dict[str, Any]:
        """By the engine's own way into a container; that passes no signals on, so who is inside is found there by a shell."""
        assert self.engine
        names = [word for name in self.order.secrets for word in ("--env", name)]
        into = [self.engine.program, "exec", "--interactive", "--workdir", words.CODE, *names]
        return {
            "env": {**self.engine.environ, **self.order.secrets},
            "cwd": "/",
            "hidden": list(self.order.secrets),
            "into": [*into, self.folder.id],
            "into_tty": [*into, "--tty", "--env", "TERM", self.folder.id],
            "inside": [self.engine.program, "exec", self.folder.id] if self.inside.has_shell else [],
        }

    def _give_gpus(self, one: words.Container) -> None:
        """The leased GPUs and no others. Inside they are numbered anew, so what names them there is the engine's affair."""
        assert self.image
        held = [unit.uuid for unit in self.order.granted.units if unit.vendor == "nvidia"]
        one.gpus = gpus.words(self.gpu_way, held) or gpus.none_words(self.image.env)
        if held and self._work:
            self._tell(self._work)

    def _log(self, one: words.Container, log: str, is_masked: bool) -> str:
        """Where the script writes: the log itself, or the guard's pipe."""
        path = self._pipe("output") if is_masked else log
        if not is_masked:
            os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
            if not self.who.is_own:
                os.chmod(log, 0o666)
        one.hidden_mounts.append((path, words.LOG, False))
        return path

    def _pipe(self, name: str) -> str:
        path = os.path.join(self.attempt, name + ".pipe")
        os.mkfifo(path, 0o600)
        if not self.who.is_own:
            os.chmod(path, 0o666)
        return path

    # -- the end

    def sweep(self) -> None:
        """Nothing of the run is left with the engine; nothing of the container's is left in the run's folder but its results."""
        if self.engine is None:
            return
        if self.container is not None:
            strays.end(strays.trace(self.engine, self.folder.id))
            self._give_back()
        for name in ("home", "travel", "passwd", "group", "output.pipe", "secrets.pipe"):
            try:
                remove_tree(os.path.join(self.attempt, name))
            except OSError:
                continue  # what cannot be removed now goes with the run

    def _give_back(self) -> None:
        """What a container of somebody else has written becomes the user's."""
        assert self.engine
        if self.who.is_own or self.image is None or os.getuid() == 0:
            return
        run = ["run", "--rm", "--network", "none", *_root(self.facts), "--entrypoint", "chown"]
        theirs = [
            (self.folder.code, words.CODE, False),
            (self.folder.streams(self.number), words.STREAMS, False),
        ]
        for mount in theirs:
            run += ["--mount", words.mount_word(mount)]
        owner = "0:0" if self.facts.is_rootless else "%d:%d" % (os.getuid(), os.getgid())
        self.engine.ask([*run, self.image.id, "-hR", owner, words.CODE, words.STREAMS])


def _mounted(mount: words.Mount | None) -> List[str]:
    return ["--mount", words.mount_word(mount)] if mount else []


def _root(facts: Facts) -> List[str]:
    return ["--userns", "host", "--user", "0:0"] if facts.is_remapped else ["--user", "0:0"]


def _half(memory: int) -> int | None:
    """Data loaders share memory; the engine's own 64 MB ends them. It is taken only as it is used."""
    return memory // 2 // (1 << 20) * (1 << 20) or None
