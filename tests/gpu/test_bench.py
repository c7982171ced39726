"""The bench that anyone with a card can run works, as far as the driver's stand-in goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("driver")
def test_the_bench_keeps_its_promises_with_the_stand_in(tmp_path: Path) -> None:
    page = tmp_path / "result.md"

    words = [
        sys.executable,
        "benchmarks/gpu/run.py",
        "--fake",
        "--quick",
        "--python",
        sys.executable,
        "-o",
        str(page),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "**no**" not in page.read_text()
    assert "stand-in" in page.read_text().splitlines()[0]
