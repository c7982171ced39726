"""kill -9 of everyone concerned, and what the run says afterwards."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.runner.machines import Here, Place, is_alive, kill, people_of, wait_until

# Prints its own pid, a child's, and a daemon's; then waits for ever.
FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    pid = os.fork()
    if pid:
        os.write(write, str(pid).encode())
        os._exit(0)
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(300)
os.wait()
print(os.getpid(), child.pid, os.read(read, 20).decode())
time.sleep(300)
"""


def _family(place: Place) -> tuple[str, list[int]]:
    run = place.submit(FAMILY)
    log = wait_until(lambda: place.follow(run, wait=False).log)
    return run, [int(word) for word in log.split()]


def test_killing_the_runner_ends_the_run_and_the_guard_says_so(place: Place) -> None:
    run, pids = _family(place)
    runner, guard = people_of(pids[0])
    kill(runner)

    began = time.monotonic()
    heard = place.follow(run)
    assert time.monotonic() - began < 5
    assert (heard.end["state"], heard.kind, heard.end["by"]) == ("failed", "runner-killed", "guard")
    wait_until(lambda: not any(is_alive(pid) for pid in [*pids, guard]), 5)


def test_killing_the_guard_ends_the_run_and_the_runner_says_so(place: Place) -> None:
    run, pids = _family(place)
    runner, guard = people_of(pids[0])
    kill(guard)

    began = time.monotonic()
    heard = place.follow(run)
    assert time.monotonic() - began < 5
    assert (heard.end["state"], heard.kind, heard.end["by"]) == ("failed", "guard-killed", "runner")
    wait_until(lambda: not any(is_alive(pid) for pid in [*pids, runner]), 5)


def test_killing_both_at_once_is_told_by_the_next_visitor(place: Place) -> None:
    run, pids = _family(place)
    os.kill(people_of(pids[0])[0], signal.SIGSTOP)  # so that none has time to notice the other's death
    runner, guard = people_of(pids[0])
    kill(guard, runner)

    began = time.monotonic()
    heard = place.follow(run)
    assert time.monotonic() - began < 5
    assert (heard.end["state"], heard.kind, heard.end["by"]) == ("lost", "vanished", "visitor")
    assert heard.log.startswith(str(pids[0]).encode())
    wait_until(lambda: not any(is_alive(pid) for pid in pids), 5)


def test_two_visitors_agree(here: Here) -> None:
    run, pids = _family(here)
    runner, guard = people_of(pids[0])
    os.kill(runner, signal.SIGSTOP)
    kill(guard, runner)

    ends = [here.follow(run).end for _ in range(2)]

    assert ends[0] == ends[1]


def test_a_reboot_is_told_as_such(here: Here) -> None:
    run, pids = _family(here)
    runner, guard = people_of(pids[0])
    os.kill(runner, signal.SIGSTOP)
    kill(guard, runner)
    wait_until(lambda: not is_alive(guard) and not is_alive(runner))
    # The folder as a machine that was rebooted since finds it.
    file = here.folder(run) / "run.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, "boot": "00000000-an-earlier-boot"}))

    heard = here.follow(run)
    assert (heard.end["state"], heard.kind) == ("lost", "host-rebooted")
    kill(*[pid for pid in pids if is_alive(pid)])


def test_another_machines_run_is_not_judged(here: Here) -> None:
    run, pids = _family(here)
    runner, guard = people_of(pids[0])
    os.kill(runner, signal.SIGSTOP)
    kill(guard, runner)
    wait_until(lambda: not is_alive(guard) and not is_alive(runner))
    file = here.folder(run) / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "machine": "another"}))

    assert here.follow(run, wait=False).end is None
    kill(*[pid for pid in pids if is_alive(pid)])


def test_a_script_that_ended_before_the_runner_died_keeps_its_own_end(here: Here, tmp_path: Path) -> None:
    go = tmp_path / "go"
    run = here.submit(
        f"import os, time\nprint(os.getpid())\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    )
    pid = int(wait_until(lambda: here.follow(run, wait=False).log))
    runner, _ = people_of(pid)
    os.kill(runner, signal.SIGSTOP)
    go.touch()
    wait_until(lambda: not is_alive(pid))
    time.sleep(0.2)  # the guard's own time to hear of it; nothing to be seen from outside
    kill(runner)

    heard = here.follow(run)
    assert (heard.end["state"], heard.kind, heard.end["code"], heard.end["by"]) == (
        "completed",
        "done",
        0,
        "guard",
    )


def test_a_runner_killed_while_it_prepares_is_a_run_not_started(here: Here) -> None:
    # An environment that cannot be ready soon: its lock is held by us.
    import fcntl

    wanted: dict[str, Any] = {"packages": [], "python": None, "digest": "d" * 64}
    first = here.follow(here.submit("", environment=wanted))
    assert first.end is not None
    (lock,) = Path(here.root_path()).glob("*/environments/*.lock")
    complete = lock.with_name(lock.name.removesuffix(".lock")) / "complete"
    complete.unlink(missing_ok=True)
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run = here.submit("print('never')", environment=wanted)
        wait_until(lambda: b"waiting for it" in here.follow(run, wait=False).streams.get("state.jsonl", b""))
        runners = [p for p in _holders(here.folder(run) / "lock") if _children(p)]  # its guard has none yet
        kill(*runners)
        heard = here.follow(run)

    assert (heard.end["state"], heard.kind) == ("failed", "not-started")
    assert heard.log == b""


def test_cancel_works_while_preparing(here: Here) -> None:
    import fcntl

    wanted: dict[str, Any] = {"packages": [], "python": None, "digest": "e" * 64}
    here.follow(here.submit("", environment=wanted))
    (lock,) = Path(here.root_path()).glob("*/environments/*.lock")
    (lock.with_name(lock.name.removesuffix(".lock")) / "complete").unlink(missing_ok=True)
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run = here.submit("print('never')", environment=wanted)
        wait_until(lambda: b"waiting for it" in here.follow(run, wait=False).streams.get("state.jsonl", b""))
        with here.connect() as connection:
            connection.call({"op": "cancel", "run": run, "grace": 1, "by": "me"})
        heard = here.follow(run)

    assert (heard.end["state"], heard.kind) == ("canceled", "cancelled")


def _holders(lock: Path) -> list[int]:
    """Processes that have the lock file open."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and str(lock) in _files_of(name)]


def _files_of(pid: str) -> list[str]:
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
