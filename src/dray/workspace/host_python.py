"""Finds a Python that can run the runner on a machine whose `python3` cannot, by name, where they use to be; or has uv bring one."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from dray.core.errors import DrayError, printable
from dray.core.interfaces import Host

BY_UV = "uv"
"""In the place of a Python's path: uv brings one, into dray's folder there."""

_OLDEST = (3, 8)
_BROUGHT = "3.12"
_PATIENCE_S = 30.0
_BRINGING_S = 600.0
_PIECE = 1 << 20
_MACHINE = "~/.local/share/dray/machine"
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
_HAS_UV = "(command -v uv || $SHELL -l -c {where} </dev/null 2>/dev/null) >/dev/null && echo UV-IS-HERE; echo DRAY-DONE"
# The folder, and how large our uv is, come by stdin: no shell on the way can take them for something else.
_BRING = (
    'exec 2>&1; IFS= read -r root; IFS= read -r size; umask 077; case $root in "~/"*) root=$HOME/${root#??};; esac;'
    ' mkdir -p "$root/python" || exit 1;'
    " if [ $size = 0 ]; then uv=$(command -v uv || $SHELL -l -c {where} </dev/null 2>/dev/null);"
    ' else uv=$root/python/uv; head -c $size > "$uv" && chmod 700 "$uv"; fi;'
    ' UV_PYTHON_INSTALL_BIN=0 UV_NO_CACHE=1 "$uv" python install --install-dir "$root/python" {version} </dev/null;'
    ' for p in "$root"/python/*/bin/python3; do v=$("$p" -I -S -c {print} </dev/null 2>/dev/null) && echo DRAY-PYTHON $v "$p"; done;'
    " echo DRAY-DONE"
)


class NoHostPython(DrayError):
    """No Python of that machine can run the runner."""

    code = "no-host-python"

    def __init__(self, name: str, where: str, has_uv: bool) -> None:
        super().__init__(
            f"{where} has no Python 3.8 or newer that dray could find",
            why="looked for python3 and python3.8 to python3.14 on PATH, in /usr/local, /opt and the home",
            hint="--host-python /path/to/python3, or --host-python uv: uv brings one, into dray's folder there",
        )
        self.has_uv = has_uv


class NoPythonByUv(DrayError):
    """uv did not bring a Python."""

    code = "no-python-by-uv"

    def __init__(self, where: str, said: str) -> None:
        super().__init__(
            f"uv brought no Python to {where}",
            why=said or "it said nothing",
            hint="bring one yourself, and name it: --host-python /path/to/python3",
        )


def find_python(host: Host) -> tuple[str, str]:
    """(path, version) of the newest one that will do. Raises NoHostPython."""
    script = _LOOK.replace("{version}", f'"{_VERSION}"').replace("{more}", '"command -v python3"')
    said = _told(host, script, b"", _PATIENCE_S)
    found = _newest(said)
    if found is None:
        raise NoHostPython(host.name, host.describe(), "DRAY-UV" in said)
    return found


def bring_python(host: Host, root: str | None) -> tuple[str, str]:
    """(path, version) of one that uv puts into dray's folder there; our own uv goes over where there is none. Raises NoPythonByUv."""
    has_uv = "UV-IS-HERE" in _told(host, _HAS_UV.replace("{where}", '"command -v uv"'), b"", _PATIENCE_S)
    uv = b"" if has_uv else _our_uv()
    script = _BRING.replace("{where}", '"command -v uv"').replace("{version}", _BROUGHT)
    first = f"{root or _MACHINE}\n{len(uv)}\n".encode()
    said = _told(host, script.replace("{print}", f'"{_VERSION}"'), first + uv, _BRINGING_S)
    found = _newest(said)
    if found is None:
        words = [line for line in said.splitlines() if line.strip() and not line.startswith("DRAY-")]
        raise NoPythonByUv(host.describe(), printable(words[-1].strip()[:300]) if words else "")
    return found


def _our_uv() -> bytes:
    """The one beside dray. It runs on machines like ours."""
    beside = Path(sys.executable).parent / "uv"
    return beside.read_bytes() if beside.exists() else b""


def _told(host: Host, script: str, stdin: bytes, patience_s: float) -> str:
    """What a script of `sh` says there, up to its last word."""
    channel = host.open(f"exec sh -c '{script}'")
    said = b""
    try:
        for at in range(0, len(stdin), _PIECE):
            channel.write(stdin[at : at + _PIECE])
        until = time.monotonic() + patience_s
        while b"DRAY-DONE" not in said and channel.wait_readable(max(0.0, until - time.monotonic())):
            piece = channel.read(65536)
            if not piece or len(said) > 1 << 20:
                break
            said += piece
        trouble = None if b"DRAY-DONE" in said else channel.trouble()
    except BrokenPipeError:
        trouble = channel.trouble()
    finally:
        channel.close()
    if trouble is not None:
        raise trouble
    return said.decode(errors="replace")


def _newest(said: str) -> tuple[str, str] | None:
    found = []
    for line in said.splitlines():
        seen = re.fullmatch(r"DRAY-PYTHON (\d+)\.(\d+)\.(\d+) (/.+)", line.strip())
        if seen and (int(seen[1]), int(seen[2])) >= _OLDEST:
            found.append(((int(seen[1]), int(seen[2]), int(seen[3])), seen[4]))
    if not found:
        return None
    numbers, path = max(found, key=lambda one: one[0])
    return path, ".".join(map(str, numbers))
