"""The uv that dray brings to a machine that has none: one version, static, known by its digests.

It comes from the package index that the client reaches, when a machine first asks for it, and stays in the client's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dray.hosts.errors import UvNotFetched
from dray.runner.environments.said import sentence
from dray.runner.environments.variables import build_variables, with_pip_settings, without_passwords

VERSION = "0.13.8"
_PATIENCE_S = 600


@dataclass(frozen=True, slots=True)
class Binary:
    """One platform's: of the wheel that is fetched, and of the program in it."""

    wheel: str
    program: str
    size: int


BINARIES = {
    "x86_64": Binary(
        "29451c60f5e8b07403e0a175d5229efc36b0289b34143ff4aaa499a5dd52553a",
        "a880db7f5f6745b5ec80aa6ccafdce06ddab1434013b55c62bb2fded1e2f9cb5",
        43891752,
    ),
    "aarch64": Binary(
        "0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d",
        "5aa4427bd923cfdca2d56a3577f60d8fa7825aa3b496fef975dfd6f03db57d28",
        35453000,
    ),
}


def offer() -> dict[str, tuple[str, int]]:
    """What a submit can bring, by platform: for `tools` of its frame."""
    return {platform: (binary.program, binary.size) for platform, binary in BINARIES.items()}


def platform_of(digest: str) -> str | None:
    """Whose program that is."""
    return next((platform for platform, binary in BINARIES.items() if binary.program == digest), None)


def program(home: Path, platform: str) -> Path:
    """Where it lies on this client, fetched now if need be. Raises UvNotFetched."""
    binary = BINARIES[platform]
    kept = home / "cache" / f"uv-{VERSION}-{platform}"
    if kept.is_file() and kept.stat().st_size == binary.size:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="uv-") as folder:
        fetched = _fetch(Path(folder), platform, binary)
        with fetched.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != binary.program:
            raise UvNotFetched(VERSION, platform, "what the index gave is another program than dray knows")
        fetched.replace(kept)
    return kept


def _fetch(folder: Path, platform: str, binary: Binary) -> Path:
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise UvNotFetched(VERSION, platform, "there is no uv on this computer that could fetch it")
    wanted = folder / "wanted.txt"
    wanted.write_text(f"uv=={VERSION} --hash=sha256:{binary.wheel}\n")
    words = [uv, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    words += ["--python", sys.executable, "--python-platform", f"{platform}-unknown-linux-musl"]
    words += ["--target", str(folder / "to"), "-r", str(wanted)]
    env = with_pip_settings(build_variables(os.environ))
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False, env=env
        )
    except (OSError, subprocess.SubprocessError) as trouble:
        raise UvNotFetched(VERSION, platform, str(trouble)) from trouble
    if done.returncode:
        raise UvNotFetched(VERSION, platform, without_passwords(sentence(done.stderr)))
    return folder / "to" / "bin" / "uv"
