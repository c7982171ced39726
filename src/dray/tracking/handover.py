"""Looks for a full dray behind the travelling one on the path, and puts it in its place.

A run's PYTHONPATH ends with the travelling dray, and PYTHONPATH comes before site-packages; so the travelling one is
found first even where the user has installed dray. Called by `travel.py` while `import dray` is still going on.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Iterator, Optional


def hand_over(name: str, own_init: str) -> bool:
    """Make the full dray what `import dray` gives. False, and nothing changed, where there is none that works."""
    own = os.path.realpath(os.path.dirname(own_init))
    spec = next((s for s in _candidates(name, os.path.dirname(own)) if _is_full(s, own)), None)
    if spec is None or spec.loader is None:
        return False
    # Our own submodules must not be taken for those of the full one.
    before = {n: m for n, m in sys.modules.items() if n == name or n.startswith(name + ".")}
    try:
        for each in before:
            del sys.modules[each]
        full = importlib.util.module_from_spec(spec)
        sys.modules[name] = full
        spec.loader.exec_module(full)
        full.log  # noqa: B018  a full one that cannot log (too old, half removed) is no better than ours
    except Exception:  # the script comes first; ours works
        for each in [n for n in sys.modules if n == name or n.startswith(name + ".")]:
            del sys.modules[each]
        sys.modules.update(before)
        return False
    return True


def _candidates(name: str, own_entry: str) -> Iterator[ModuleSpec]:
    elsewhere = [entry for entry in sys.path if os.path.realpath(entry or os.getcwd()) != own_entry]
    while elsewhere:
        spec = PathFinder.find_spec(name, elsewhere)
        if spec is None:
            break
        yield spec
        # Something else of this name (another run's travelling dray, a folder): look behind it.
        places = [os.path.realpath(os.path.dirname(p)) for p in spec.submodule_search_locations or ()]
        if spec.origin is not None and not places:
            places = [os.path.realpath(os.path.dirname(spec.origin))]
        fewer = [entry for entry in elsewhere if os.path.realpath(entry or os.getcwd()) not in places]
        if len(fewer) == len(elsewhere):
            break
        elsewhere = fewer
    for finder in sys.meta_path:  # editable installs bring a finder of their own
        if finder is not PathFinder and hasattr(finder, "find_spec"):
            found: Optional[ModuleSpec] = finder.find_spec(name, None)
            if found is not None:
                yield found


def _is_full(spec: ModuleSpec, own: str) -> bool:
    for place in spec.submodule_search_locations or ():
        rooms = [os.path.join(place, room, "__init__.py") for room in ("core", "tracking")]
        if spec.origin is not None and os.path.realpath(place) != own and all(map(os.path.isfile, rooms)):
            return True
    return False
