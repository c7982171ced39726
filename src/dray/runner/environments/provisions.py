"""What a submit brings along for the building of its environment: uv for a machine that has none, and packages for one without an index."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, Tuple

from ..files import make_folder
from ..machine import Machine
from . import pythons
from .place import Place

WHEELS = "wheels"
"""In the run folder."""

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}\.(?:whl|tar\.gz|zip)\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class Provisions:
    """As one submit says."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        """`said` is the submit's frame."""
        self._near_uv: str | None = (said.get("near") or {}).get("uv")
        tool = ((said.get("tools") or {}).get("uv") or {}).get(os.uname().machine)
        self._uv: Tuple[str, int] | None = None
        if isinstance(tool, list) and len(tool) == 2 and _DIGEST.match(str(tool[0])):
            self._uv = (str(tool[0]), int(tool[1]))
        self.wheels: List[Tuple[str, str, int]] = []
        for row in said.get("wheels") or ():
            name, digest, size = row
            if _FILE.match(str(name)) and _DIGEST.match(str(digest)):
                self.wheels.append((str(name), str(digest), int(size)))
        words = said.get("credentials") or {}
        self.credentials: Dict[str, str] = {str(place): str(word) for place, word in words.items()}

    def lacking(self, machine: Machine, spec: Mapping[str, Any], is_there: Any) -> Dict[str, int]:
        """Digests, with their sizes, of what is needed and not here. `is_there(digest, size)` knows the blobs."""
        wanted = spec.get("environment")
        if not wanted or not (self.wheels or self._uv):
            return {}
        if not self.wheels and self._near_uv and pythons.is_program(self._near_uv):
            return {}
        if not spec.get("refresh") and Place(machine, wanted).ready():
            return {}
        lacks = {digest: size for _, digest, size in self.wheels if not is_there(digest, size)}
        if self._uv and self.uv(machine, os.environ) is None and not is_there(*self._uv):
            lacks[self._uv[0]] = self._uv[1]
        return lacks

    def uv(self, machine: Machine, environ: Mapping[str, str]) -> str | None:
        """A uv that is new enough: the client's own where it is at hand, the user's, the one that was brought along."""
        if self._near_uv and pythons.is_program(self._near_uv):
            return self._near_uv
        from .uv import is_usable

        theirs = pythons.find_uv(environ)
        if theirs and is_usable(theirs):
            return theirs
        return self._brought(machine)

    def _brought(self, machine: Machine) -> str | None:
        """The one that this submit names, unpacked if need be; else one that an earlier submit has brought."""
        tools = os.path.join(machine.folder, "tools")
        if self._uv:
            digest, size = self._uv
            path = os.path.join(tools, "uv-" + digest[:16])
            if pythons.is_program(path) and os.stat(path).st_size == size:
                return path
            blob = machine.blob(digest)
            if os.path.isfile(blob) and os.stat(blob).st_size == size:
                return _copy(blob, path)
        names = sorted(os.listdir(tools)) if os.path.isdir(tools) else []
        kept = [os.path.join(tools, name) for name in names if re.match(r"uv-[0-9a-f]{16}\Z", name)]
        return next((path for path in kept if pythons.is_program(path)), None)

    def lay_out(self, machine: Machine, run: str) -> None:
        """Put the packages into the run folder under their names, before somebody clears the blobs away."""
        if not self.wheels:
            return
        folder = os.path.join(run, WHEELS)
        make_folder(folder)
        for name, digest, _ in self.wheels:
            try:
                os.link(machine.blob(digest), os.path.join(folder, name))
            except FileExistsError:
                continue
            except FileNotFoundError:
                continue  # the environment was built when the submit looked


def _copy(source: str, path: str) -> str:
    """A program at `path`, whole."""
    import shutil

    make_folder(os.path.dirname(path))
    beside = "%s.%s.new" % (path, os.urandom(4).hex())
    shutil.copyfile(source, beside)
    os.chmod(beside, 0o700)
    os.rename(beside, path)
    return path
