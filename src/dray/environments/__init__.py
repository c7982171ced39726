"""What a run needs to be installed: from a file in the code folder to an Environment with a digest. Builds nothing."""

from __future__ import annotations

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
from dray.environments.files import (
    FILE_NAME,
    FILE_NAMES,
    find_environment_file,
    read_environment,
    read_found,
)
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
