"""Scripts that log, as a run starts them: alone, with the travelling dray at the end of the path."""

from __future__ import annotations

import functools
import glob
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

TRACKING = Path(__file__).parents[2] / "src" / "dray" / "tracking"


def travelling(folder: Path) -> Path:
    """Lay out what the runner lays out; the folder to append to PYTHONPATH."""
    package = folder / "dray"
    shutil.copytree(TRACKING, package / "tracking", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TRACKING / "travel.py", package / "__init__.py")
    return folder


class World:
    """A run folder's streams, and scripts that write into them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = travelling(folder / "travel")
        self.streams = folder / "streams"
        self.streams.mkdir()
        self.numbers = itertools.count()

    def script(self, code: str) -> Path:
        # A new name each time: an earlier script may still be read by its interpreter.
        script = self.folder / f"script{next(self.numbers)}.py"
        # -I ignores PYTHONPATH, so the script itself does what the runner does with it.
        script.write_text(f"import sys; sys.path.append({str(self.path)!r})\n{code}\n")
        return script

    def start(self, code: str, python: str = sys.executable, **env: str) -> subprocess.Popen[str]:
        """-I ignores the environment and -S hides site-packages: what is left is the standard library."""
        alone = ["-E", "-s"] if python in (path for v, path in pythons().items() if v < (3, 4)) else ["-I"]
        words = [python, *alone, "-S", str(self.script(code))]
        around = {"PATH": os.environ["PATH"], "DRAY_STREAMS": str(self.streams), **env}
        pipe = subprocess.PIPE
        return subprocess.Popen(words, env=around, stdout=pipe, stderr=pipe, text=True, cwd=self.folder)

    def run(self, code: str, python: str = sys.executable, **env: str) -> tuple[str, str]:
        """Output and errors of a script that ends well."""
        process = self.start(code, python, **env)
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        return out, err

    def events(self) -> dict[str, list[dict[str, Any]]]:
        """Every stream's lines. A line that does not parse fails the test."""
        return {
            path.name: [json.loads(line, parse_constant=_refuse) for line in _whole_lines(path)]
            for path in sorted(self.streams.glob("events.*.jsonl"))
        }

    def only(self, kind: str) -> list[Any]:
        """The data of all events of one type, in a run with one stream."""
        (events,) = self.events().values()
        return [event["data"] for event in events if event["type"] == kind]


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text("ascii")
    assert text.endswith("\n"), text[-100:]
    return text[:-1].split("\n")


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@functools.cache
def pythons() -> dict[tuple[int, int], str]:
    """Every interpreter at hand, one of each version."""
    places = [p for p in os.environ.get("PATH", "").split(os.pathsep) if p and "shims" not in p]
    found = [hit for place in places for hit in glob.glob(f"{place}/python[23]*")]
    found += glob.glob("/usr/bin/python[23]*") + glob.glob(
        os.path.expanduser("~/.pyenv/versions/*/bin/python")
    )
    found += glob.glob(os.path.expanduser("~/.local/share/uv/python/*/bin/python3*"))
    versions: dict[tuple[int, int], str] = {sys.version_info[:2]: sys.executable}
    for path in found:
        if path.endswith("-config"):
            continue
        asked = subprocess.run(
            [path, "-c", "import sys; print('%d %d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        words = asked.stdout.split()
        if asked.returncode == 0 and len(words) == 2:
            versions.setdefault((int(words[0]), int(words[1])), path)
    return versions
