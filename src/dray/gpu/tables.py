"""Which driver a CUDA needs, and which CUDA a framework's packages are built with. Data only, with the day it was looked up.

Looked up in November 2026 in NVIDIA's release notes and the frameworks' own installation pages. A newer release than the last row is taken to be
like the last row.
"""

from __future__ import annotations

from typing import NamedTuple

Version = tuple[int, ...]

SHIPPED_DRIVER: dict[Version, Version] = {
    (10, 2): (440, 33),
    (11, 0): (450, 51, 5),
    (11, 4): (470, 42, 1),
    (11, 6): (510, 39, 1),
    (11, 8): (520, 61, 5),
    (12, 0): (525, 60, 13),
    (12, 1): (530, 30, 2),
    (12, 2): (535, 54, 3),
    (12, 3): (545, 23, 6),
    (12, 4): (550, 54, 14),
    (12, 5): (555, 42, 2),
    (12, 6): (560, 28, 3),
    (12, 8): (570, 26),
    (12, 9): (575, 51, 3),
    (13, 0): (580, 65, 6),
    (13, 1): (590, 44, 1),
    (13, 2): (595, 45, 4),
    (13, 3): (610, 43, 2),
}
"""CUDA toolkit -> the Linux driver that came with it: from it on, everything of that toolkit works."""

FLOOR: dict[int, Version] = {11: (450,), 12: (525, 60, 13), 13: (580, 65, 6)}
"""Major version of CUDA -> the oldest driver that runs any of its minor versions. Below the shipped driver, code that is compiled while it runs may fail."""


class TorchRelease(NamedTuple):
    """One release of PyTorch, with its builds for Linux x86_64."""

    version: Version
    builds: tuple[Version, ...]
    default: Version
    """What comes from the usual index."""


TORCH: tuple[TorchRelease, ...] = (
    TorchRelease((2, 0), ((11, 7), (11, 8)), (11, 7)),
    TorchRelease((2, 1), ((11, 8), (12, 1)), (12, 1)),
    TorchRelease((2, 2), ((11, 8), (12, 1)), (12, 1)),
    TorchRelease((2, 3), ((11, 8), (12, 1)), (12, 1)),
    TorchRelease((2, 4), ((11, 8), (12, 1), (12, 4)), (12, 1)),
    TorchRelease((2, 5), ((11, 8), (12, 1), (12, 4)), (12, 4)),
    TorchRelease((2, 6), ((11, 8), (12, 4), (12, 6)), (12, 4)),
    TorchRelease((2, 7), ((11, 8), (12, 6), (12, 8)), (12, 6)),
    TorchRelease((2, 8), ((12, 6), (12, 8), (12, 9)), (12, 8)),
    TorchRelease((2, 9), ((12, 6), (12, 8), (13, 0)), (12, 8)),
    TorchRelease((2, 10), ((12, 6), (12, 8), (13, 0)), (12, 8)),
    TorchRelease((2, 11), ((12, 6), (12, 8), (13, 0)), (13, 0)),
    TorchRelease((2, 12), ((12, 6), (13, 0), (13, 2)), (13, 0)),
    TorchRelease((2, 13), ((12, 6), (13, 0), (13, 2)), (13, 0)),
    TorchRelease((2, 14), ((12, 6), (13, 0), (13, 2)), (13, 2)),
)

TENSORFLOW: tuple[tuple[Version, Version], ...] = (
    ((2, 12), (11, 8)),
    ((2, 13), (11, 8)),
    ((2, 14), (11, 8)),
    ((2, 15), (12, 2)),
    ((2, 16), (12, 3)),
    ((2, 17), (12, 3)),
    ((2, 18), (12, 5)),
    ((2, 19), (12, 5)),
    ((2, 20), (12, 5)),
    ((2, 21), (12, 5)),
)
"""Release of TensorFlow -> the CUDA that it is built with."""
TENSORFLOW_EXTRA_SINCE: Version = (2, 14)
"""From here on `tensorflow[and-cuda]` brings the libraries of CUDA along."""

OLDEST_CARD: dict[Version, tuple[int, int]] = {
    (11, 7): (3, 7),
    (11, 8): (3, 7),
    (12, 1): (5, 0),
    (12, 4): (5, 0),
    (12, 6): (5, 0),
    (12, 8): (7, 0),
    (12, 9): (7, 0),
    (13, 0): (7, 5),
    (13, 1): (7, 5),
    (13, 2): (7, 5),
    (13, 3): (7, 5),
}
"""CUDA of a PyTorch build -> the oldest compute capability that it has code for."""
TORCH_WITHOUT_VOLTA_ON_12_8: Version = (2, 11)
"""From here on the 12.8 build begins at 7.5."""

JAX_OLDEST_CARD: dict[int, tuple[int, int]] = {12: (5, 2), 13: (7, 5)}
"""Extra `cuda12`, `cuda13` -> the oldest compute capability."""

CPU_ONLY = {
    "cpuonly": "remove it",
    "intel-tensorflow": "tensorflow[and-cuda]",
    "jax-cpu": "jax[cuda12]",
    "onnxruntime": "onnxruntime-gpu",
    "paddlepaddle": "paddlepaddle-gpu",
    "pytorch-cpu": "pytorch-gpu",
    "tensorflow-cpu": "tensorflow[and-cuda]",
    "tf-nightly-cpu": "tf-nightly[and-cuda]",
}
"""Packages that never use a GPU -> the ones that do."""
