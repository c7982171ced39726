"""Packages and Pythons that old files name and nobody can install any more, and what to take instead. Data, and how to ask it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dray.environments.errors import Place, RetiredPackage, RetiredPython
from dray.environments.names import normal

OLDEST_PYTHON = (3, 8)
PYTHON_INSTEAD = "3.12"


@dataclass(frozen=True, slots=True)
class Retired:
    """One package that is no more."""

    instead: str | None
    """A requirement; None: nothing can stand in for it."""
    why: str


_TENSORFLOW_GPU = Retired(
    "tensorflow[and-cuda]",
    "it was removed in December 2022; since 2.14 the GPU comes with an extra of `tensorflow`",
)
_CNTK = Retired(None, "CNTK has had no release since 2019, and none for a Python of today")
_MXNET = Retired(None, "MXNet was retired in 2023, and has no build for a Python of today")
_STUB = "the package of that name is a stub that refuses to be installed"

RETIRED = {
    "tensorflow-gpu": _TENSORFLOW_GPU,
    "tf-nightly-gpu": Retired("tf-nightly[and-cuda]", _TENSORFLOW_GPU.why),
    "tensorflow-gpu-estimator": Retired("tensorflow-estimator", _TENSORFLOW_GPU.why),
    "keras-gpu": Retired("keras", "Keras uses the GPU of whatever it runs on"),
    "cntk": _CNTK,
    "cntk-gpu": _CNTK,
    "cntk-gpu-1bit-sgd": _CNTK,
    "mxnet-gpu": _MXNET,
    "mxnet-mkl": _MXNET,
    "pytorch": Retired("torch", f"{_STUB}; PyTorch is called `torch` there"),
    "pytorch-gpu": Retired("torch", f"{_STUB}; PyTorch is called `torch` there"),
    "torch-gpu": Retired("torch", "PyTorch is called `torch`, and its builds for Linux use the GPU"),
    "sklearn": Retired("scikit-learn", f"{_STUB}; it is called `scikit-learn` there"),
    "opencv": Retired("opencv-python", "no such package was ever published; it is called `opencv-python`"),
    "nvidia-tensorrt": Retired("tensorrt", "it is called `tensorrt` now"),
}
_FAMILIES = ((re.compile(r"mxnet-cu\d+(?:mkl)?"), _MXNET),)
_JAX_EXTRA = re.compile(r"jax\[(?P<extra>cuda(?:\d+)?(?:[-_](?:pip|local|cudnn\d+))*)\]")
_JAX_OF_TODAY = frozenset({"cuda12", "cuda13", "cuda12-local", "cuda13-local"})
_WHEEL = re.compile(
    r"/(?P<name>[A-Za-z0-9_.]+)-(?P<version>[^-/]+)(?:-\d[^-/]*)?-(?P<python>[^-/]+)-(?P<abi>[^-/]+)-[^-/]+\.whl"
)


def check_package(name: str, requirement: str, place: Place, accept: bool) -> tuple[str, str | None]:
    """`(requirement to install, what to tell the user)`. Raises RetiredPackage when `accept` is not given."""
    found = retired(name, requirement)
    if found is None:
        return requirement, None
    if found.instead is None or not accept:
        raise RetiredPackage(place, requirement, found.why, found.instead)
    marker = requirement.partition(" ; ")[2]
    instead = found.instead + (f" ; {marker}" if marker else "")
    return instead, f"`{requirement}` is no more: `{instead}` is taken instead"


def retired(name: str, requirement: str) -> Retired | None:
    """What became of that package; None: it can be had."""
    wheel = _WHEEL.search(requirement)
    if wheel is not None:
        name = normal(wheel["name"])
    known = RETIRED.get(name)
    if known is None:
        known = next((one for shape, one in _FAMILIES if shape.fullmatch(name)), None)
    if known is not None:
        return known
    if wheel is not None and wheel["abi"] != "abi3" and (old := _old_python(wheel["python"])):
        plain = normal(wheel["name"])
        return Retired(plain, f"the wheel is for Python {old}, which cannot be had any more")
    jax = _JAX_EXTRA.match(requirement)
    if jax is not None and normal(jax["extra"]) not in _JAX_OF_TODAY:
        return Retired("jax[cuda12]", f"`jax` has no extra `{jax['extra']}` any more")
    return None


def check_python(wanted: str | None, place: Place, accept: bool) -> tuple[str | None, str | None]:
    """`(version to take, what to tell the user)`. Raises RetiredPython when `accept` is not given."""
    exact = re.fullmatch(r"(\d+)(?:\.(\d+))?(?:\.\d+)*", wanted or "")
    if exact is None:
        return wanted, None
    if (int(exact[1]), int(exact[2] if exact[2] is not None else 99)) >= OLDEST_PYTHON:
        return wanted, None
    if not accept:
        raise RetiredPython(place, str(wanted), PYTHON_INSTEAD)
    return PYTHON_INSTEAD, f"Python {wanted} is no more: {PYTHON_INSTEAD} is taken instead"


def _old_python(tags: str) -> str | None:
    """The version that a wheel's tag names, if all of them are too old: `cp35` -> 3.5."""
    found = [re.fullmatch(r"(?:cp|pp|py)([23])(\d*)", tag) for tag in tags.split(".")]
    versions = [(int(m[1]), int(m[2] or 99)) for m in found if m]
    if not versions or len(versions) < len(found) or max(versions) >= OLDEST_PYTHON:
        return None
    major, minor = max(versions)
    return f"{major}.{minor}" if minor != 99 else str(major)
