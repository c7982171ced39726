"""Finds a Python that can run the runner on a machine whose `python3` cannot: by name, on the paths where they use to be."""

from __future__ import annotations

import re
import time

from dray.core.errors import DrayError
from dray.core.interfaces import Host

_OLDEST = (3, 8)
_PATIENCE_S = 30.0
_VERSION = "import sys; print(*sys.version_info[:3], sep=chr(46))"
# One line without single quotes inside, so that every shell passes it on. The login shell's own PATH may know more than ours.
_LOOK = (
    "for p in $(for v in 14 13 12 11 10 9 8; do command -v python3.$v; done; command -v python3;"
    " $SHELL -l -c {more} </dev/null 2>/dev/null;"
    " ls -d /usr/local/bin/python3* /opt/*/bin/python3* $HOME/.local/bin/python3* $HOME/*conda*/bin/python3"
    " $HOME/.pyenv/versions/*/bin/python3 $HOME/.local/share/uv/python/*/bin/python3 2>/dev/null);"
    " do case $p in /*) v=$($p -I -S -c {version} </dev/null 2>/dev/null) && echo DRAY-PYTHON $v $p;; esac; done;"
    " command -v uv >/dev/null && echo DRAY-UV; echo DRAY-DONE"
)


class NoHostPython(DrayError):
    """No Python of that machine can run the runner."""

    code = "no-host-python"

    def __init__(self, name: str, where: str, has_uv: bool) -> None:
        super().__init__(
            f"{where} has no Python 3.8 or newer that dray could find",
            why="looked for python3 and python3.8 to python3.14 on PATH, in /usr/local, /opt and the home",
            hint=f"on it: uv python install 3.12; then: dray attach vm {name} again"
            if has_uv
            else f"dray attach vm {name} --host-python /path/to/python3",
        )


def find_python(host: Host) -> tuple[str, str]:
    """(path, version) of the newest one that will do. Raises NoHostPython."""
    script = _LOOK.replace("{version}", f'"{_VERSION}"').replace("{more}", '"command -v python3"')
    channel = host.open(f"exec sh -c '{script}'")
    try:
        said = b""
        until = time.monotonic() + _PATIENCE_S
        while b"DRAY-DONE" not in said and channel.wait_readable(max(0.0, until - time.monotonic())):
            piece = channel.read(65536)
            if not piece or len(said) > 1 << 20:
                break
            said += piece
    finally:
        channel.close()
    found = []
    for line in said.decode(errors="replace").splitlines():
        seen = re.fullmatch(r"DRAY-PYTHON (\d+)\.(\d+)\.(\d+) (/\S+)", line.strip())
        if seen and (int(seen[1]), int(seen[2])) >= _OLDEST:
            found.append(((int(seen[1]), int(seen[2]), int(seen[3])), seen[4]))
    if not found:
        raise NoHostPython(host.name, host.describe(), b"DRAY-UV" in said)
    numbers, path = max(found, key=lambda one: one[0])
    return path, ".".join(map(str, numbers))
