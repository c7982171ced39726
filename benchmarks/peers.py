"""Makes the virtual environment that holds the tools dray is measured beside.

`./dev bench --peers` calls `make()`. The folder (`dray-bench/peers` in the user's cache folder) is kept, and serves all
checkouts; benches find its Python in the environment variable DRAY_BENCH_PEERS. Without it they measure dray alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "dray-bench")
FOLDER = CACHE / "peers"
VARIABLE = "DRAY_BENCH_PEERS"
PACKAGES = ("mlflow", "ray[default]", "submitit")
# It wants old versions of what the others use: a folder of its own.
COVALENT = CACHE / "covalent"
COVALENT_PACKAGES = ("covalent", "covalent-ssh-plugin")


def make(folder: Path = FOLDER, packages: Sequence[str] = PACKAGES) -> Path:
    """Create `folder` or complete it; return its Python. Safe to repeat; a finished one is left as it is."""
    python = folder / "bin" / "python"
    finished = folder / "peers-ready"
    wanted = "\n".join(packages) + "\n"
    if finished.exists() and finished.read_text() == wanted:
        return python
    print(
        f"making {folder} with {', '.join(packages)}: some minutes, once ...",
        file=sys.stderr,
        flush=True,
    )
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv:
        install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
    else:
        install = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, *packages], check=True)
    finished.write_text(wanted)
    return python


def python() -> Path | None:
    """The peers' Python that this bench run was given, if any."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def covalent() -> Path | None:
    """The Python with covalent in it, where this bench run has peers."""
    return make(COVALENT, COVALENT_PACKAGES) if python() else None


def tool(name: str) -> str | None:
    """The command `name` of the peers' environment, if it is there."""
    beside = python()
    return shutil.which(name, path=str(beside.parent)) if beside else None


if __name__ == "__main__":
    print(make())
