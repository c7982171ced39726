"""Images that dray makes: from a Dockerfile of the project, or from an environment on a base image. Named by what goes in, so made once.

`from_dockerfile` and `with_environment` find or make one. What decides the name is pure: `dockerfile_digest`, `recipe`.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import time
from typing import Any, Dict, List, Tuple

from ..files import read_json, read_text
from . import clearing, words
from .engines import ContainerFailed
from .images import Image, Images
from .strays import MACHINE

MADE = "dray.made"
"""Label of what dray has made: `dockerfile` or `environment`."""
ENVIRONMENT = "/opt/dray/env"
UV = "/dray/uv"

# In the base image, as root: an environment beside what the image brings, which stays visible in it.
_INSTALL = """set -e
[ ! -f %(ca)s ] || export SSL_CERT_FILE=%(ca)s PIP_CERT=%(ca)s REQUESTS_CA_BUNDLE=%(ca)s
if [ -x %(uv)s ] && %(uv)s --version >/dev/null 2>&1; then
  export UV_NO_CACHE=1 UV_PYTHON_INSTALL_DIR=/opt/dray/python UV_LINK_MODE=copy
  %(uv)s venv --quiet --no-project --system-site-packages %(python)s %(env)s
  %(uv_install)s
else
  p=$(command -v python3 || command -v python) || { echo "there is no Python in the image"; exit 1; }
  "$p" -m venv --system-site-packages %(env)s
  %(pip_install)s
fi
"""


def dockerfile_digest(text: str, manifest: Dict[str, Any], folder: str) -> str:
    """What an image of that Dockerfile depends on: its text, and of the code what it copies. `folder` is its own in the code."""
    seen = hashlib.sha256(text.encode("utf-8", "surrogateescape"))
    wanted = copied(text)
    ignores = folder + "/.dockerignore" if folder else ".dockerignore"
    for path, digest, _, executable in sorted(manifest.get("files") or []):
        if path == ignores or wanted is None or any(_is_below(path, one) for one in wanted):
            seen.update(json.dumps([path, digest, bool(executable)]).encode())
    return seen.hexdigest()


def copied(text: str) -> List[str] | None:
    """The paths and patterns that a Dockerfile takes from its folder; None: it cannot be told, so all of it."""
    joined = re.sub(r"\\\s*\n", " ", re.sub(r"(?m)^\s*#.*$\n?", "", text))
    found: List[str] = []
    for line in joined.splitlines():
        order, _, rest = line.strip().partition(" ")
        if order.upper() == "RUN" and "type=bind" in rest and "from=" not in rest:
            return None
        if order.upper() not in ("COPY", "ADD"):
            continue
        flags = re.findall(r"--\S+", rest)
        if any(flag.startswith("--from=") for flag in flags):
            continue
        sources = _sources(re.sub(r"--\S+\s+", "", rest).strip())
        if sources is None or "$" in rest:
            return None
        for source in sources:
            plain = os.path.normpath(source).lstrip("/")
            if plain == ".":
                return None
            found.append(plain)
    return found


def _sources(rest: str) -> List[str] | None:
    if rest.startswith("["):
        try:
            listed = json.loads(rest)
        except ValueError:
            return None
        return [str(word) for word in listed[:-1]]
    if rest.startswith("<<"):
        return []  # its text stands in the Dockerfile
    return [word for word in rest.split()[:-1] if "://" not in word]


def _is_below(path: str, wanted: str) -> bool:
    parts = path.split("/")
    return any(fnmatch.fnmatch("/".join(parts[: i + 1]), wanted) for i in range(len(parts)))


def from_dockerfile(images: Images, file: str, code: str) -> Tuple[Image, float | None]:
    """The image of that Dockerfile in the code folder, and how long making it took; None: it was there."""
    path = os.path.join(code, file)
    text = read_text(path)
    if not text.strip():
        raise ContainerFailed("image-failed", "there is no Dockerfile `%s` in the code folder" % file)
    manifest = read_json(os.path.join(os.path.dirname(code), "manifest.json")) or {}
    name = "dray/build:" + dockerfile_digest(text, manifest, "")[:24]
    lock = images.alone(name)
    try:
        clearing.used(images.work.machine, images.engine, images.work.attempt, name)
        found = images.find(name)
        if found:
            return found, None
        if copied(text) is None:
            images.work.note(
                "the Dockerfile takes all of the code folder, so every change of the code builds it again: "
                "COPY only what it needs, the code is mounted anyway"
            )
        began = time.monotonic()
        tidy = [] if images.engine.kind == "nerdctl" else ["--force-rm"]
        build = ["build", *tidy, "--file", path, "--tag", name, *_labels(images, "dockerfile"), code]
        images.do(
            "building %s" % file, build, lambda last, said: "`%s` could not be built: %s" % (file, said)
        )
        return _made(images, name), round(time.monotonic() - began, 2)
    finally:
        os.close(lock)


def with_environment(
    images: Images, base: Image, wanted: Dict[str, Any], uv: str | None, settings: List[str]
) -> Tuple[Image, float | None]:
    """The base image with that environment in it, likewise. `settings`: words for the container in which it is made."""
    if wanted.get("conda"):
        raise ContainerFailed(
            "image-failed",
            "conda packages (%s) are not installed into containers: name an image that has them, or `--env none`"
            % ", ".join(map(str, wanted["conda"][:3])),
        )
    name = "dray/env:%s-%s" % (str(wanted["digest"])[:24], base.id.rpartition(":")[2][:12])
    lock = images.alone(name)
    try:
        # Inside of the lock: who clears away looks for this note, and takes the lock before.
        clearing.used(images.work.machine, images.engine, images.work.attempt, name)
        found = images.find(name)
        if found:
            return found, None
        began = time.monotonic()
        _make(images, base, name, recipe(wanted), uv, settings)
        return _made(images, name), round(time.monotonic() - began, 2)
    finally:
        os.close(lock)


def recipe(wanted: Dict[str, Any]) -> str:
    """The shell's words that make an environment in an image."""
    index = wanted.get("index") or {}
    flags = []
    if index.get("index_url"):
        flags += ["--index-url", str(index["index_url"])]
    for url in index.get("extra_index_urls") or []:
        flags += ["--extra-index-url", str(url)]
    for place in index.get("find_links") or []:
        flags += ["--find-links", str(place)]
    packages = [str(one) for one in wanted.get("packages") or []]
    if wanted.get("lock"):
        file = "pylock.toml" if wanted.get("lock_kind") == "pylock" else "requirements.txt"
        place = os.path.join(os.path.dirname(ENVIRONMENT), file)
        kept = "mkdir -p %s\ncat > %s <<'DRAY-END'\n%s\nDRAY-END\n" % (
            os.path.dirname(place), place, wanted["lock"],
        )  # fmt: skip
        install = [*flags, "-r", place]
    else:
        kept, install = "", [*flags, *packages]
    line = " ".join(map(_quoted, install))
    uv = "%s%s pip install --python %s/bin/python %s" % (kept, UV, ENVIRONMENT, line)
    pip = "%s%s/bin/pip install --no-cache-dir %s" % (kept, ENVIRONMENT, line)
    asked = wanted.get("python")
    return _INSTALL % {
        "ca": words.CA,
        "uv": UV,
        "env": ENVIRONMENT,
        "python": "--python " + _quoted(str(asked)) if asked else "",
        "uv_install": uv if install else ":",
        "pip_install": pip if install else ":",
    }


def _quoted(word: str) -> str:
    return "'%s'" % word.replace("'", "'\\''")


def _make(images: Images, base: Image, name: str, script: str, uv: str | None, settings: List[str]) -> None:
    """In a container of the base image, which is then kept as an image."""
    container = "dray-build-" + os.urandom(6).hex()
    run = ["run", "--name", container, *_labels(images, "environment"), *settings]
    if uv:
        run += ["--mount", words.mount_word((uv, UV, True))]
    # An entrypoint that was none before could not be taken away again when the image is kept.
    begin = ["--entrypoint", "/bin/sh", base.id] if base.entrypoint else [base.id, "/bin/sh"]
    run += [*begin, "-c", script]
    try:
        images.do(
            "installing the environment into %s" % base.name,
            run,
            lambda last, said: "installing the environment into `%s` failed: %s" % (base.name, said),
            "environment-failed",
        )
        (answer,) = images.engine.ask(["commit", *_changes(base), container, name], limit_s=1800.0)
        if answer.code != 0:
            raise ContainerFailed("image-failed", "the image could not be kept: %s" % answer.words)
    finally:
        images.engine.ask(["rm", "--force", "--volumes", container])


def _changes(base: Image) -> List[str]:
    """What the image is to say of itself: what its base says, and the environment first on the PATH."""
    path = base.env.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    said = [
        "ENV PATH=%s/bin:%s" % (ENVIRONMENT, path),
        "ENV VIRTUAL_ENV=%s" % ENVIRONMENT,
        "USER %s" % (base.user or "0"),
        "CMD %s" % json.dumps(base.command or ["/bin/sh"]),
    ]
    if base.entrypoint:
        said.append("ENTRYPOINT %s" % json.dumps(base.entrypoint))
    return [word for line in said for word in ("--change", line)]


def _labels(images: Images, made: str) -> List[str]:
    labels = {MADE: made, MACHINE: images.work.machine.id}
    return [word for key, value in sorted(labels.items()) for word in ("--label", "%s=%s" % (key, value))]


def _made(images: Images, name: str) -> Image:
    found = images.find(name)
    if not found:
        raise ContainerFailed("image-failed", "`%s` was made, and is not there" % name)
    return found
