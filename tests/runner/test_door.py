"""The way into a run that begins just now is found, and not taken for one that has ended."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.runner import processes
from dray.runner.folder import RunFolder
from dray.runner.frames import Frame
from dray.runner.machine import Machine
from dray.runner.reach import door
from dray.runner.reach.commands import await_door
from dray.runner.reach.line import Line
from dray.runner.trouble import Trouble


class JustNow(RunFolder):
    """A run that begins after somebody has looked whether it has a way in, and before they look anything else up."""

    script: subprocess.Popen[bytes] | None = None
    asked = 0

    def end(self, number: int) -> dict[str, Any] | None:
        self.asked += 1
        if self.asked == 2:
            self.begin()
        return super().end(number)

    def begin(self) -> None:
        self.script = subprocess.Popen(["sleep", "600"], env={**os.environ, processes.MARK: self.id})
        said = {"type": "state", "t": 1.0, "data": {"state": "running", "pid": self.script.pid}}
        Path(self.streams(1), "state.jsonl").write_text(json.dumps(said) + "\n")

    def stop(self) -> None:
        if self.script is not None:
            self.script.kill()
            self.script.wait()


class QuietLine(Line):
    """A channel on which nothing comes."""

    def __init__(self) -> None:
        quiet, self._held = os.pipe()
        super().__init__(self._nothing, quiet, os.open(os.devnull, os.O_WRONLY))

    @staticmethod
    def _nothing() -> Frame | None:
        return None


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JustNow]:
    made = JustNow(Machine(str(tmp_path / "machine")), "abcdefghij")
    os.makedirs(made.streams(1))
    Path(made.path, "run.json").write_text("{}")
    yield made
    made.stop()


def test_a_run_that_begins_while_one_looks_is_gone_into(folder: JustNow) -> None:
    found = await_door(folder, QuietLine())

    assert folder.script and found
    assert found.pid == folder.script.pid


def test_a_run_whose_process_is_gone_is_not_waited_for(folder: JustNow) -> None:
    folder.begin()
    folder.stop()

    with pytest.raises(Trouble, match="the script has ended"):
        await_door(folder, QuietLine())


def test_one_door_is_put_in_the_place_of_another() -> None:
    words = {"env": {}, "cwd": "/"}
    for more in ({}, {"hosts": ["10.0.0.1"]}):
        door.keep("abcdefghij", {**words, **more})
        found = [
            name
            for name in os.listdir("/proc/self/fd")
            if "dray-door-abcdefghij" in os.path.realpath(f"/proc/self/fd/{name}")
        ]
        assert len(found) == 1
    door.shut("abcdefghij")
