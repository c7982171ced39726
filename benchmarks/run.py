"""Runs the benches, prints their table and writes it to docs/benchmarks.md.

`./dev bench [NAMES] [--quick] [--peers]`. A bench is a module `bench_NAME.py` here with `rows(quick) -> list of rows`.
Each has its own part of the page, so that one can be measured again alone. `--quick` takes fewer and smaller
measurements, to see whether a bench works; its figures are printed and not written.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import importlib
import os
import platform
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import Row

PAGE = peers.ROOT / "docs" / "benchmarks.md"
HEAD = "| what | dray | beside | ratio | goal | met |\n| --- | --- | --- | --- | --- | --- |\n"


def main(words: Sequence[str]) -> int:
    """Run what is asked for; 1 when a bench broke. A missed goal is a figure, not an error."""
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measure dray.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="smaller; printed, and not written to the docs")
    parser.add_argument("--peers", action="store_true", help="install the peers first, if they are not there")
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"there is no bench `{unknown[0]}`; known: {', '.join(known)}")
    if asked.peers:
        os.environ[peers.VARIABLE] = str(peers.make())
    # What is measured is an installed dray: none that compiles what was edited since, again and again.
    compileall.compile_dir(peers.ROOT / "src", quiet=2)
    broken = []
    for name in asked.names or known:
        print(f"\n{name} ...", file=sys.stderr, flush=True)
        try:
            rows: list[Row] = importlib.import_module(f"benchmarks.bench_{name}").rows(asked.quick)
        except Exception:  # one broken bench must not cost the figures of the others
            traceback.print_exc()
            broken.append(name)
            continue
        part = HEAD + "".join(line(row) for row in rows)
        print(part, flush=True)
        if not asked.quick:
            PAGE.write_text(replaced(PAGE.read_text(), name, f"{circumstances()}\n\n{part}"))
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def line(row: Row) -> str:
    """A row in Markdown."""
    beside = ", ".join(f"{name} {shown(value)}" for name, value in row["peers"].items()) or "-"
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3g} x"
    met = {True: "yes", False: "**no**", None: "-"}[row["met"]]
    return f"| {row['what']} | {shown(row['dray'])} | {beside} | {ratio} | {row['goal']} | {met} |\n"


def shown(value: float | str) -> str:
    """Seconds in the unit that needs no zeros; text as it is."""
    if isinstance(value, str):
        return value
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if abs(value) * scale >= 1:
            return f"{value * scale:.3g} {unit}" if abs(value) < 1000 else f"{value:.0f} s"
    return f"{value * 1e9:.3g} ns"


def circumstances() -> str:
    """When, and on what kind of machine."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"Measured {today} with {cores} cores, {platform.system()}, Python {platform.python_version()}."


def replaced(page: str, name: str, part: str) -> str:
    """The page with the part of one bench exchanged, or added at the end."""
    begin, end = f"<!-- bench {name} -->\n", "<!-- end -->\n"
    new = f"{begin}{part}{end}"
    old = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if old.search(page):
        return old.sub(lambda _: new, page)
    return f"{page.rstrip()}\n\n## {name}\n\n{new}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
