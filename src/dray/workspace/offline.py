"""For a machine that reaches no index: resolves its packages here, for its platform and Python, and fetches the wheels to send along.

Read `gather`. uv resolves to exact files with their hashes; each is fetched once and stays in the client's cache by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.core.spec import Environment
from dray.hosts import Connection
from dray.runner.environments import variables
from dray.runner.environments.said import sentence
from dray.workspace.errors import OfflineHost

Tell = Callable[[str, int, int | None], None]
"""What is done, so many of so many."""

# What uv knows a machine by: the oldest glibc that its wheels may ask for.
_GLIBC = (17, 28, *range(31, 41))
_LIMIT_S = 900


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a submit brings along."""

    wheels: list[list[Any]] = field(default_factory=list)
    """[file name, SHA-256, bytes]: docs/design.md, "The wire"."""
    files: dict[str, Path] = field(default_factory=dict)
    """Their contents, by digest."""


def gather(
    home: Path,
    connection: Connection,
    environment: Environment,
    credentials: Mapping[str, str],
    tell: Tell,
    *,
    refresh: bool = False,
) -> Gathered:
    """The wheels for `environment` on the machine at the other end; none if it has that already. Raises OfflineHost."""
    where = connection.where
    if environment.conda:
        raise OfflineHost(
            where, "conda packages cannot be sent along", "have micromamba make the environment there"
        )
    if environment.lock and environment.lock_kind == "pylock":
        raise OfflineHost(
            where,
            "this lock names addresses, which the machine would have to reach",
            "--env requirements.txt",
        )
    if not refresh and connection.call({"op": "env", "find": environment.to_json()}).get("complete"):
        return Gathered()
    machine = connection.call({"op": "env", "pythons": True})
    python = environment.python or str(machine.get("own") or "")
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", python):
        raise OfflineHost(where, f"`{python}` is no single version of Python", "--python 3.11")
    platform = platform_of(str(machine.get("platform")), machine.get("libc"))
    if platform is None:
        raise OfflineHost(where, "nothing is known of its C library, so no wheel can be chosen for it", None)
    env = variables.with_pip_settings(variables.build_variables(os.environ))
    env = variables.with_index(env, environment.index, credentials)
    tell("resolving for the machine", 0, None)
    document = _resolved(where, environment, python, platform, env)
    return _fetched(where, home / "cache" / "wheels", document, {**_passwords(env), **credentials}, tell)


def platform_of(machine: str, libc: Any) -> str | None:
    """As uv names it: "x86_64-manylinux_2_28"."""
    kind, version = libc if isinstance(libc, list) and len(libc) == 2 else ("", "")
    if kind == "musl":
        return f"{machine}-unknown-linux-musl"
    found = re.match(r"2\.(\d+)", str(version))
    fitting = [minor for minor in _GLIBC if found and minor <= int(found[1])]
    return f"{machine}-manylinux_2_{max(fitting)}" if kind == "glibc" and fitting else None


def _resolved(
    where: str, environment: Environment, python: str, platform: str, env: Mapping[str, str]
) -> dict[str, Any]:
    """A pylock of wheels alone, as data."""
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise OfflineHost(where, "there is no uv on this computer to resolve with", "pip install uv")
    with tempfile.TemporaryDirectory(prefix="dray-offline-") as folder:
        wanted, out = Path(folder, "wanted.txt"), Path(folder, "pylock.toml")
        wanted.write_text(environment.lock or "".join(f"{line}\n" for line in environment.packages))
        words = [
            uv,
            "pip",
            "compile",
            "--quiet",
            "--no-header",
            "--only-binary",
            ":all:",
            "--format",
            "pylock.toml",
        ]
        words += ["--python-version", python, "--python-platform", platform, "--python", sys.executable]
        words += ["--no-deps"] if environment.lock else []
        words += ["--output-file", str(out), str(wanted)]
        done = subprocess.run(
            words,
            env=dict(env),
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_LIMIT_S,
        )
        if done.returncode:
            raise OfflineHost(where, variables.without_passwords(sentence(done.stderr)), None)
        return tomllib.loads(out.read_text())


def _fetched(
    where: str, cache: Path, document: Mapping[str, Any], passwords: Mapping[str, str], tell: Tell
) -> Gathered:
    found = Gathered()
    cache.mkdir(parents=True, exist_ok=True)
    packages = document.get("packages") or []
    for number, package in enumerate(packages):
        tell("fetching packages for the machine", number, len(packages))
        wheels = package.get("wheels") or []
        if not wheels:
            raise OfflineHost(
                where, f"`{package.get('name')}` has no wheel for it, and cannot be built there", None
            )
        url, digest = str(wheels[0]["url"]), str(wheels[0]["hashes"]["sha256"])
        path = cache / digest
        if not path.is_file():
            _fetch(where, url, digest, path, passwords)
        name = urllib.parse.unquote(url.partition("#")[0].rpartition("/")[2])
        found.wheels.append([name, digest, path.stat().st_size])
        found.files[digest] = path
    tell("fetching packages for the machine", len(packages), len(packages))
    return found


def _fetch(where: str, url: str, digest: str, path: Path, passwords: Mapping[str, str]) -> None:
    """Into the cache, if it is what its hash says."""
    if urllib.parse.urlsplit(url).scheme not in ("https", "http", "file"):
        raise OfflineHost(where, f"{variables.without_passwords(url)} cannot be fetched", None)
    request = urllib.request.Request(url)  # noqa: S310 - looked at above
    word = next((word for place, word in passwords.items() if _origin(place) == _origin(url)), None)
    if word:
        request.add_header("Authorization", "Basic " + base64.b64encode(word.encode()).decode())
    beside = path.with_name(f"{digest}.{os.urandom(4).hex()}.new")
    seen = hashlib.sha256()
    try:
        context = ssl.create_default_context()
        with urllib.request.urlopen(request, timeout=60, context=context) as come, beside.open("wb") as go:  # noqa: S310
            while piece := come.read(1 << 20):
                seen.update(piece)
                go.write(piece)
        if seen.hexdigest() != digest:
            raise OfflineHost(
                where, f"{variables.without_passwords(url)} is not what the index says it is", None
            )
        beside.replace(path)
    except (urllib.error.URLError, OSError) as trouble:
        reason = getattr(trouble, "reason", trouble)
        raise OfflineHost(where, f"{variables.without_passwords(url)}: {reason}", None) from trouble
    finally:
        beside.unlink(missing_ok=True)


def _passwords(env: Mapping[str, str]) -> dict[str, str]:
    """Of the addresses in the user's own settings."""
    found = {}
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        for url in env.get(name, "").split():
            parts = urllib.parse.urlsplit(url)
            word, at, host = parts.netloc.rpartition("@")
            if at:
                found[urllib.parse.urlunsplit(parts._replace(netloc=host))] = urllib.parse.unquote(word)
    return found


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]
