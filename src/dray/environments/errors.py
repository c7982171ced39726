"""What can be wrong with an environment file.

DrayError
└── EnvironmentFileError         the file cannot be used; no run was started (exit code 125)
    ├── EnvironmentSyntax        it is not written as such files are
    ├── UnsupportedRequirement   something in it is fine for pip or conda, but not for this version of dray
    │   ├── RetiredPackage       a package that nobody can install any more
    │   └── RetiredPython        a Python that nobody can install any more
    ├── NothingToInstall         a file that says nothing of what is needed
    ├── LockOutdated             a lock that does not fit the project that it is for
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


_ACCEPT = "give --upgrade-retired (in Python: upgrade_retired=True; for all: DRAY_UPGRADE_RETIRED=1)"


class RetiredPackage(UnsupportedRequirement):
    """A package that nobody can install any more."""

    code = "retired-package"

    def __init__(self, place: Place, requirement: str, why: str, instead: str | None) -> None:
        hint = (
            f"write `{instead}`, or {_ACCEPT}"
            if instead
            else "nothing can stand in for it: port the script, say to torch or keras, and remove the line"
        )
        super().__init__(place, requirement, why, hint=hint)
        self.instead = instead


class RetiredPython(UnsupportedRequirement):
    """A Python that nobody can install any more."""

    code = "retired-python"

    def __init__(self, place: Place, version: str, instead: str) -> None:
        super().__init__(
            place,
            f"python={version}",
            f"Python {shown(version)} can be had from nowhere any more, nor would packages of today work with it",
            hint=f"write `python={instead}`, or {_ACCEPT}",
        )
        self.instead = instead


class NothingToInstall(EnvironmentFileError):
    """A file that says nothing of what is needed."""

    code = "nothing-to-install"

    def __init__(self, path: Path, why: str, hint: str | None = None) -> None:
        super().__init__(f"{Place(path)} names no dependencies", why=why, hint=hint)


class LockOutdated(EnvironmentFileError):
    """A lock that does not fit the project that it is for."""

    code = "lock-outdated"

    def __init__(self, path: Path, why: str, hint: str) -> None:
        super().__init__(f"the lock {Place(path)} cannot be used", why=why, hint=hint)


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
            hint="of an index, name a variable in its place: `--index-url https://${USER}:${TOKEN}@...`, or give it as the option `--index-url`",
        )


def shown(words: str) -> str:
    """`words` in one line of bounded length."""
    line = printable(words)
    return line if len(line) <= 120 else line[:117] + "..."
