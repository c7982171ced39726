"""What a run needs to be installed: from a file in the code folder to an Environment with a digest. Builds nothing.

Everything is imported on first use, because every submit looks for a file, and few find one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dray.environments.errors import (
        CredentialsInFile,
        EnvironmentFileError,
        EnvironmentSyntax,
        LockOutdated,
        NothingToInstall,
        PackageTwice,
        Place,
        RetiredPackage,
        RetiredPython,
        UnsupportedRequirement,
    )
    from dray.environments.files import read_environment, read_found
    from dray.environments.finding import FILE_NAME, FILE_NAMES, find_environment_file
    from dray.environments.gathering import Found, Wish

__all__ = [
    "FILE_NAME",
    "FILE_NAMES",
    "CredentialsInFile",
    "EnvironmentFileError",
    "EnvironmentSyntax",
    "Found",
    "LockOutdated",
    "NothingToInstall",
    "PackageTwice",
    "Place",
    "RetiredPackage",
    "RetiredPython",
    "UnsupportedRequirement",
    "Wish",
    "find_environment_file",
    "read_environment",
    "read_found",
]

_HOMES = {
    "errors": (
        "CredentialsInFile",
        "EnvironmentFileError",
        "EnvironmentSyntax",
        "LockOutdated",
        "NothingToInstall",
        "PackageTwice",
        "Place",
        "RetiredPackage",
        "RetiredPython",
        "UnsupportedRequirement",
    ),
    "files": ("read_environment", "read_found"),
    "finding": ("FILE_NAME", "FILE_NAMES", "find_environment_file"),
    "gathering": ("Found", "Wish"),
}


def __getattr__(name: str) -> Any:
    """Import `name` from where it lives, once."""
    for module, names in _HOMES.items():
        if name in names:
            import importlib

            value = getattr(importlib.import_module(f"dray.environments.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'dray.environments' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
