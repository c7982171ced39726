"""Whose a process is, and what a run's processes use: real processes, /proc as it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dray.runner.gpu.own import Own
from dray.runner.gpu.usage import Usage
from tests.workspace.worlds import wait_until


@contextmanager
def _process(*argv: str, **env: str) -> Iterator[int]:
    with subprocess.Popen(argv, env={**os.environ, **env}) as process:
        try:
            # Between fork and exec it still has the environment of this process.
            cmdline = Path(f"/proc/{process.pid}/cmdline")
            wait_until(lambda: argv[0].encode() in cmdline.read_bytes())
            yield process.pid
        finally:
            process.kill()


def test_a_process_is_the_runs_by_its_place_or_by_its_mark() -> None:
    with _process("sleep", "30") as guard, _process("sleep", "30", DRAY_RUN_ID="k3f9x2abqd") as marked:
        own = Own("k3f9x2abqd", guard)

        assert own.has(marked) is True
        assert own.has(os.getpid()) is False
        assert own.has(4_194_300) is None


def test_a_process_below_the_guard_is_known_after_its_end() -> None:
    script = "import subprocess; subprocess.run(['sleep', '1'])"
    with _process(sys.executable, "-c", script) as guard:
        own = Own("k3f9x2abqd", guard)
        (below,) = wait_until(own.look)
        wait_until(lambda: not os.path.exists(f"/proc/{below}"))

        assert own.look() == []
        assert own.has(below) is True


def test_a_container_is_the_run_from_its_first_process_on() -> None:
    script = "import subprocess; subprocess.run(['sleep', '30'])"
    with _process("sleep", "30") as guard, _process(sys.executable, "-c", script) as first:
        own = Own("k3f9x2abqd", guard)
        own.begin(first)

        wait_until(lambda: len(own.look()) == 2)
        assert own.has(own.alive[1]) is True
    assert own.look() == []


def test_what_ended_children_used_is_counted() -> None:
    busy = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    script = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {busy!r}]); time.sleep(30)"
    with _process(sys.executable, "-c", script) as guard:
        usage = Usage(guard)
        own = Own("k3f9x2abqd", guard)

        found = wait_until(
            lambda: (usage.sample(own.look())["cpu_s"] or 0) >= 0.25 and usage.sample(own.look())
        )

        assert found["cpu_s"] < 5
        assert usage.peak_memory is None or usage.peak_memory > 1 << 20
        assert found["received"] is None


def test_where_nothing_can_be_seen_nothing_is_claimed() -> None:
    usage = Usage(4_194_300)

    found = usage.sample([4_194_301])

    assert [found[name] for name in ("cpu_s", "memory", "read", "written", "received", "sent")] == [None] * 6


def test_a_look_is_cheap() -> None:
    own = Own("k3f9x2abqd", os.getpid())
    usage = Usage(os.getpid())
    begun = time.process_time()

    for _ in range(50):
        usage.sample(own.look())

    assert (time.process_time() - begun) / 50 < 0.02
