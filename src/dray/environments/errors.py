"""What can be wrong with an environment file.

DrayError
└── EnvironmentFileError         the file cannot be used; no run was started (exit code 125)
    ├── EnvironmentSyntax        it is not written as such files are
    ├── UnsupportedRequirement   something in it is fine for pip or conda, but not for this version of dray
    │   └── NotPythonPackage     a conda package that no Python index has
    ├── PackageTwice             the same package in two places
    └── CredentialsInFile        a password or token, which would be stored with every run
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dray.core.errors import DrayError, printable


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands, for people: lines and columns count from 1."""

    path: Path
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        shown = printable(str(self.path))
        if self.line is None:
            return f"`{shown}`"
        return f"`{shown}`, line {self.line}" + (f", column {self.column}" if self.column is not None else "")


class EnvironmentFileError(DrayError):
    """The file cannot be used."""

    code = "environment-file"
    exit_code = 125


class EnvironmentSyntax(EnvironmentFileError):
    """It is not written as such files are."""

    code = "environment-syntax"

    def __init__(self, place: Place, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"cannot read the environment file {place}", why=problem, hint=hint)


class UnsupportedRequirement(EnvironmentFileError):
    """Something that this version of dray cannot install."""

    code = "unsupported-requirement"

    def __init__(self, place: Place, words: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"cannot install `{shown(words)}`, named in {place}", why=problem, hint=hint)


class NotPythonPackage(UnsupportedRequirement):
    """A conda package that is not Python."""

    code = "not-a-python-package"

    def __init__(self, place: Place, name: str, instead: str | None) -> None:
        super().__init__(
            place,
            name,
            "it is not a Python package, and this version of dray builds environments of Python packages only",
            hint=instead or f"remove `{name}`, and have it installed on the machine",
        )


class PackageTwice(EnvironmentFileError):
    """The same package in two places."""

    code = "package-twice"

    def __init__(self, name: str, first: Place, second: Place) -> None:
        super().__init__(
            f"`{shown(name)}` is listed twice in the environment file {second}",
            why=f"it stands in {first} already, and only one of the two can be meant",
        )


class CredentialsInFile(EnvironmentFileError):
    """A password or token in an address. The address itself is not repeated here."""

    code = "credentials-in-file"

    def __init__(self, place: Place, host: str) -> None:
        super().__init__(
            f"an address of `{shown(host)}` in {place} holds a password or token",
            why="what is in the file is stored with every run, for everyone who can see the run",
            hint="remove it, and give the whole address by the environment where packages are installed: "
            "UV_INDEX_URL or UV_EXTRA_INDEX_URL",
        )


def shown(words: str) -> str:
    """`words` in one line of bounded length."""
    line = printable(words)
    return line if len(line) <= 120 else line[:117] + "..."
