"""Every promise on the reliability page names a test, and the test is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"


def test_every_promise_names_a_test_that_is_there() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text(), flags=re.MULTILINE)
    }
    promises = [
        line
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| ---")
    ]
    promises = [line for line in promises if not line.startswith("| what happens |")]

    named = {line: re.findall(r"`(test_\w+)`", line.split("|")[3]) for line in promises}

    assert named
    assert [line for line, tests in named.items() if not tests] == []
    assert sorted({test for tests in named.values() for test in tests} - defined) == []
