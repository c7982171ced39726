"""Full disks, lost histories, memory that runs out, clocks that jump: what a run says of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.machines import is_alive, kill, people_of
from tests.workspace.test_killed_clients import essence
from tests.workspace.worlds import SmallDisk, World, wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "small", 12)
    yield disk
    disk.unmount()


def test_a_full_disk_below_the_run_is_told_and_the_end_is_known(world: World, small_disk: SmallDisk) -> None:
    world.home.mkdir()
    (world.home / "machine").symlink_to(small_disk.folder)
    world.write("flood.py", "import sys\nwhile True: sys.stdout.write('x' * 99 + '\\n')")

    said = world.dray("submit", "flood.py")

    assert said.code == 1, said
    shown = world.show()
    assert (shown["status"], shown["reason"]["kind"]) == ("failed", "exit-code")
    assert "disk of the run folder is full" in " ".join(shown["notes"])
    log = world.dray("logs", "@last").out
    assert len(log) > 5_000_000
    assert set(log.split(b"\n")[:-1]) <= {b"x" * 99}


def test_a_full_disk_below_the_history_loses_nothing(
    world: World, small_disk: SmallDisk, tmp_path: Path
) -> None:
    machine = tmp_path / "large"
    machine.mkdir()
    world.home = small_disk.folder / "home"
    world.home.mkdir()
    (world.home / "machine").symlink_to(machine)
    world.write("talk.py", "import dray\nfor i in range(20000): print('line', i); dray.log(x=i, step=i)")
    run = world.dray("submit", "-d", "talk.py").out.decode().strip()
    wait_until(lambda: list(machine.glob(f"*/runs/{run}/attempts/1/end.json")))
    small_disk.fill()

    full = world.dray("logs", run)
    assert full.code != 0
    assert "disk" in full.err, full
    assert "Traceback" not in full.err

    small_disk.empty()
    assert world.dray("logs", run).out == b"".join(b"line %d\n" % i for i in range(20000))
    assert essence(world, run)["metrics"]["x"][1] == [float(i) for i in range(20000)]


def test_a_full_disk_at_submit_starts_nothing(world: World, small_disk: SmallDisk) -> None:
    world.home = small_disk.folder / "home"
    world.write("hello.py", "print('hello')")
    assert world.dray("submit", "hello.py").code == 0
    small_disk.fill()

    said = world.dray("submit", "hello.py")
    assert said.code != 0
    assert "disk" in said.err or "space" in said.err, said
    assert "Traceback" not in said.err

    small_disk.empty()
    assert world.dray("submit", "hello.py").out == b"hello\n"
    assert [run["status"] for run in world.runs() if run["status"] == "completed"] == ["completed"] * 2


def test_a_deleted_history_is_made_again_from_the_run_folders(world: World) -> None:
    world.write(
        "good.py",
        "import dray\nfor i in range(500): dray.log(loss=1/(i+1), step=i); print(i)\ndray.tag(a='b')",
    )
    world.write("bad.py", "import dray; dray.log_params(x=1); raise SystemExit(3)")
    world.dray("submit", "--name", "first", "--experiment", "e", "--tag", "k=v", "good.py", "--lr", "1")
    world.dray("submit", "bad.py")
    world.dray("submit", "--timeout", "0.3s", "--", "sleep", "30")
    words = "id name experiment compute command created started ended host snapshot environment git folder attempts"
    kept = [*words.split(), "submitted_by", "duration_s", "leftovers"]
    before = {
        r["id"]: ({k: world.show(r["id"])[k] for k in kept}, essence(world, r["id"])) for r in world.runs()
    }
    assert len(before) == 3

    for path in world.home.glob("history.db*"):
        path.unlink()
    shutil.rmtree(world.home / "logs")
    assert "3 run folders are not in the history: dray rebuild" in world.dray("runs").err
    assert "dray rebuild" in world.dray("doctor").out.decode()
    said = world.dray("rebuild")

    assert said.code == 0, said
    after = {
        r["id"]: ({k: world.show(r["id"])[k] for k in kept}, essence(world, r["id"])) for r in world.runs()
    }
    assert after == before
    assert world.show("first")["tags"] == {"k": "v", "a": "b"}


def test_a_damaged_history_is_set_aside_and_made_again(world: World) -> None:
    world.write("hello.py", "print('hello')")
    world.dray("submit", "hello.py")
    for path in world.home.glob("history.db-*"):
        path.unlink()
    (world.home / "history.db").write_bytes(b"this is no database" * 100)

    said = world.dray("runs")
    assert said.code != 0
    assert "dray rebuild" in said.err
    assert world.dray("rebuild").code == 0
    assert world.dray("logs").out == b"hello\n"


_MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.mark.skipif(
    not os.access(_MEMORY / "cgroup.procs", os.W_OK),
    reason="needs a memory cgroup (v1) that may be written to",
)
def test_out_of_memory_is_told_from_a_plain_kill(world: World) -> None:
    world.write("hungry.py", "x = []\nwhile True: x.append(bytearray(1 << 20))")
    group = _MEMORY / f"dray-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(200 << 20))
        inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        import sys

        words = [*inside, sys.executable, "-m", "dray", "submit", "-d", "hungry.py"]
        made = subprocess.run(
            words, cwd=world.project, env=world.env, capture_output=True, check=False, timeout=60
        )
        assert made.returncode == 0, made.stderr
        assert world.dray("wait", "@last").code == 128 + 9
        shown = world.show()
        assert (shown["status"], shown["reason"]["kind"], shown["signal"]) == ("failed", "out-of-memory", 9)
        assert "out of memory" in shown["reason"]["text"]
    finally:

        def gone() -> bool:
            with contextlib.suppress(OSError):
                group.rmdir()
            return not group.exists()

        wait_until(gone)


def test_a_killed_script_is_no_memory_trouble(world: World) -> None:
    world.write("suicide.py", "import os; os.kill(os.getpid(), 9)")
    assert world.dray("submit", "suicide.py").code == 137
    assert world.show()["reason"]["kind"] == "signal"


def test_cancel_of_a_run_that_is_still_on_its_way(world: World) -> None:
    """A client that was stopped in the middle of its submit wakes up too late."""
    world.write("hello.py", "print('hello')")
    for size in range(40):
        world.write(f"big/{size}.bin", "x" * 1_000_000 + str(size))
    client = world.start("submit", "hello.py")
    try:
        wait_until(lambda: (world.home / "history.db").exists() and world.runs())
        os.kill(client.pid, signal.SIGSTOP)
        run = world.runs()[0]
        said = world.dray("cancel", run["id"])
        assert said.code == 0, said
    finally:
        os.kill(client.pid, signal.SIGCONT)
        client.communicate(timeout=60)
    wait_until(lambda: world.show(run["id"])["status"] in ("canceled", "completed"))
    if run["status"] == "created":
        assert world.show(run["id"])["status"] == "canceled"


def test_a_clock_that_jumps_back_reorders_nothing(world: World) -> None:
    # The script's own clock, as its points see it, jumps an hour back in the middle.
    code = """
import time
import dray
real = time.time
dray.log(x=1, step=0)
time.time = lambda: real() - 3600
import dray.tracking
for i in range(1, 5): dray.log(x=i + 1, step=i)
"""
    world.write("jump.py", code)
    assert world.dray("submit", "jump.py").code == 0
    steps, values = essence(world, "@last")["metrics"]["x"]
    assert steps == [0, 1, 2, 3, 4]
    assert values == [1.0, 2.0, 3.0, 4.0, 5.0]


_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The clock on the wall is off by as many seconds as stand in the file $CLOCK_OFF; a stop-watch is not. */
int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, now);
    const char *name = getenv("CLOCK_OFF");
    FILE *file = which == CLOCK_REALTIME && name ? fopen(name, "re") : NULL;
    long off = 0;
    if (file && fscanf(file, "%ld", &off) == 1) now->tv_sec += off;
    if (file) fclose(file);
    return failed;
}
"""


@pytest.mark.parametrize("off", [-7200, 7200])
def test_a_machine_whose_clock_jumps_measures_and_limits_by_a_stop_watch(
    world: World, tmp_path: Path, off: int
) -> None:
    (tmp_path / "clock.c").write_text(_CLOCK)
    shim, offset = tmp_path / "clock.so", tmp_path / "off"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, tmp_path / "clock.c", "-ldl"], check=True)
    offset.write_text("0")
    jumping = {"LD_PRELOAD": str(shim), "CLOCK_OFF": str(offset)}
    code = f"""
import dray, time
for i in range(10):
    if i == 5: before = time.time(); open({str(offset)!r}, "w").write("{off}"); print(round(time.time() - before, -2))
    dray.log(x=i, step=i); time.sleep(0.1)
time.sleep(60 * ("for-ever" in __import__("sys").argv))
"""
    world.write("jump.py", code)

    done = world.dray("submit", "--timeout", "1m", "jump.py", env=jumping)

    assert (done.code, float(done.out)) == (0, off), (
        done
    )  # the script saw its clock jump, and was not ended for it
    shown = world.show()
    assert 1.0 <= shown["duration_s"] < 30
    assert essence(world, "@last")["metrics"]["x"] == (list(range(10)), [float(i) for i in range(10)])

    offset.write_text("0")
    began = time.monotonic()
    ended = world.dray("submit", "--timeout", "2s", "jump.py", "for-ever", env=jumping)
    assert ended.code == 124, ended
    assert 2 <= time.monotonic() - began < 30
    assert 2 <= world.show()["duration_s"] < 30


def test_no_command_calls_a_run_of_an_earlier_boot_running(world: World) -> None:
    world.write("sleep.py", "import os, time; print(os.getpid(), flush=True); time.sleep(300)")
    run = world.dray("submit", "-d", "sleep.py").out.decode().strip()
    pid = int(wait_until(lambda: world.dray("logs", run).out))
    assert world.show(run)["status"] == "running"
    runner, guard = people_of(pid)
    os.kill(runner, signal.SIGSTOP)  # so that none has time to notice the other's death
    kill(guard, runner)
    # The folder as a machine that was rebooted since finds it.
    (file,) = (world.home / "machine").glob(f"*/runs/{run}/run.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "boot": "00000000-an-earlier-boot"}))

    said = world.dray("runs")

    assert b"running" not in said.out
    assert b"lost" in said.out
    shown = world.show(run)
    assert (shown["status"], shown["reason"]["kind"]) == ("lost", "host-rebooted")
    assert world.dray("follow", run).code != 0
    if is_alive(pid):  # a reboot would have ended it
        kill(pid)


def test_twenty_clients_read_one_run(world: World) -> None:
    world.write(
        "slow.py", "import dray, time\nfor i in range(200): print(i); dray.log(x=i); time.sleep(0.01)"
    )
    run = world.dray("submit", "-d", "slow.py").out.decode().strip()
    words = [["follow", run], ["logs", "-f", run], ["runs", "--json"], ["metrics", run, "--json"]] * 5
    clients = [world.start(*word) for word in words]
    said = [
        (word, *client.communicate(timeout=90), client.returncode)
        for word, client in zip(words, clients, strict=True)
    ]
    for word, out, err, code in said:
        assert code == 0, (word, err)
        if word[0] in ("follow", "logs"):
            assert out == b"".join(b"%d\n" % i for i in range(200)), word
    assert essence(world, run)["metrics"]["x"][1] == [float(i) for i in range(200)]


def _processes_logging(world: World, processes: int, points: int) -> None:
    code = f"""
import os, dray
for rank in range({processes}):
    if os.fork() == 0:
        for i in range({points}): dray.log({{"loss%d" % rank: i * 0.5}}, step=i)
        os._exit(0)
for _ in range({processes}): os.wait()
"""
    world.write("many.py", code)
    said = world.dray("submit", "many.py")
    assert said.code == 0, said
    metrics = essence(world, "@last")["metrics"]
    assert len(metrics) == processes
    for steps, values in metrics.values():
        assert steps == list(range(points))
        assert values == [i * 0.5 for i in range(points)]


def test_processes_that_log_at_once(world: World) -> None:
    _processes_logging(world, 4, 5_000)


@pytest.mark.timeout(300)
def test_8_processes_that_log_100000_points_each(world: World) -> None:
    _processes_logging(world, 8, 100_000)


def test_a_garbled_line_hides_nothing(world: World) -> None:
    code = """
import dray, glob, os
dray.log(x=1, step=1)
(events,) = glob.glob(os.environ["DRAY_STREAMS"] + "/events.*")
with open(events, "ab", buffering=0) as file:
    file.write(b'{"v":1,"seq":9,"t":1,"ty\\xff\\n\\n[1,2]\\n{"v":1}\\n')
dray.log(x=2, step=2)
with open(events, "ab", buffering=0) as file:
    file.write(b'{"v":1,"torn')
"""
    world.write("garble.py", code)
    assert world.dray("submit", "garble.py").code == 0
    assert essence(world, "@last")["metrics"]["x"] == ([1, 2], [1.0, 2.0])


def test_an_ended_run_takes_no_time_to_look_at(world: World) -> None:
    world.write("hello.py", "print('hello')")
    world.dray("submit", "hello.py")
    shutil.rmtree(world.home / "machine")  # whoever asked the machine now would notice

    began = time.monotonic()
    assert world.dray("logs").out == b"hello\n"
    assert world.dray("follow").code == 0
    assert time.monotonic() - began < 10


def test_a_log_on_this_machine_is_shared_and_not_copied(world: World) -> None:
    world.write("talk.py", "print('x' * 100_000)")
    world.dray("submit", "talk.py")
    run = world.show()["id"]
    (theirs,) = (world.home / "machine").glob(f"*/runs/{run}/attempts/1/streams/log.script")
    ours = world.home / "logs" / run / "1" / "log.script"
    assert ours.samefile(theirs)

    shutil.rmtree(world.home / "machine")  # and yet the history keeps it
    assert world.dray("logs").out == b"x" * 100_000 + b"\n"


def test_a_log_on_another_disk_is_copied(world: World, small_disk: SmallDisk) -> None:
    world.home.mkdir()
    (world.home / "machine").symlink_to(small_disk.folder)
    world.write("talk.py", "print('x' * 100_000)")
    assert world.dray("submit", "talk.py").out == b"x" * 100_000 + b"\n"
    assert world.dray("logs").out == b"x" * 100_000 + b"\n"
