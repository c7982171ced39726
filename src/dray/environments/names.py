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
    "tensorflow-mkl": "tensorflow",
}

_NOT_PYTHON = frozenset(
    {
        "binutils", "blas", "bzip2", "c-compiler", "ca-certificates", "clang", "compilers", "cuda", "cudatoolkit",
        "cudatoolkit-dev", "cudnn", "curl", "cutensor", "cxx-compiler", "ffmpeg", "fortran-compiler", "gcc", "gdal", "geos",
        "git", "git-lfs", "graphviz", "gxx", "hdf5", "icu", "java-jdk", "jpeg", "krb5", "libblas", "libcublas", "libffi",
        "libgcc-ng", "libgfortran-ng", "libgomp", "libiconv", "libjpeg-turbo", "liblapack", "libpng", "libsndfile",
        "libstdcxx-ng", "libtiff", "libuuid", "libxml2", "llvm-openmp", "lz4-c", "magma", "make", "mkl", "nccl", "ncurses",
        "nodejs", "openblas", "openjdk", "openmpi", "openssl", "pandoc", "perl", "proj", "pytorch-cuda", "pytorch-mutex",
        "r-base", "readline", "rust", "sox", "sqlite", "tk", "tesseract", "wget", "xz", "zlib", "zstd",
    }
)  # fmt: skip
_NOT_PYTHON_BEGINNINGS = (
    "cuda-", "gcc-", "gxx-", "ld-impl-", "libcu", "libgcc", "libgfortran", "libnv", "libstdcxx", "r-", "texlive",
)  # fmt: skip
# Python packages whose names begin like one of those above.
_PYTHON_ALL_THE_SAME = frozenset({"cuda-python", "cuda-bindings", "cuda-core", "libcst"})


def normal(name: str) -> str:
    """The one spelling of a package's name: lower case, with single hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def on_the_index(conda_name: str) -> str:
    """What the Python index calls a conda package."""
    name = normal(conda_name)
    return normal(_ON_THE_INDEX.get(name, name))


def is_python(conda_name: str) -> bool:
    """Whether it can come from a Python index."""
    name = normal(conda_name)
    # The underscore begins conda's own switches: _libgcc_mutex, _openmp_mutex.
    if conda_name.startswith("_") or name in _NOT_PYTHON:
        return False
    return name in _PYTHON_ALL_THE_SAME or not name.startswith(_NOT_PYTHON_BEGINNINGS)
