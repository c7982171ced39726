"""Every error that a user can meet has its place in the docs."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import dray
from dray.core.errors import DrayError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


def _codes() -> set[str]:
    for module in pkgutil.walk_packages(dray.__path__, "dray."):
        if not module.name.startswith(("dray.__main__", "dray.runner", "dray.tracking")):  # these have none
            importlib.import_module(module.name)
    found, todo = set(), [DrayError]
    while todo:
        kind = todo.pop()
        if kind.__module__.startswith("dray."):
            found.add(kind.code)
        todo += kind.__subclasses__()
    return found


def test_every_error_code_has_a_heading_and_every_heading_is_a_code() -> None:
    headings = re.findall(r"^## (\S+)$", PAGE.read_text(), flags=re.MULTILINE)

    assert sorted(headings) == sorted(_codes())


def test_codes_are_kebab_case() -> None:
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in _codes())
