"""How long a snapshot takes, beside git, rsync, sha256sum and cp on the same files in the same minutes.

`python benchmarks/bench_snapshot.py [--quick]` prints a table; `rows` gives the same as data. Every figure is the median of
several rounds, and within a round all take turns, so that a busy moment of the machine hits all of them. dray's time is that
of `take`, as it is within a submit; the others are whole commands, as a person starts them (about 2 ms of it is the start).
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

if __package__ is None:  # started as a file: the folder above holds the package of the benches
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.measure import Row
from dray.snapshot import take
from dray.snapshot.cache import RACY_NS

_Timed = Callable[[], object]


def rows(quick: bool) -> list[Row]:
    """Two of an unchanged folder, and first snapshots of three shapes."""
    missing = [tool for tool in ("git", "rsync", "sha256sum", "cp") if shutil.which(tool) is None]
    if missing:
        raise RuntimeError(f"bench_snapshot needs {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
        place = Path(folder)
        return [*_unchanged(place, quick), *_first(place, quick)]


def _unchanged(place: Path, quick: bool) -> list[Row]:
    count = 2_000 if quick else 10_000
    code, copy, home = place / "code", place / "copy", place / "home"
    _make_project(code, count)
    shutil.copytree(code, copy, symlinks=True)
    _run("rsync", "-a", "--exclude=.git", f"{code}/", f"{copy}/")
    time.sleep(RACY_NS / 1e9 + 0.1)  # files and blobs younger than that are not trusted, as in git
    take(code, home)
    time.sleep(RACY_NS / 1e9 + 0.1)
    take(code, home)
    figures = _turns(
        9 if quick else 15,
        {
            "dray": lambda: take(code, home),
            "git status": lambda: _run("git", "-C", str(code), "status", "--porcelain"),
            "rsync -an": lambda: _run("rsync", "-an", "--exclude=.git", f"{code}/", f"{copy}/"),
        },
    )
    what = f"unchanged folder of {count:,} files: walk, digests, manifest"
    return [
        _row(what, figures["dray"], {"git status": figures["git status"]}, 4.0),
        _row(what, figures["dray"], {"rsync -an": figures["rsync -an"]}, 1.2),
    ]


def _first(place: Path, quick: bool) -> list[Row]:
    megabytes = 100 if quick else 1000
    shapes = {
        f"first snapshot of {megabytes} MB in 50 files": (50, megabytes * 20_000, 1.3),
        f"first snapshot of {megabytes} MB in one file": (1, megabytes * 1_000_000, 1.3),
        "first snapshot of 2,000 files of 5 kB": (2000, 5_000, None),
    }
    return [_first_of(place, what, count, size, goal) for what, (count, size, goal) in shapes.items()]


def _first_of(place: Path, what: str, count: int, size: int, goal: float | None) -> Row:
    code, copy, home = place / "big", place / "big-copy", place / "big-home"
    code.mkdir()
    for number in range(count):
        with (code / f"{number}.bin").open("wb") as file:
            for start in range(0, size, 1 << 20):
                file.write(os.urandom(min(1 << 20, size - start)))
    names = [str(path) for path in sorted(code.iterdir())]
    os.sync()
    taken: dict[str, list[float]] = {"dray": [], "sha256sum": [], "cp": []}
    for _ in range(3):
        turn = {
            "dray": lambda: take(code, home),
            "sha256sum": lambda: _run("sha256sum", *names),
            "cp": lambda: _run("cp", "-r", str(code), str(copy)),
        }
        for name, act in turn.items():
            taken[name].append(_seconds(act))
            for made in (home, copy):
                shutil.rmtree(made, ignore_errors=True)
            os.sync()  # nobody pays for writing out what another one wrote
    shutil.rmtree(code)
    figures = {name: statistics.median(times) for name, times in taken.items()}
    dray = figures.pop("dray")
    return _row(what, dray, figures, goal)


def _make_project(code: Path, count: int) -> None:
    """Files of a kilobyte or two, 50 to a folder, committed; ignore rules as Python projects have them."""
    for number in range(count):
        folder = code / f"part{number // 1000}" / f"module{number // 50 % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file_{number}.py").write_bytes(os.urandom(1000 + number % 1000))
    (code / ".gitignore").write_text(
        "*.py[cod]\n*.so\nbuild/\n/data/\ndocs/_build/\n.env\n*.log\n!keep.log\n"
    )
    (code / "data").mkdir()
    (code / "data" / "left.bin").write_bytes(b"x")
    git = ("git", "-C", str(code), "-c", "user.name=b", "-c", "user.email=b@example.org", "-c", "gc.auto=0")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all"), ("status",)):
        _run(*git, *words)


def _turns(rounds: int, contenders: dict[str, _Timed]) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, act in contenders.items():
            taken[name].append(_seconds(act))
    return {name: statistics.median(times) for name, times in taken.items()}


def _seconds(act: _Timed) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def _row(what: str, dray: float, peers: dict[str, float], most: float | None) -> Row:
    ratio = dray / sum(peers.values())
    goal = "" if most is None else f"at most {most:g} x ({' + '.join(peers)})"
    return Row(
        what=what,
        dray=dray,
        peers=dict(peers),
        ratio=ratio,
        goal=goal,
        met=None if most is None else ratio <= most,
    )


def main() -> None:
    """Print the table of this bench alone."""
    from benchmarks.run import HEAD, line

    sys.stdout.write(HEAD)
    for row in rows("--quick" in sys.argv[1:]):
        sys.stdout.write(line(row))


if __name__ == "__main__":
    main()
