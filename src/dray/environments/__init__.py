"""What a run needs to be installed: from a file in the code folder to an Environment with a digest. Builds nothing."""

from __future__ import annotations

from dray.environments.errors import (
    CredentialsInFile,
    EnvironmentFileError,
    EnvironmentSyntax,
    NotPythonPackage,
    PackageTwice,
    UnsupportedRequirement,
)
from dray.environments.files import FILE_NAME, find_environment_file, read_environment

__all__ = [
    "FILE_NAME",
    "CredentialsInFile",
    "EnvironmentFileError",
    "EnvironmentSyntax",
    "NotPythonPackage",
    "PackageTwice",
    "UnsupportedRequirement",
    "find_environment_file",
    "read_environment",
]
