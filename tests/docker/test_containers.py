"""A run in a container is a run like any other: its log, its numbers, its outputs, its end."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.dray_shell import Shell, wait_until
from tests.docker.world import BASE, Docker, require


def shown(shell: Shell, run: str = "@last") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell.dray("show", run, "--json").stdout)
    return found


def test_a_script_runs_in_the_image_that_was_named(shell: Shell) -> None:
    shell.write("train.py", "import os, dray\nprint(os.getcwd())\ndray.log(loss=0.25)\n"
                            "open('outputs/model.txt', 'w').write('good')\n")  # fmt: skip

    done = shell.dray("submit", "--image", BASE, "train.py")

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"/dray/code\n"
    run = shown(shell)
    assert run["metrics"]["loss"]["value"] == 0.25
    assert run["outputs"] == [{"path": "model.txt", "bytes": 4}]
    assert run["environment"]["version"].startswith("3.11")
    assert run["environment"]["container"]["id"].startswith("sha256:")


def test_the_line_that_show_gives_does_the_same_without_dray(shell: Shell, docker: Docker) -> None:
    shell.write("hello.py", "import sys\nprint('hello', sys.argv[1:])\n")
    assert shell.dray("submit", "--image", BASE, "hello.py", "a b", "it's").returncode == 0

    line = shown(shell)["environment"]["container"]["line"]

    assert line in shell.dray("show").stdout.decode()
    again = subprocess.run(
        shlex.split(line), env={**os.environ, **shell.env}, capture_output=True, check=False
    )
    assert again.stdout == b"hello ['a b', \"it's\"]\n", again.stderr


@pytest.mark.parametrize(
    ("code", "state", "kind", "ends_with"),
    [
        ("raise SystemExit(3)", "failed", "exit-code", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "failed", "signal", 139),
        ("", "completed", "done", 0),
    ],
)
def test_the_end_is_the_scripts_own(shell: Shell, code: str, state: str, kind: str, ends_with: int) -> None:
    shell.write("s.py", code)

    done = shell.dray("submit", "--image", BASE, "s.py")

    assert done.returncode == ends_with, done.stderr.decode()
    run = shown(shell)
    assert (run["status"], run["reason"]["kind"]) == (state, kind)


def test_out_of_memory_is_told_with_the_limit(shell: Shell) -> None:
    shell.write("greedy.py", "x = []\nwhile True: x.append(bytearray(10**7))\n")

    done = shell.dray("submit", "--image", BASE, "--memory", "64MB", "greedy.py")

    assert done.returncode == 137
    reason = shown(shell)["reason"]
    assert reason["kind"] == "out-of-memory"
    assert "limit is 64 MB" in reason["text"]


def test_a_command_that_is_not_in_the_image_is_told(shell: Shell) -> None:
    done = shell.dray("submit", "--image", BASE, "--", "no-such-program", "x")

    assert done.returncode == 125
    assert b"`no-such-program` was not found in the image" in done.stderr


def test_secrets_are_in_no_list_of_processes_and_in_nothing_that_the_engine_keeps(
    shell: Shell, docker: Docker
) -> None:
    shell.write("s.py", "import os, time\nprint('got', os.environ['TOKEN'])\ntime.sleep(60)")
    secret = "it's a $ecret\nof two lines"

    done = shell.dray("submit", "-d", "--image", BASE, "--secret", "TOKEN", "s.py", env={"TOKEN": secret})
    run = done.stdout.decode().strip()
    wait_until(lambda: b"got" in shell.dray("logs", run).stdout)

    assert shell.dray("logs", run).stdout == b"got ***\n"
    assert "$ecret" not in json.dumps(docker.inspect(run))
    everywhere = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, check=True).stdout
    assert b"$ecret" not in everywhere
    kept = subprocess.run(
        ["grep", "-rl", "of two lines", docker.folder / "data/containers", shell.home],
        capture_output=True,
        check=False,
    )
    assert kept.stdout == b""
    shell.dray("cancel", run, "--grace", "1")
    wait_until(lambda: shown(shell, run)["status"] == "canceled")


def test_a_cancelled_container_may_tidy_up(shell: Shell) -> None:
    shell.write("s.py", "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (print('tidy'), sys.exit(0)))\n"
                        "print('up')\ntime.sleep(100)")  # fmt: skip
    run = shell.detached("--image", BASE, "s.py")
    wait_until(lambda: shell.dray("logs", run).stdout == b"up\n")

    shell.dray("cancel", run)

    wait_until(lambda: shown(shell, run)["status"] == "canceled")
    assert shell.dray("logs", run).stdout == b"up\ntidy\n"


def _people(run: str) -> list[tuple[int, str]]:
    """The processes outside of the container that look after the run."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                links = {os.readlink(f"/proc/{name}/fd/{fd}") for fd in os.listdir(f"/proc/{name}/fd")}
            except OSError:
                continue
            if any(f"/runs/{run}/lock" in link for link in links):
                found.append((int(name), line))
    return sorted(found)


def _engines_commands(run: str) -> list[int]:
    """The engine's commands that wait for the run's container."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"docker") and run.encode() in words:
                found.append(int(name))
    return found


COUNTING = "import time\nfor i in range(60):\n    print('line', i)\n    time.sleep(0.05)\n"


def test_killing_the_engines_command_loses_and_doubles_no_line(shell: Shell) -> None:
    shell.write("s.py", COUNTING)
    run = shell.detached("--image", BASE, "s.py")
    wait_until(lambda: b"line 3" in shell.dray("logs", run).stdout)

    for _ in range(3):
        wait_until(lambda: _engines_commands(run))
        for pid in _engines_commands(run):
            os.kill(pid, signal.SIGKILL)

    assert shell.dray("follow", run).stdout.split(b"\n") == [b"line %d" % i for i in range(60)] + [b""]
    assert shown(shell, run)["status"] == "completed"


@pytest.mark.parametrize("who", [0, 1, "both"])
def test_whoever_of_the_runs_people_is_killed_the_container_ends_and_the_end_is_told(
    shell: Shell, docker: Docker, who: int | str
) -> None:
    shell.write("s.py", "print('up')\nimport time\ntime.sleep(300)")
    run = shell.detached("--image", BASE, "s.py")
    wait_until(lambda: shell.dray("logs", run).stdout == b"up\n")
    people = [pid for pid, _ in _people(run)]
    assert len(people) >= 2

    for pid in people if who == "both" else [people[int(who)]]:
        os.kill(pid, signal.SIGKILL)

    wait_until(lambda: shown(shell, run)["status"] in ("failed", "lost"))
    assert shown(shell, run)["reason"]["kind"] in ("runner-killed", "guard-killed", "vanished")
    wait_until(lambda: docker.containers() == [])


def test_a_command_goes_into_the_container_of_a_live_run(shell: Shell) -> None:
    shell.write("s.py", "import time\nprint('up')\ntime.sleep(100)")
    done = shell.dray(
        "submit", "-d", "--image", BASE, "--secret", "TOKEN", "s.py", env={"TOKEN": "hidden-word"}
    )
    run = done.stdout.decode().strip()
    wait_until(lambda: shell.dray("logs", run).stdout == b"up\n")

    inside = shell.dray("exec", run, "--", "sh", "-c", "pwd; echo ${TOKEN:-none}; cat /etc/hostname; exit 7")

    assert inside.returncode == 7, inside.stderr.decode()
    assert inside.stdout.startswith(b"/dray/code\nnone\n")
    shell.dray("cancel", run, "--grace", "0")
    wait_until(lambda: shown(shell, run)["status"] == "canceled")


def test_an_image_without_a_shell_runs_a_command_and_its_log_is_whole(shell: Shell, docker: Docker) -> None:
    busybox = Path("/bin/busybox")
    if not busybox.exists():
        require("docker", "busybox-static is missing")
    with tarfile.open(shell.folder / "bare.tar", "w") as tar:
        tar.add(busybox, "busybox")
    docker.docker(
        "import", "--change", 'ENTRYPOINT ["/busybox"]', shell.folder / "bare.tar", "dray-test/bare:1"
    )
    (shell.folder / "bare.tar").unlink()

    done = shell.dray("submit", "--image", "dray-test/bare:1", "--", "seq", "1", "200000")
    slow = shell.dray("submit", "-d", "--image", "dray-test/bare:1", "--", "awk", 'BEGIN { for (i = 0; i < 30; i++) { print i; system(""); for (j = 0; j < 2000000; j++) k = j } }')  # fmt: skip
    run = slow.stdout.decode().strip()

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"".join(b"%d\n" % i for i in range(1, 200001))
    for _ in range(3):
        for pid in _engines_commands(run):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.3)
    assert shell.dray("follow", run).stdout == b"".join(b"%d\n" % i for i in range(30))


def test_an_entrypoint_is_kept_as_the_engine_would(shell: Shell, docker: Docker) -> None:
    entry = "RUN printf '#!/bin/sh\\nexport FROM_ENTRY=yes\\nexec \"$@\"\\n' > /entry && chmod +x /entry"
    image = docker.build("dray-test/entry:1", f'FROM {BASE}\n{entry}\nENTRYPOINT ["/entry"]\n')
    python = docker.build("dray-test/python:1", f'FROM {BASE}\nENTRYPOINT ["/usr/bin/python3"]\n')
    shell.write("s.py", "import os; print(os.environ.get('FROM_ENTRY'))")

    assert shell.dray("submit", "--image", image, "s.py").stdout == b"yes\n"
    assert shell.dray("submit", "--image", python, "s.py").stdout == b"None\n"


def test_an_image_without_python_runs_commands_and_refuses_scripts(shell: Shell, docker: Docker) -> None:
    image = docker.build("dray-test/no-python:1", f"FROM {BASE}\nRUN rm /usr/bin/python3*\n")
    shell.write("s.py", "")

    assert shell.dray("submit", "--image", image, "--", "echo", "hi").stdout == b"hi\n"
    script = shell.dray("submit", "--image", image, "s.py")
    assert script.returncode == 125
    assert b"there is no Python in the image" in script.stderr


def test_mounts_shared_memory_and_network_are_as_was_said(shell: Shell, tmp_path: Path) -> None:
    data = tmp_path / "data, and more"
    data.mkdir()
    (data / "x").write_text("seen")
    shell.write("s.py", "import os\nprint(open('/sets/x').read(), os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize)\n"
                        "try: open('/sets/y', 'w')\nexcept OSError as e: print(e.strerror)\nprint(sorted(os.listdir('/sys/class/net')))")  # fmt: skip

    done = shell.dray(
        "submit",
        "--image",
        BASE,
        "--mount",
        f"{data}:/sets:ro",
        "--shm-size",
        "1GiB",
        "--network",
        "none",
        "s.py",
    )

    assert done.stdout.decode().splitlines() == [f"seen {1 << 30}", "Read-only file system", "['lo']"], (
        done.stderr
    )
    missing = shell.dray("submit", "--image", BASE, "--mount", "/not/there:/x", "s.py")
    assert missing.returncode == 125
    assert b"there is no such file or folder on the machine" in missing.stderr
    assert not Path("/not").exists()


def test_strays_of_dead_runs_go_before_the_next_one_starts(shell: Shell, docker: Docker) -> None:
    shell.write("s.py", "print('next')")
    assert shell.dray("submit", "--image", BASE, "s.py").returncode == 0
    machine = next((shell.home / "machine").glob("*/runs")).parent.name
    mine = ["--label", "dray.run=abcdefghij", "--label", f"dray.machine={machine}"]
    docker.docker("run", "-d", "--name", "abcdefghij", *mine, BASE, "sleep", "100")
    docker.docker("run", "-d", "--name", "theirs", "--label", "dray.run=abcdefghik", "--label", "dray.machine=other", BASE, "sleep", "100")  # fmt: skip

    assert shell.dray("submit", "--image", BASE, "s.py").returncode == 0

    assert docker.containers() == ["theirs"]
    docker.docker("rm", "-f", "theirs")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_log_of_1_gb_is_whole(shell: Shell) -> None:
    shell.write(
        "s.py", "import sys\nline = 'x' * 1023 + '\\n'\nfor _ in range(1 << 20): sys.stdout.write(line)\n"
    )
    run = shell.detached("--buffered", "--image", BASE, "s.py")

    with shell.start("follow", run) as process:
        assert process.stdout
        size = 0
        while piece := process.stdout.read(1 << 20):
            size += len(piece)
            assert not piece.strip(b"x\n")
    assert size == 1 << 30
