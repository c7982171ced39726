"""The commands of `./dev`, each a few steps that CI runs in the same way.

`COMMANDS` at the end is the list. Every step is a command line of its own, so what fails can be pasted and run alone.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
PYTHON = BIN / "python"
CODE = ("src", "tests", "benchmarks", "tools", "examples")
TRAVELS = ("src/dray/runner", "src/dray/tracking")
OLDEST_MACHINE = "3.8"


def check(words: Sequence[str]) -> int:
    """Format, lint, types, import contracts, oldest Python of what travels, docs. All are run, then the verdict."""
    if words:
        return misused("check", words)
    code = [folder for folder in CODE if (ROOT / folder).is_dir()]
    steps: dict[str, Sequence[str | Path]] = {
        "format": [BIN / "ruff", "format", "--check", "--quiet", *code],
        "lint": [BIN / "ruff", "check", "--quiet", *code],
        "types": [BIN / "mypy"],
        "imports": [BIN / "lint-imports", "--no-cache"],
        "oldest Python": [
            BIN / "vermin",
            "-q",
            f"-t={OLDEST_MACHINE}-",
            "--no-tips",
            "--violations",
            *TRAVELS,
        ],
        "reference pages and links": [PYTHON, "-I", ROOT / "tools" / "docs.py", "--check"],
        "docs examples": [PYTHON, "-m", "pytest", "tests/docs"],
    }
    failed = [name for name, command in steps.items() if not passes(name, command)]
    if failed:
        print(f"check failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def test(words: Sequence[str]) -> int:
    """The tests, two at a time: `./dev test [--slow] [pytest's own words]`."""
    # Two, whatever the machine has: the tests start real processes, and some of them measure time.
    return run([PYTHON, "-m", "pytest", "-n", "2", "--dist", "worksteal", *words])


def bench(words: Sequence[str]) -> int:
    """Measure: `./dev bench [NAMES] [--quick] [--peers]`; the table goes to docs/benchmarks.md."""
    return run([PYTHON, "-m", "benchmarks.run", *words])


def docs(words: Sequence[str]) -> int:
    """Write the generated pages: docs/reference/ and the list in docs/errors.md; `--check` only compares."""
    return run([PYTHON, "-I", ROOT / "tools" / "docs.py", *words])


def fmt(words: Sequence[str]) -> int:
    """Format the code, and mend what the linter can mend: `./dev fmt [PATHS]`."""
    code = words or [folder for folder in CODE if (ROOT / folder).is_dir()]
    run([BIN / "ruff", "check", "--fix-only", "--quiet", *code])
    return run([BIN / "ruff", "format", *code])


def passes(name: str, command: Sequence[str | Path]) -> bool:
    """Run one step of a check; its output is shown when it fails."""
    began = time.monotonic()
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    took = time.monotonic() - began
    print(f"{'ok  ' if done.returncode == 0 else 'FAIL'} {name} ({took:.1f} s)", flush=True)
    if done.returncode:
        print(f"     {shlex.join(str(word) for word in command)}\n{done.stdout}", flush=True)
    return done.returncode == 0


def run(command: Sequence[str | Path]) -> int:
    """Run one step in the checkout, seen by the user."""
    return subprocess.run(
        [str(word) for word in command], cwd=ROOT, env=environment(), check=False
    ).returncode


def environment() -> dict[str, str]:
    """The caller's, less what would make two people's results differ."""
    return {
        k: v
        for k, v in os.environ.items()
        if k not in {"PYTHONPATH", "PYTHONHOME", "DRAY_HOME", "DRAY_COMPUTE"}
    }


def misused(name: str, words: Sequence[str]) -> int:
    """Say which words do not fit."""
    print(f"`./dev {name}` takes no words, and got: {' '.join(words)}", file=sys.stderr)
    return 2


def overview() -> str:
    """The list of commands, from their docstrings."""
    lines = ["./dev COMMAND", ""]
    lines += [f"  {name:<6} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    """Run the named command; 0 is good, 2 is misused."""
    if not words or words[0] in {"-h", "--help", "help"}:
        print(overview())
        return 0
    if words[0] not in COMMANDS:
        print(f"there is no `./dev {words[0]}`\n\n{overview()}", file=sys.stderr)
        return 2
    try:
        return COMMANDS[words[0]](words[1:])
    except KeyboardInterrupt:
        return 130


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "check": check,
    "test": test,
    "bench": bench,
    "docs": docs,
    "fmt": fmt,
}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
