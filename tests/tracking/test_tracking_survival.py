"""What was logged stays, whatever happens to the script, its threads, its children and its disk."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking.tracked import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_returned_survives_a_kill_right_after(world: World) -> None:
    for count in (1, 2, 50):
        process = world.start(
            "import dray, os, signal\n"
            f"for i in range({count}): dray.log(loss=i, step=i)\n"
            "os.kill(os.getpid(), signal.SIGKILL)"
        )
        process.communicate(timeout=20)
        assert process.returncode == -signal.SIGKILL

    kept = sorted(len(events) - 1 for events in world.events().values())
    assert kept == [1, 2, 50]


def test_a_kill_at_any_moment_tears_at_most_the_last_line(world: World) -> None:
    process = world.start(
        "import dray\nprint('go', flush=True)\nfor i in range(10**9): dray.log(loss=i, step=i)"
    )
    assert process.stdout is not None
    process.stdout.readline()
    threading.Event().wait(0.3)  # the moment is arbitrary; what must hold holds at each

    process.kill()
    process.communicate(timeout=20)

    (stream,) = world.streams.iterdir()
    lines = stream.read_bytes().split(b"\n")[:-1]
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) > 100


def test_a_forked_child_writes_a_stream_of_its_own(world: World) -> None:
    world.run(
        "import dray, os\n"
        "dray.log(who=0)\n"
        "for n in (1, 2):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        dray.log(who=n); dray.log(who=n)\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
        "dray.log(who=0)"
    )

    written = [[e["data"]["values"]["who"] for e in events[1:]] for events in world.events().values()]
    assert sorted(written) == [[0, 0], [1, 1], [2, 2]]
    assert len({events[0]["data"]["pid"] for events in world.events().values()}) == 3


def test_a_fork_while_other_threads_log_neither_hangs_nor_mixes(world: World) -> None:
    world.run(
        "import dray, os, threading\n"
        "stop = threading.Event()\n"
        "def work():\n"
        "    while not stop.is_set(): dray.log(parent=1)\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "for t in threads: t.start()\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "for n in range(20):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        dray.log(child=n)\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
        "stop.set()\n"
        "for t in threads: t.join()"
    )

    streams = world.events()
    assert len(streams) == 21
    for events in streams.values():
        assert len({name for e in events[1:] for name in e["data"]["values"]}) == 1


def test_threads_share_one_stream_in_one_order(world: World) -> None:
    world.run(
        "import dray, threading\n"
        "def work(n):\n"
        "    for i in range(2000): dray.log({'t%d' % n: i}, step=i)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()"
    )

    (events,) = world.events().values()
    assert [e["seq"] for e in events] == list(range(1, 16_002))
    for n in range(8):
        own = [e["data"]["step"] for e in events[1:] if f"t{n}" in e["data"]["values"]]
        assert own == list(range(2000))


def test_a_signal_handler_may_log_while_the_script_logs(world: World) -> None:
    world.run(
        "import dray, signal\n"
        "hits = []\n"
        "def handler(*_): hits.append(1); dray.log(hit=len(hits))\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)\n"
        "n = 0\n"
        "while len(hits) < 100: dray.log(main=n); n += 1\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "dray.log(hits=len(hits), mains=n)"
    )

    found: dict[str, list[int]] = {}
    for events in world.events().values():
        numbers = [e["seq"] for e in events]
        assert numbers == sorted(set(numbers))
        for event in events[1:]:
            for name, value in event["data"]["values"].items():
                found.setdefault(name, []).append(value)
    assert sorted(found["hit"]) == list(range(1, found["hits"][0] + 1))
    assert found["main"] == list(range(found["mains"][0]))


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_eight_processes_lose_nothing(world: World, count: int) -> None:
    code = f"import dray\nfor i in range({count}): dray.log(loss=i / 7, step=i)"
    processes = [world.start(code) for _ in range(8)]
    for process in processes:
        process.communicate(timeout=110)

    streams = world.events()
    assert len(streams) == 8
    for events in streams.values():
        assert [(e["data"]["step"], e["data"]["values"]["loss"]) for e in events[1:]] == [
            (i, i / 7) for i in range(count)
        ]


def test_a_script_that_closes_all_files_goes_on_in_a_new_one(world: World) -> None:
    _, err = world.run(
        "import dray, os\n"
        "dray.log(a=1)\n"
        "os.closerange(3, 4096)\n"
        "mine = open('mine.txt', 'w')\n"
        "dray.log(a=2); dray.log(a=3)\n"
        "mine.write('hello'); mine.close()"
    )

    written = sorted([e["data"]["values"]["a"] for e in events[1:]] for events in world.events().values())
    assert written == [[1], [2, 3]]
    assert (world.folder / "mine.txt").read_text() == "hello"
    assert err.count("\n") == 1


def test_a_started_program_does_not_inherit_the_file(world: World) -> None:
    out, _ = world.run(
        "import dray, os, sys\n"
        "dray.log(a=1)\n"
        "sys.stdout.flush()\n"
        "os.execv('/bin/sh', ['sh', '-c', 'ls -l /proc/self/fd'])"
    )

    assert "events." not in out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_costs_one_sentence_and_what_did_not_fit(world: World, small_disk: Path) -> None:
    code = (
        "import dray, os\n"
        "disk = os.environ['DRAY_STREAMS']\n"
        "dray.log(i=-1)\n"
        "with open(disk + '/ballast', 'wb') as f: f.write(b'x' * 40_000)\n"
        "for i in range(2000): dray.log(i=i)\n"
        "dray.log_image('cm', b'\\x89PNG\\r\\n\\x1a\\n' + b'x' * 30_000)\n"
        "os.unlink(disk + '/ballast')\n"
        "for i in range(2000, 2010): dray.log(i=i)"
    )

    _, err = world.run(code, DRAY_STREAMS=str(small_disk))

    (stream,) = [p for p in small_disk.iterdir() if p.name != "ballast"]
    kept, torn = [], 0
    for line in stream.read_text().splitlines():
        try:
            kept.append(json.loads(line))
        except ValueError:
            torn += 1
    values = [e["data"]["values"]["i"] for e in kept[1:]]
    assert values[-10:] == list(range(2000, 2010))
    assert values[:-10] == list(range(-1, len(values) - 11))
    assert torn <= 1
    assert kept[-1]["seq"] - len(kept) == 2000 - (len(values) - 11)
    assert [line for line in err.splitlines() if "No space left" in line] == err.splitlines()
    assert len(err.splitlines()) == 2  # one for the points, one for the picture


def test_a_disk_that_is_full_from_the_start_leaves_no_half_stream(world: World, small_disk: Path) -> None:
    out, err = world.run(
        "import dray, os, time\n"
        "disk = os.environ['DRAY_STREAMS']\n"
        "try:\n"
        "    with open(disk + '/ballast', 'wb') as f: f.write(b'x' * 10**6)\n"
        "except OSError: pass\n"
        "for i in range(10): dray.log(i=i)\n"
        "print(sorted(os.listdir(disk)))\n"
        "os.unlink(disk + '/ballast')\n"
        "time.sleep(1.1)\n"
        "dray.log(i=99)",
        DRAY_STREAMS=str(small_disk),
    )

    (stream,) = small_disk.iterdir()
    first, second = (json.loads(line) for line in stream.read_text().splitlines())
    assert out == "['ballast']\n"
    assert (first["type"], second["data"]["values"]) == ("opened", {"i": 99})
    assert err.count("\n") == 1


@pytest.fixture
def foreign_folder() -> Iterator[Path]:
    """A folder that nobody may write to; not below pytest's own, which other users cannot enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    yield folder
    folder.rmdir()


def test_a_folder_that_may_not_be_written_costs_one_sentence(world: World, foreign_folder: Path) -> None:
    out, err = world.run(
        "import dray, os; os.getuid() == 0 and os.setresuid(65534, 65534, 65534)\n"
        "dray.log(a=1); dray.log(a=2); dray.tag(a='b'); print('on')",
        DRAY_STREAMS=str(foreign_folder),
    )

    assert out == "on\n"
    assert err.count("\n") == 1
    assert "Permission denied" in err


def test_a_closed_stderr_is_no_reason_to_fail(world: World) -> None:
    out, _ = world.run(
        "import dray, sys; sys.stderr.close(); dray.log(a=None, b=1); sys.stderr = None; print('on')"
    )

    assert out == "on\n"
    assert world.only("metrics") == [{"step": None, "values": {"b": 1}}]
