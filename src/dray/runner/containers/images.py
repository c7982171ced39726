"""The image of a run: which one it is exactly, having it here, and what is in it. What was found out is kept by the image's own id.

Read `Images.provide`. Building one is `building.py`'s.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from typing import Any, Callable, Dict, List

from ..environments import Stopped
from ..files import dump, make_folder, read_json, replace
from ..work import Work
from . import clearing, strays
from .engines import ContainerFailed, Engine, parsed, telling
from .logins import Logins

_MARK = "dray-probe-"
_PROBE_S = 120.0

# One look into an image: which Pythons, and who is known there. In the words of any shell.
_LOOK = """printf '%sbegin\\n'
[ -x /bin/sh ] && printf '%sshell\\n'
for p in python python3; do
  command -v $p >/dev/null 2>&1 || continue
  printf '%spython %%s ' $p
  $p -c 'import sys; print("%%d.%%d.%%d" %% sys.version_info[:3])' 2>/dev/null || echo
done
for f in passwd group; do
  printf '%s%%s\\n' $f
  while IFS= read -r line || [ -n "$line" ]; do printf '%%s\\n' "$line"; done 2>/dev/null </etc/$f
done
printf '%send\\n'""" % ((_MARK,) * 5)


class Image:
    """An image that is on this machine."""

    def __init__(self, name: str, said: Dict[str, Any]) -> None:
        """`said` is what the engine's `image inspect` tells of it."""
        config = said.get("Config") or {}
        self.name = name
        identity = str(said.get("Id") or "")
        self.id = identity if ":" in identity or not identity else "sha256:" + identity
        self.digests = [str(one) for one in said.get("RepoDigests") or []]
        self.entrypoint = [str(word) for word in config.get("Entrypoint") or []]
        self.command = [str(word) for word in config.get("Cmd") or []]
        self.env = dict(str(one).partition("=")[::2] for one in config.get("Env") or [])
        self.labels = {str(k): str(v) for k, v in (config.get("Labels") or {}).items()}
        self.user = str(config.get("User") or "")
        self.platform = "%s/%s" % (said.get("Os") or "linux", said.get("Architecture") or "")

    @property
    def digest(self) -> str:
        """What names it everywhere: its digest in its registry; its id where it has come from none."""
        wanted = repository_of(self.name)
        for one in self.digests:
            if one.partition("@")[0].endswith(wanted):
                return one
        return self.digests[0] if self.digests else self.id


def repository_of(name: str) -> str:
    """`python:3.11` -> `python`; `host:5000/a/b@sha256:...` -> `host:5000/a/b`."""
    name = name.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


class Inside:
    """What is in an image."""

    def __init__(self, found: Dict[str, Any]) -> None:
        self.has_shell: bool = bool(found.get("shell"))
        self.python: str | None = found.get("python")
        self.version: str | None = found.get("version")
        self.passwd: str = found.get("passwd") or ""
        self.group: str = found.get("group") or ""


def read_look(said: str) -> Dict[str, Any] | None:
    """What `_LOOK` printed; None when it did not come to its end, whatever else was printed before."""
    _, begun, rest = said.partition(_MARK + "begin\n")
    body, ended, _ = rest.partition(_MARK + "end\n")
    if not begun or not ended:
        return None
    found: Dict[str, Any] = {"shell": False, "python": None, "version": None}
    part = ""
    for line in body.splitlines():
        if line.startswith(_MARK):
            words = line[len(_MARK) :].split()
            part = words[0]
            found["shell"] = found["shell"] or part == "shell"
            # `python` is taken before `python3`, as on a machine; one that cannot tell its version is none.
            if part == "python" and len(words) == 3 and found["python"] is None:
                found["python"], found["version"] = words[1], words[2]
        elif part in ("passwd", "group"):
            found[part] = found.get(part, "") + line + "\n"
    return found


class Images:
    """The images of this machine, as one run meets them."""

    def __init__(self, engine: Engine, work: Work, logins: Logins) -> None:
        self.engine = engine
        self.work = work
        self._logins = logins
        self.folder = clearing.folder_of(work.machine)

    def find(self, name: str) -> Image | None:
        """The image of that name, if it is here. Raises ContainerFailed when the engine does not say."""
        (answer,) = self.engine.ask(["image", "inspect", name])
        return image_of(name, answer.code, answer.out, answer.err)

    def pull(self, name: str) -> Image:
        """Have it fetched; the engine's own words are the stream `log.image`."""
        if not name.strip() or name.startswith("-"):
            raise ContainerFailed("image-failed", "`%s` is no image" % name)
        lock = self.alone("pull-" + name)
        try:
            found = self.find(name)  # another run was waiting for the same, and has it now
            if found:
                return found
            self.do("pulling %s" % name, ["pull", name], self._logins.why(why_no_image))
        finally:
            os.close(lock)
        found = self.find(name)
        if not found:
            raise ContainerFailed("image-failed", "`%s` was pulled, and is not there" % name)
        return found

    def do(
        self, what: str, words: List[str], why: Callable[[str, str], str], kind: str = "image-failed"
    ) -> None:
        """Have the engine do something long, its own words being the stream `log.image`. `why` puts a failure into words."""
        logins = self._logins
        sweep = strays.trace(self.engine, self.work.folder.id, logins.folder) if logins.folder else None
        seen = self.work.run(
            what,
            [self.engine.program, *words],
            {**self.engine.environ, **logins.environ},
            "log.image",
            mask=logins.hidden,
            sweep=sweep,
        )
        if seen.get("stopped"):
            raise Stopped
        if seen.get("code") != 0:
            raise ContainerFailed(kind, why(words[-1], telling(str(seen.get("last") or "")) or "see its log"))

    def alone(self, what: str) -> int:
        """Be the only run that does that on this machine; close it to let go."""
        lock = clearing.open_lock(self.work.machine, what)
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                pass
            if not told:
                self.work.note("another run is making the same image; waiting for it")
                told = True
            if not self.work.may_go_on():
                os.close(lock)
                raise Stopped
            time.sleep(0.1)

    def inside(self, image: Image, settings: List[str]) -> Inside:
        """What is in it: looked at once for each image."""
        file = os.path.join(self.folder, image.id.replace(":", "-") + ".json")
        known = read_json(file)
        if known is None:
            known = self._look(image, settings)
            make_folder(self.folder)
            replace(file, dump(known))
        return Inside(known)

    def _look(self, image: Image, settings: List[str]) -> Dict[str, Any]:
        run = ["run", "--rm", "--network", "none", *settings]
        tries = [[*run, "--entrypoint", "/bin/sh", image.id, "-c", _LOOK]]
        if image.entrypoint and not is_python(image.entrypoint[-1]):
            # What the entrypoint puts on the PATH counts.
            tries.insert(0, [*run, image.id, "/bin/sh", "-c", _LOOK])
        for words in tries:
            (answer,) = self.engine.ask(words, limit_s=_PROBE_S)
            found = read_look(answer.out)
            if found is not None:
                return found
            if answer.code == 125:
                raise ContainerFailed(
                    "container-failed",
                    "no container can be started from `%s`: %s" % (image.name, answer.words),
                )
        return {"shell": False}


def image_of(name: str, code: int | None, out: str, err: str) -> Image | None:
    """Read `image inspect`."""
    if code == 0:
        said = parsed(out)
        if isinstance(said, list) and said and isinstance(said[0], dict):
            return Image(name, said[0])
    low = err.lower()
    if any(words in low for words in ("no such image", "image not known", "no such object", "not found")):
        return None
    if code is None or "annot connect" in err or "permission denied" in err:
        from .engines import trouble_of

        raise ContainerFailed("no-engine", trouble_of("container", telling(err)))
    return None


def is_python(word: str) -> bool:
    """Whether that program is a Python interpreter."""
    return re.match(r"(pypy|python)[0-9.]*\Z", os.path.basename(word)) is not None


def why_no_image(name: str, said: str) -> str:
    """Why an image could not be had, with what helps."""
    low = said.lower()
    if "denied" in low or "unauthorized" in low or "authentication required" in low or "no basic auth" in low:
        first = name.split("/", maxsplit=1)[0]
        host = " " + first if "/" in name and ("." in first or ":" in first) else ""
        return (
            "`%s` may not be pulled: %s. If it is private: `docker login%s` on the machine, as the user that dray is there, or `--registry-login USER@%s`"
            % (name, said, host, host.strip() or "docker.io")
        )
    if "not found" in low or "manifest unknown" in low or "does not exist" in low:
        return "there is no image `%s`: %s" % (name, said)
    if "no such host" in low or "timeout" in low or "connection refused" in low or "dial tcp" in low:
        return "the registry of `%s` cannot be reached from the machine: %s" % (name, said)
    return "`%s` could not be pulled: %s" % (name, said)
