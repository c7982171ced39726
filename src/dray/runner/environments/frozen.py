"""What was resolved, as text that a person can read and that builds the same again: "pylock", or lines as pip writes them.

docs/design.md, "Environment". conda packages are comments in lines for pip: `# conda ADDRESS#sha256`.
"""

from __future__ import annotations

import os
import re
from typing import List, NamedTuple

from .variables import without_passwords

PYLOCK, REQUIREMENTS = "pylock", "requirements"
_CONDA = re.compile(r"# conda (\S+?)(?:#([0-9a-f]{32,64}))?\s*$")
_CHANNEL = re.compile(r"# channel (\S+)\s*$")
_SDIST = re.compile(r"sdist = \{.*\}\s*$")
_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:==|@)")


class CondaPackage(NamedTuple):
    """One package of a conda channel, exactly."""

    url: str
    sha256: str

    @property
    def parts(self) -> List[str]:
        """Name, version and build, by its file's name."""
        name = os.path.basename(self.url)
        for end in (".conda", ".tar.bz2"):
            if name.endswith(end):
                name = name[: -len(end)]
        parts = name.rsplit("-", 2)
        return parts if len(parts) == 3 else [name, "", ""]


def head(version: str | None) -> str:
    """The first lines: what the text is good for."""
    system = "%s %s" % (os.uname().sysname.lower(), os.uname().machine)
    return "# dray: python %s\n# dray: platform %s\n" % (version or "unknown", system)


def of_uv(kind: str, said: str, version: str | None) -> str:
    """The text to keep of what uv resolved."""
    lines = [line.rstrip() for line in without_passwords(said).splitlines()]
    if kind == PYLOCK:
        # A source that nobody would build, because there is a wheel: it makes the text twice as long.
        blocks = re.split(r"\n(?=\[\[packages\]\])", "\n".join(lines))
        lines = []
        for block in blocks:
            has_wheel = "\nwheels = [" in block
            lines += [line for line in block.split("\n") if not (has_wheel and _SDIST.match(line))]
    return head(version) + "\n".join(lines).strip() + "\n"


def of_conda(channels: List[str], packages: List[CondaPackage], said: str, version: str | None) -> str:
    """The text to keep of conda packages, and of what uv resolved on top of them."""
    lines = ["# channel %s" % without_passwords(channel) for channel in channels]
    lines += ["# conda %s#%s" % (without_passwords(p.url), p.sha256) for p in packages]
    return head(version) + "\n".join(lines) + "\n" + without_passwords(said).strip() + "\n"


def conda_packages(text: str) -> List[CondaPackage]:
    """Those that the text names, in order."""
    found = (_CONDA.match(line) for line in text.splitlines())
    return [CondaPackage(match[1], match[2] or "") for match in found if match]


def channels(text: str) -> List[str]:
    """Where the conda packages came from, in order."""
    found = (_CHANNEL.match(line) for line in text.splitlines())
    return [match[1] for match in found if match]


def has_requirements(text: str) -> bool:
    """Whether there is anything for pip in it."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def count(kind: str, text: str) -> int:
    """How many packages it names."""
    if kind == PYLOCK:
        return len(re.findall(r"^\[\[packages\]\]", text, re.MULTILINE))
    return sum(1 for line in text.splitlines() if _PINNED.match(line)) + len(conda_packages(text))


def digest(text: str) -> str:
    """SHA-256 of the text."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
