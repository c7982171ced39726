"""Scripts that do their worst to the run's folder, to their parents, or to the disk: the run still ends and says the truth."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.core.ids import new_run_id
from tests.runner.machines import Followed, Here, Place, is_alive, kill, people_of, wait_until

RUN = "import os, shutil; streams = os.environ['DRAY_STREAMS']; attempt = os.path.dirname(streams); "
RUN += "attempts = os.path.dirname(attempt); run = os.path.dirname(attempts)\n"


def _within(limit_s: float, act: Callable[[], Followed]) -> Followed:
    """What `act` gives; a failure, and not a test that hangs, when it takes too long."""
    told: list[Followed] = []
    thread = threading.Thread(target=lambda: told.append(act()), daemon=True)
    thread.start()
    thread.join(limit_s)
    assert told, "it hangs, or it failed"
    return told[0]


def _end(heard: Followed) -> tuple[str, str]:
    assert heard.end is not None
    return str(heard.end["state"]), heard.kind


@pytest.mark.parametrize(
    "worst",
    [
        "os.mkfifo(os.path.join(run, 'cancel.json'))",
        "os.symlink('/dev/zero', os.path.join(run, 'cancel.json'))",
        "open(os.path.join(run, 'cancel.json'), 'w').write('{}')",
        "open(os.path.join(run, 'cancel.json'), 'w').truncate(1 << 38)",
        "open(os.path.join(attempt, 'end.json'), 'w').truncate(1 << 38)",
        "open(os.path.join(run, 'manifest.json'), 'w').truncate(1 << 38)",
        "os.mkfifo(os.path.join(attempt, 'end.json'))",
        "open(os.path.join(attempt, 'end.json'), 'w')",
        "os.mkdir(os.path.join(attempt, 'end.json'))",
        "shutil.rmtree(attempts)",
        "shutil.rmtree(attempt); open(attempt, 'w')",
        "shutil.rmtree(streams)",
        "os.chmod(attempt, 0); os.chmod(attempts, 0); os.chmod(run, 0)",
        "os.mkdir(os.path.join(attempts, '\u00b2')); os.mkdir(os.path.join(attempts, '007'))",
        "os.unlink(os.path.join(run, 'lock'))",
        "open(os.path.join(run, 'manifest.json'), 'w').write('{\"files\": 5}')",
        "os.mkdir(os.path.join(streams, 'log.folder'))",
        "os.mkfifo(os.path.join(streams, 'log.pipe'))",
        "open(os.path.join(streams, 'a' * 200 + '.x'), 'w').write('no name for a stream')",
        "open(os.path.join(streams, 'state.jsonl'), 'a').write('[' * 100000 + '\\n')",
        "os.closerange(0, 256)",
        "os.kill(os.getppid(), 19)",
    ],
)
def test_a_script_that_does_its_worst_completes(place: Place, worst: str) -> None:
    run = place.submit(RUN + worst)

    assert _end(_within(10, lambda: place.follow(run))) == ("completed", "done")


def test_a_pattern_that_this_python_does_not_know_spoils_no_run(place: Place) -> None:
    heard = place.run("open('outputs/a', 'w'); open('b.log', 'w')", outputs=["**.pt", "*.log"])

    assert _end(heard) == ("completed", "done")
    assert [path for path, _ in heard.end["outputs"]["files"]] == ["b.log", "outputs/a"]


def test_folders_nested_deeper_than_any_path_spoil_no_run_and_can_be_removed(here: Here) -> None:
    run = here.submit("import os\nos.chdir('outputs')\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')")
    assert _end(here.follow(run)) == ("completed", "done")

    with here.connect() as connection:
        assert connection.call({"op": "remove", "run": run}) == {"removed": run}
    assert list(Path(here.root_path()).glob("*/runs/.*")) == []


def test_a_run_whose_folder_is_taken_away_is_ended(here: Here, tmp_path: Path) -> None:
    run = here.submit("import os, time\nprint(os.getpid())\ntime.sleep(300)")
    pid = int(wait_until(lambda: here.follow(run, wait=False).log))
    people = people_of(pid)

    here.folder(run).rename(tmp_path / "away")

    wait_until(lambda: not any(is_alive(one) for one in (pid, *people)))
    assert here.follow(run).other == [{"absent": run}]


def test_more_streams_than_open_files_are_all_told(here: Here) -> None:
    run = here.submit(RUN + "for i in range(400): open(f'{streams}/media.{i:016x}.png', 'w').write('x')")
    wait_until((here.folder(run) / "attempts/1/end.json").exists)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
    try:
        heard = _within(15, lambda: here.follow(run))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert sum(name.startswith("media.") for name in heard.streams) == 400


def test_a_script_that_kills_its_parent_at_once_was_started(place: Place) -> None:
    heard = place.run("", command=["sh", "-c", "kill -9 $PPID; sleep 60"], script=False)

    assert _end(heard) == ("failed", "guard-killed")


def test_a_command_that_no_program_can_be_given_cannot_start(place: Place) -> None:
    heard = place.run("", command=["echo", "a\0b"], script=False)

    assert _end(heard) == ("failed", "cannot-start")


def test_a_cancel_without_a_sensible_grace_still_ends_the_run(here: Here) -> None:
    code = (
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(300)"
    )
    run = here.submit(code)
    wait_until(lambda: here.follow(run, wait=False).log)

    with here.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": float("nan"), "by": "me"})

    assert _end(_within(10, lambda: here.follow(run))) == ("canceled", "cancelled")


# A process that forks and ends, again and again, in a session of its own each time: no list of processes is quick enough.
HOPPER = """
#include <signal.h>
#include <unistd.h>
#include <time.h>
int main(int count, char **word) {
    time_t until = time(0) + 8;
    signal(SIGTERM, SIG_IGN);
    if (fork()) return 0;
    while (time(0) < until) { if (fork()) _exit(0); setsid(); }
    execlp("touch", "touch", word[1], (char *) 0);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_daemon_that_forks_faster_than_one_can_look_is_ended(here: Here, tmp_path: Path) -> None:
    (tmp_path / "hopper.c").write_text(HOPPER)
    subprocess.run(["cc", "-o", tmp_path / "hopper", tmp_path / "hopper.c"], check=True)
    survived = tmp_path / "survived"
    began = time.monotonic()

    for _ in range(4):
        command = [str(tmp_path / "hopper"), str(survived)]
        heard = here.run("", command=command, script=False)
        assert _end(heard) == ("completed", "done")

    wait_until(lambda: time.monotonic() - began > 10, 20)
    assert not survived.exists()


# -- what both supervisors leave when they are killed


@pytest.fixture
def strays(here: Here) -> Iterator[list[int]]:
    """Pids to be ended after the test, should dray not have done it."""
    pids: list[int] = []
    yield pids
    kill(*[pid for pid in pids if is_alive(pid)])


def _kill_both(script: int) -> None:
    runner, guard = people_of(script)
    os.kill(runner, signal.SIGSTOP)  # so that none has time to notice the other's death
    kill(guard, runner)


@pytest.mark.parametrize(
    "stray",
    [
        "subprocess.Popen(['sleep', '300'], env={}, start_new_session=True)",
        "subprocess.Popen(['flock', lock, 'sleep', '300'])",
    ],
    ids=["with a cleaned environment", "that waits for the lock"],
)
def test_a_stray_is_found(here: Here, strays: list[int], stray: str) -> None:
    run = here.submit(
        RUN + f"import subprocess, sys, time; lock = run + '/lock'\n"
        f"child = {stray}\ntime.sleep(0.3)\nprint(os.getpid(), child.pid)\ntime.sleep(300)"
    )
    pids = [int(word) for word in wait_until(lambda: here.follow(run, wait=False).log).split()]
    strays += pids
    _kill_both(pids[0])

    assert _end(_within(8, lambda: here.follow(run))) == ("lost", "vanished")
    wait_until(lambda: not any(is_alive(pid) for pid in pids), 5)


def test_a_removed_lock_neither_hides_the_living_nor_the_dead(here: Here) -> None:
    code = "import time\nos.unlink(run + '/lock')\nprint(os.getpid())\ntime.sleep(300)"
    run = here.submit(RUN + code)
    pid = int(wait_until(lambda: here.follow(run, wait=False).log))
    assert here.follow(run, wait=False).end is None

    _kill_both(pid)

    assert _end(_within(8, lambda: here.follow(run))) == ("lost", "vanished")


def test_a_script_whose_start_was_not_noted_is_not_called_not_started(here: Here) -> None:
    code = "import time\nos.truncate(streams + '/state.jsonl', 0)\nprint(os.getpid())\ntime.sleep(300)"
    run = here.submit(RUN + code)
    _kill_both(int(wait_until(lambda: here.follow(run, wait=False).log)))

    assert _end(here.follow(run)) == ("lost", "vanished")


# -- secrets


def test_a_leftovers_name_tells_no_secret(place: Place) -> None:
    code = "import subprocess, os\nsubprocess.Popen(['sh', '-c', 'sleep 60; : ' + os.environ['TOKEN']])"
    run = place.submit(code, secrets={"TOKEN": "hunter2hunter2"})
    heard = place.follow(run)

    assert heard.end is not None
    assert heard.end["leftovers"]
    assert "hunter2" not in json.dumps(heard.end)


def test_a_secret_said_by_two_processes_is_masked(place: Place) -> None:
    code = (
        "import os, sys, time\nsecret = os.environ['TOKEN']\nsys.stdout.write(secret[:7]); sys.stdout.flush()\n"
        "if os.fork() == 0:\n    time.sleep(0.3); print(secret[7:], flush=True)\nos._exit(0)"
    )
    heard = place.follow(place.submit(code, secrets={"TOKEN": "hunter2hunter2"}))

    assert heard.log == b"***\n"


def test_the_last_words_of_a_leftover_are_there_before_the_end(place: Place) -> None:
    code = (
        "import os, signal, sys, time\n"
        "if os.fork() == 0:\n"
        "    def last(*_):\n        os.write(1, b'x' * 60000 + b'end'); os._exit(0)\n"
        "    signal.signal(15, last); time.sleep(60)\nos._exit(0)"
    )
    heard = place.follow(place.submit(code, secrets={"TOKEN": "hunter2hunter2"}))

    assert heard.log.endswith(b"end")


# -- full disks


FILL = """
import os, time
file = open("outputs/big", "wb", 0)
def fill():
    size = 1 << 20
    while size:
        try: file.write(b"x" * size)
        except OSError: size //= 2
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Here]:
    """A machine whose disk holds 24 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], check=True)
    yield Here(disk)
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_run_that_has_filled_the_disk_can_be_cancelled(small: Here) -> None:
    run = small.submit(FILL + "while True: fill(); time.sleep(0.001)")
    wait_until(lambda: "running" in small.follow(run, wait=False).states)
    wait_until(lambda: os.statvfs(small.root_path()).f_bavail < 16)

    with small.connect() as connection:
        answer = connection.call({"op": "cancel", "run": run, "grace": 1, "by": "me"})

    assert answer == {"cancelling": run}
    assert _end(_within(15, lambda: small.follow(run))) == ("canceled", "cancelled")


def test_an_end_with_many_files_is_told_on_a_full_disk(small: Here) -> None:
    run = small.submit(FILL + "for i in range(900): open(f'outputs/{i:0200}', 'w')\nfill()")
    heard = _within(15, lambda: small.follow(run))

    assert _end(heard) == ("completed", "done")
    assert heard.end is not None
    assert heard.end["outputs"]["count"] == 901


def test_a_full_disk_does_not_end_a_run_with_secrets(small: Here) -> None:
    code = FILL + "fill(); print('x' * 100000, flush=True); time.sleep(0.2)"
    heard = small.follow(small.submit(code, secrets={"TOKEN": "hunter2hunter2"}))

    assert _end(heard) == ("completed", "done")
    assert b"full" in heard.streams["state.jsonl"]


def test_a_script_that_empties_its_log_is_told_so(place: Place) -> None:
    words = "echo before; sleep 0.5; echo after > /dev/stderr; sleep 0.5"
    heard = place.run("", command=["sh", "-c", words], script=False)

    assert b"emptied its own log" in heard.streams["state.jsonl"]


# -- the channel


def test_many_blobs_after_one_that_was_refused_fill_no_channel(here: Here) -> None:
    blobs = {hashlib.sha256(b"%d" % i).hexdigest(): b"damaged" for i in range(40000)}
    rows = [[f"f{i}", digest, 7, 0] for i, digest in enumerate(blobs)]
    spec = {"id": new_run_id(), "token": "t", "command": ["true"], "script": False}
    told: list[Any] = []

    def hand_over() -> None:
        with here.connect() as connection:
            try:
                here.hand_over(connection, spec, {"v": 1, "files": rows, "links": [], "dirs": []}, blobs)
            except Exception as refused:
                told.append(refused)

    thread = threading.Thread(target=hand_over, daemon=True)
    thread.start()
    thread.join(20)
    assert "damaged" in str(told[0])


def test_an_empty_blob_of_a_power_cut_is_asked_for_again(here: Here) -> None:
    code = "print('whole')"
    here.run(code)
    digest = hashlib.sha256(code.encode()).hexdigest()
    (blob,) = Path(here.root_path()).glob(f"*/blobs/{digest[:2]}/{digest[2:]}")
    blob.chmod(0o600)
    blob.write_bytes(b"")

    assert here.run(code).log == b"whole\n"


def test_one_ruined_run_hides_no_other(here: Here) -> None:
    good, bad = here.submit("print(1)"), here.submit("print(2)")
    for run in (good, bad):
        assert _end(here.follow(run)) == ("completed", "done")
    end = here.folder(bad) / "attempts/1/end.json"
    end.unlink()
    (here.folder(bad) / "run.json").write_text('{"spec": 5, "machine": []}')

    with here.connect() as connection:
        connection.ask({"op": "look", "runs": {bad: {}, good: {}}})
        heard: list[dict[str, Any]] = []
        while not heard or "done" not in heard[-1]:
            heard.append(connection.receive()[0])

    assert any(frame.get("run") == good and "end" in frame for frame in heard)
