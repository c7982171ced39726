"""What conda calls differently from the Python index, and what it has that is no Python package. Data, and how to ask it."""

from __future__ import annotations

import re

_ON_THE_INDEX = {
    "dask-core": "dask",
    "jupyter-core": "jupyter-core",
    "keras-gpu": "keras",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "opencv": "opencv-python",
    "py-lightgbm": "lightgbm",
    "py-opencv": "opencv-python",
    "py-xgboost": "xgboost",
    "py-xgboost-cpu": "xgboost",
    "py-xgboost-gpu": "xgboost",
    "pyqt": "pyqt5",
    "pytables": "tables",
    "python-graphviz": "graphviz",
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "ruamel-yaml": "ruamel.yaml",
    "tensorflow-base": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tensorflow-mkl": "tensorflow",
}

_CUDA = "remove it: Python packages such as torch and tensorflow bring the CUDA libraries that they need"
_NOT_PYTHON: dict[str, str | None] = {
    "blas": "remove it: numpy brings its own",
    "graphviz": "for the Python package write `python-graphviz`; the program must be on the machine",
    "pytorch-cuda": _CUDA,
    "pytorch-mutex": "remove it: pip needs no such choice",
    **dict.fromkeys(("cudatoolkit", "cudatoolkit-dev", "cudnn", "cuda", "cutensor", "nccl", "libcublas"), _CUDA),
    **dict.fromkeys(
        (
            "binutils", "bzip2", "c-compiler", "ca-certificates", "clang", "compilers", "cxx-compiler", "curl", "ffmpeg",
            "fortran-compiler", "gdal", "gcc", "geos", "git", "git-lfs", "gxx", "hdf5", "icu", "java-jdk", "jpeg",
            "krb5", "libffi", "libgcc-ng", "libgfortran-ng", "libgomp", "libiconv", "libpng", "libsndfile", "libstdcxx-ng",
            "libtiff", "libxml2", "llvm-openmp", "lz4-c", "magma", "make", "ncurses", "nodejs", "openblas", "openjdk",
            "openmpi", "openssl", "perl", "proj", "r-base", "readline", "rust", "sox", "sqlite", "tk", "xz", "zlib", "zstd",
        ),
        None,
    ),
}  # fmt: skip
_NOT_PYTHON_BEGINNINGS = (
    ("cuda-", _CUDA),
    ("libcu", _CUDA),
    ("libnv", _CUDA),
    ("r-", None),
    ("gcc-", None),
    ("gxx-", None),
    ("ld-impl-", None),
    ("libgcc", None),
    ("libstdcxx", None),
    ("libgfortran", None),
)
# Python packages whose names begin like one of those above.
_PYTHON_ALL_THE_SAME = frozenset({"cuda-python", "cuda-bindings", "cuda-core", "libcst"})


def normal(name: str) -> str:
    """The one spelling of a package's name: lower case, with single hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def on_the_index(conda_name: str) -> str:
    """What the Python index calls a conda package."""
    name = normal(conda_name)
    return normal(_ON_THE_INDEX.get(name, name))


def is_python(conda_name: str) -> tuple[bool, str | None]:
    """Whether it can come from a Python index; if not, what to do instead where that is known."""
    name = normal(conda_name)
    if conda_name.startswith("_"):  # conda's own switches: _libgcc_mutex, _openmp_mutex
        return False, "remove it: it has a meaning for conda only"
    if name in _NOT_PYTHON:
        return False, _NOT_PYTHON[name]
    if name not in _PYTHON_ALL_THE_SAME:
        for beginning, instead in _NOT_PYTHON_BEGINNINGS:
            if name.startswith(beginning):
                return False, instead
    return True, None
