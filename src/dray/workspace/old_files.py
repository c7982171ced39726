"""Files of the old command line that lie in a project: what `NAME.compute` says of containers, for a compute of that name.

Only two of its keys mean anything here: `baseDockerImage` and `nvidiaDocker`. The rest told the way to a machine, which `dray attach` knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDERS = (".dray", "aml_config", ".azureml", ".")
"""Where such files lie; the first that has one counts."""
_LINE = re.compile(
    r"""^\s*["']?(baseDockerImage|nvidiaDocker)["']?\s*:\s*["']?([^"',#\r\n]*?)["']?\s*,?\s*(?:#.*)?$""",
    re.MULTILINE,
)
_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class OldCompute:
    """What one such file says."""

    path: str
    image: str | None = None
    gpu: bool | None = None
    """Whether runs get a GPU; None: it does not say."""


def old_compute(folder: Path, name: str) -> OldCompute | None:
    """The file of that compute in a project; None when there is none, or it says nothing of containers."""
    for place in FOLDERS:
        path = folder / place / f"{name}.compute"
        try:
            with path.open("rb") as file:
                text = file.read(_MOST).decode("utf-8", "replace")
        except OSError:
            continue
        said = dict(_LINE.findall(text))
        if not said:
            return None
        gpu = {"true": True, "false": False}.get(said.get("nvidiaDocker", "").lower())
        return OldCompute(path.relative_to(folder).as_posix(), said.get("baseDockerImage") or None, gpu)
    return None
