"""Which framework a run's Python has, and which CUDA it was built for: read from files, nothing is imported.

`loaded` looks at what a running process has in memory; `installed` at folders of packages. Both give {"name","version","cuda","path"}: cuda is
"12.8", None for a build without, "?" where it cannot be told.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List, Optional

# A file that a process maps once it has imported the framework, and what of its path leads to the folder of packages.
_MAPPED = re.compile(
    rb"\s(/\S*?)/(?:torch/lib/libtorch_cpu\.so|(tensorflow)/libtensorflow_\w+\.so|jaxlib/\S+\.so)",
    re.MULTILINE,
)
_LONGEST = 16 << 20


def loaded(pids: Iterable[int]) -> List[Dict[str, Any]]:
    """Frameworks that these processes have in memory."""
    found: Dict[str, Dict[str, Any]] = {}
    for pid in pids:
        try:
            with open("/proc/%d/maps" % pid, "rb") as file:
                text = file.read(_LONGEST)
        except OSError:
            continue
        for folder in {match.group(1) for match in _MAPPED.finditer(text)}:
            # A container has a file system of its own.
            for top in ("", "/proc/%d/root" % pid):
                for one in installed(top + os.fsdecode(folder)):
                    if _is_mapped(one["name"], text):
                        found.setdefault(one["name"], one)
    return list(found.values())


def _is_mapped(name: str, maps: bytes) -> bool:
    part = {"torch": b"/torch/lib/", "tensorflow": b"/tensorflow/", "jax": b"/jaxlib/"}[name]
    return part in maps


def installed(folder: str) -> List[Dict[str, Any]]:
    """Frameworks in that folder of packages."""
    found = [_torch(folder), _tensorflow(folder), _jax(folder)]
    return [one for one in found if one]


def of_python(python: str, env: Dict[str, str]) -> List[Dict[str, Any]]:
    """Frameworks that this interpreter would find, by the places where packages lie; it is not started."""
    places = [place for place in env.get("PYTHONPATH", "").split(":") if place]
    prefix = os.path.dirname(os.path.dirname(python))
    places += _below(prefix, ("lib", "lib64"))
    virtual = _read(prefix, "pyvenv.cfg")
    if not virtual or re.search(r"^include-system-site-packages\s*=\s*true", virtual, re.MULTILINE):
        # A link as it is written may name a virtual environment; what it leads to is the Python below.
        places += _below(os.path.dirname(os.path.dirname(os.path.realpath(python))), ("lib", "lib64"))
        places += _below(os.path.join(env.get("HOME", "/nonexistent"), ".local"), ("lib",))
        places.append("/usr/lib/python3/dist-packages")
    found: Dict[str, Dict[str, Any]] = {}
    for place in dict.fromkeys(places):
        for one in installed(place):
            found.setdefault(one["name"], one)
    return list(found.values())


def _below(prefix: str, folders: Iterable[str]) -> List[str]:
    """lib/python3.11/site-packages and the like."""
    found = []
    for folder in folders:
        top = os.path.join(prefix, folder)
        try:
            names = sorted(os.listdir(top))
        except OSError:
            continue
        for name in names:
            if name.startswith("python3"):
                found += [os.path.join(top, name, "site-packages"), os.path.join(top, name, "dist-packages")]
    return found


def _read(*parts: str) -> str:
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _torch(folder: str) -> Optional[Dict[str, Any]]:
    text = _read(folder, "torch", "version.py")
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    if not version:
        return None
    cuda = re.search(r"^cuda\s*(?::[^=\n]*)?=\s*['\"]([0-9.]+)", text, re.MULTILINE)
    hip = re.search(r"^hip\s*(?::[^=\n]*)?=\s*['\"]([0-9.]+)", text, re.MULTILINE)
    return _found(
        "torch", version.group(1), cuda.group(1) if cuda else None, folder, hip=hip and hip.group(1)
    )


def _tensorflow(folder: str) -> Optional[Dict[str, Any]]:
    version = _version(folder, ("tensorflow", "tensorflow_cpu", "tensorflow_gpu", "tf_nightly"))
    text = _read(folder, "tensorflow", "python", "platform", "build_info.py")
    if not version or not text:
        return None
    is_cuda = re.search(r"[\"']is_cuda_build[\"']:\s*True", text)
    cuda = re.search(r"[\"']cuda_version[\"']:\s*[\"']([0-9.]+)", text)
    told = (cuda.group(1) if cuda else "?") if is_cuda else None
    return _found("tensorflow", version, told, folder)


def _jax(folder: str) -> Optional[Dict[str, Any]]:
    version = _version(folder, ("jaxlib",))
    if not version:
        return None
    for major in ("13", "12", "11"):
        if _version(folder, ("jax_cuda%s_plugin" % major, "jax_cuda%s_pjrt" % major)):
            return _found("jax", version, major, folder)
    return _found("jax", version, "?" if "cuda" in version else None, folder)


def _version(folder: str, names: Iterable[str]) -> Optional[str]:
    """Of the first of these distributions that is there, by the name of its folder."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return None
    for name in names:
        for entry in entries:
            head, dash, rest = entry.partition("-")
            if dash and head.lower().replace("-", "_") == name and rest.endswith(".dist-info"):
                return rest[: -len(".dist-info")]
    return None


def _found(name: str, version: str, cuda: Optional[str], folder: str, **more: Any) -> Dict[str, Any]:
    known = {"name": name, "version": version, "cuda": cuda, "path": folder}
    known.update({key: value for key, value in more.items() if value})
    return known
