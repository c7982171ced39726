"""Runs in the run's own Python before user code, and tries a GPU with each framework that is there.

`ladder.py FILE` imports each framework and multiplies two small matrices. The answer is JSON in FILE; what is printed is for people (log: gpu). It is started as a file by any Python 3, so it imports nothing of dray's but its neighbour.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, Dict

_SIZE = 64


def main() -> None:
    """Try all, and write down what came of it."""
    answer = sys.argv[1]
    here = os.path.dirname(os.path.abspath(__file__))
    # The folder of this file is no place to import from: its neighbours have names that packages have too.
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]
    neighbour = _neighbour(os.path.join(here, "frameworks.py"))
    found: Dict[str, Any] = {}
    for place in sys.path:
        for one in neighbour.installed(place) if os.path.isdir(place) else ():
            found.setdefault(one["name"], one)
    told = list(found.values())
    for one in told:
        _try(one)
    with open(answer, "w") as file:
        json.dump({"frameworks": told, "python": sys.executable}, file)


def _neighbour(path: str) -> Any:
    from importlib import util

    spec = util.spec_from_file_location("dray_frameworks", path)
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _try(one: Dict[str, Any]) -> None:
    try:
        _TRIES[one["name"]](one)
        print("%s %s: multiplied on %s" % (one["name"], one["version"], one["works"]))
    except Exception as trouble:
        lines = str(trouble).strip().splitlines() or [type(trouble).__name__]
        one["trouble"] = lines[0][:300]
        print("%s %s: %s" % (one["name"], one["version"], one["trouble"]))


def _try_torch(one: Dict[str, Any]) -> None:
    torch = importlib.import_module("torch")
    one["archs"] = list(torch.cuda.get_arch_list()) if torch.version.cuda else []
    if not torch.cuda.is_available():
        raise RuntimeError(_why_torch_sees_none(torch))
    side = torch.ones((_SIZE, _SIZE), device="cuda")
    if float((side @ side).sum()) != float(_SIZE) ** 3:
        raise RuntimeError("a multiplication on the GPU gave a wrong result")
    one["works"] = torch.cuda.get_device_name(0)


def _why_torch_sees_none(torch: Any) -> str:
    if not torch.version.cuda:
        return "torch was built without CUDA"
    try:
        torch.cuda.init()
    except Exception as trouble:
        return str(trouble).strip().splitlines()[0]
    return "torch sees no GPU"


def _try_tensorflow(one: Dict[str, Any]) -> None:
    tensorflow = importlib.import_module("tensorflow")
    devices = tensorflow.config.list_physical_devices("GPU")
    if not devices:
        raise RuntimeError("tensorflow sees no GPU")
    with tensorflow.device("/GPU:0"):
        side = tensorflow.ones((_SIZE, _SIZE))
        if float(tensorflow.reduce_sum(side @ side)) != float(_SIZE) ** 3:
            raise RuntimeError("a multiplication on the GPU gave a wrong result")
    one["works"] = (
        tensorflow.config.experimental.get_device_details(devices[0]).get("device_name") or devices[0].name
    )


def _try_jax(one: Dict[str, Any]) -> None:
    # All of the GPU's memory is not needed for this, and somebody else may need it.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = importlib.import_module("jax")
    device = [device for device in jax.devices() if device.platform in ("gpu", "cuda", "rocm")]
    if not device:
        raise RuntimeError("jax sees no GPU")
    side = jax.device_put(jax.numpy.ones((_SIZE, _SIZE)), device[0])
    if float((side @ side).sum()) != float(_SIZE) ** 3:
        raise RuntimeError("a multiplication on the GPU gave a wrong result")
    one["works"] = device[0].device_kind


_TRIES = {"torch": _try_torch, "tensorflow": _try_tensorflow, "jax": _try_jax}

if __name__ == "__main__":
    main()
