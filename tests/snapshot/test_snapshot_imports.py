"""The public names of the room, and what importing it costs."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import dray.snapshot


def test_every_public_name_is_there() -> None:
    for name in dray.snapshot.__all__:
        assert getattr(dray.snapshot, name).__name__ == name
    assert dir(dray.snapshot) == sorted(dray.snapshot.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        importlib.import_module("dray.snapshot").unknown  # noqa: B018


def test_importing_the_room_imports_none_of_its_modules() -> None:
    program = "import sys, dray.snapshot; print(sorted(m for m in sys.modules if m.startswith('dray')))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['dray', 'dray.snapshot']"


def test_taking_a_snapshot_needs_neither_pathspec_nor_the_heavy_parts_of_the_library() -> None:
    program = (
        "import sys, tempfile, dray.snapshot as s\n"
        "with tempfile.TemporaryDirectory() as d:\n"
        "    open(d + '/.gitignore', 'w').write('data/\\n*.log\\n')\n"
        "    s.take(d, d + '/home')\n"
        "print([m for m in ('pathspec', 'pickle', 'logging', 'asyncio', 'concurrent') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
