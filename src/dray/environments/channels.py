"""Conda's channels: which ones everyone knows, and how one is written in a file. Data, and pure functions."""

from __future__ import annotations

import re
from pathlib import Path

# What they have of Python packages, a Python index has too. A channel that is not here may have what nobody else has.
_OF_EVERYONE = frozenset(
    {
        "anaconda", "bioconda", "conda-forge", "defaults", "fastai", "free", "huggingface", "intel", "main",
        "msys2", "nodefaults", "nvidia", "pkgs/main", "pkgs/r", "pytorch", "pytorch-lts", "pytorch-nightly",
        "r", "rapidsai",
    }
)  # fmt: skip
_ADDRESS_OF_EVERYONE = re.compile(
    r"https?://(?:conda\.anaconda\.org|repo\.(?:anaconda|continuum)\.(?:com|io)(?:/pkgs)?)/(?P<name>[a-z0-9-]+)/?"
)


def is_own(channel: str) -> bool:
    """Whether only conda can know what is in it: a company's, a folder, an address."""
    name = channel.partition("[")[0].strip().rstrip("/").lower()
    known = _ADDRESS_OF_EVERYONE.fullmatch(name)
    name = known["name"] if known else name
    # `conda-forge/linux-64`, `conda-forge/label/cuda`
    return name not in _OF_EVERYONE and name.partition("/")[0] not in _OF_EVERYONE - {"main", "r"}


def written(channel: str, folder: Path) -> str:
    """The channel as it is stored: a folder beside the file becomes a whole address."""
    text = channel.strip()
    if text.startswith(("./", "../", "~", "/")) or text in (".", ".."):
        return (folder / Path(text).expanduser()).resolve().as_uri()
    return text.rstrip("/")
