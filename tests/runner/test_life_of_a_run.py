"""A run from claim to end, over every byte channel."""

from __future__ import annotations

import json
import os
import time

import pytest

from tests.runner.machines import Here, Place, wait_until


def test_a_script_runs_and_all_it_says_arrives(place: Place) -> None:
    heard = place.run("import sys; print('to stdout'); print('to stderr', file=sys.stderr)")

    assert heard.log == b"to stdout\nto stderr\n"
    assert heard.states == ["preparing", "running", "finalizing"]
    assert heard.kind == "done"
    assert heard.end["code"] == 0


def test_a_script_logs_metrics_with_nothing_installed(place: Place) -> None:
    heard = place.run("import dray; dray.log(loss=0.25, step=3)")

    (events,) = [data for name, data in heard.streams.items() if name.startswith("events.")]
    opened, metric = [json.loads(line) for line in events.splitlines()]
    assert opened["type"] == "opened"
    assert metric["data"] == {"step": 3, "values": {"loss": 0.25}}


def test_the_scripts_exit_code_is_kept(place: Place) -> None:
    heard = place.run("raise SystemExit(7)")

    assert (heard.end["state"], heard.kind, heard.end["code"]) == ("failed", "exit-code", 7)


def test_a_signal_is_told_from_an_exit_code(place: Place) -> None:
    heard = place.run("import os; os.kill(os.getpid(), 11)")

    assert (heard.end["state"], heard.kind, heard.end["signal"]) == ("failed", "signal", 11)
    assert heard.end["code"] is None


def test_a_command_that_is_not_there_is_named(place: Place) -> None:
    heard = place.run("", command=["no-such-program", "x"], script=False)

    assert heard.kind == "cannot-start"
    assert "`no-such-program` was not found" in heard.end["reason"]["text"]


def test_any_command_line_arrives_word_for_word(place: Place) -> None:
    words = ["a b", "it's", 'say "x"', "new\nline", "$HOME", "*", "", "caf\u00e9", "\udcff"]
    heard = place.run("", command=["printf", "%s|", *words], script=False)

    assert heard.log == b"".join(os.fsencode(word) + b"|" for word in words)


@pytest.mark.parametrize(
    ("name", "code"),
    [("-x.py", "import sys; print(*sys.argv)"), ("-c.sh", "echo $0 $1")],
)
def test_a_script_whose_name_looks_like_an_option_is_a_script(place: Place, name: str, code: str) -> None:
    heard = place.run("", files={name: code}, command=[name, "-y"])

    assert heard.log.decode().strip() == f"./{name} -y"


def test_a_run_ends_at_its_time_limit(place: Place) -> None:
    heard = place.run("import time; print('begun'); time.sleep(60)", timeout_s=0.3, grace_s=0.2)

    assert heard.kind == "timeout"
    assert heard.log == b"begun\n"
    assert heard.end["duration_s"] < 10


def test_cancel_ends_the_whole_tree_and_keeps_what_was_said(place: Place) -> None:
    run = place.submit("import subprocess, sys\nprint('begun')\nsubprocess.run(['sleep', '61.25'])")
    wait_until(lambda: place.follow(run, wait=False).log)
    with place.connect() as connection:
        answer = connection.call({"op": "cancel", "run": run, "grace": 5, "by": "ana@laptop"})

    heard = place.follow(run)
    assert answer == {"cancelling": run}
    assert (heard.end["state"], heard.kind) == ("canceled", "cancelled")
    assert "ana@laptop" in heard.end["reason"]["text"]
    assert heard.log == b"begun\n"
    assert not _processes_of(run)


def test_a_script_that_ignores_sigterm_is_killed_after_the_grace(place: Place) -> None:
    run = place.submit(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('begun')\nwhile True: time.sleep(1)"
    )
    wait_until(lambda: place.follow(run, wait=False).log)
    began = time.monotonic()
    with place.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": 0.5, "by": "me"})

    heard = place.follow(run)
    assert heard.end["state"] == "canceled"
    assert 0.4 < time.monotonic() - began < 8


def test_a_daemon_is_ended_and_named_and_holds_nothing_up(place: Place) -> None:
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon speaks")
        time.sleep(300)  # holds stdout open
    os._exit(0)
os.wait()
print("script is done")
"""
    began = time.monotonic()
    heard = place.run(code)

    assert heard.kind == "done"
    assert time.monotonic() - began < 20
    assert len(heard.end["leftovers"]) == 1
    assert "script.py" in heard.end["leftovers"][0]["name"]
    # Two processes print at once, and an unbuffered print writes its text and its newline apart.
    assert sorted(heard.log) == sorted(b"daemon speaks\nscript is done\n")
    assert b"daemon speaks" in heard.log


def test_a_script_that_closes_its_stdout_still_ends_well(place: Place) -> None:
    heard = place.run("import os; os.close(1); os.close(2); open('outputs/x', 'w').write('y')")

    assert heard.kind == "done"
    assert heard.end["outputs"]["files"] == [["outputs/x", 1]]


def test_binary_output_and_endless_lines_arrive_byte_for_byte(place: Place) -> None:
    code = "import os\nos.write(1, bytes(range(256)) * 40)\nn = 0\nwhile n < 10_000_000: n += os.write(1, b'x' * 65536)"
    heard = place.run(code)

    assert heard.log[: 256 * 40] == bytes(range(256)) * 40
    assert set(heard.log[256 * 40 :]) == {ord("x")}
    assert len(heard.log) >= 256 * 40 + 10_000_000


def test_output_is_seen_when_it_is_made(here: Here) -> None:
    run = here.submit("import time; print('first'); time.sleep(30)")
    try:
        assert wait_until(lambda: here.follow(run, wait=False).log, 5) == b"first\n"
    finally:
        with here.connect() as connection:
            connection.call({"op": "cancel", "run": run, "grace": 0, "by": "me"})
        here.follow(run)


def test_new_files_elsewhere_are_named_and_sources_are_not(place: Place) -> None:
    code = "open('model.bin','w').write('12345'); open('outputs/m','w'); import helper"
    heard = place.run(code, files={"helper.py": ""})

    assert heard.end["elsewhere"] == {"files": ["model.bin"], "count": 1}
    assert heard.end["outputs"] == {"files": [["outputs/m", 0]], "count": 1, "bytes": 0}


def test_outputs_by_glob_are_outputs(place: Place) -> None:
    code = "import os; os.mkdir('ckpt'); open('ckpt/a.pt','w').write('1'); open('ckpt/b.txt','w')"
    heard = place.run(code, outputs=["**/*.pt"])

    assert heard.end["outputs"]["files"] == [["ckpt/a.pt", 1]]
    assert heard.end["elsewhere"]["files"] == ["ckpt/b.txt"]


def test_an_id_is_claimed_once(place: Place) -> None:
    run = place.submit("print('once')")
    place.follow(run)
    spec = {"id": run, "token": "another", "command": ["script.py"]}
    with place.connect() as connection:
        answer = place.hand_over(connection, spec, {"v": 1, "files": [], "links": [], "dirs": []}, {})

    assert answer["refused"] == "taken"
    assert place.follow(run).log == b"once\n"


def test_a_tombstone_makes_a_late_start_refuse_itself(place: Place) -> None:
    spec = {"id": "abcdefghjk", "token": "t", "command": ["script.py"]}
    with place.connect() as connection:
        buried = connection.call({"op": "never", "run": "abcdefghjk", "spec": spec})
    with place.connect() as connection:
        answer = place.hand_over(connection, spec, {"v": 1, "files": [], "links": [], "dirs": []}, {})

    assert buried == {"never": "abcdefghjk"}
    assert answer["refused"] == "never"


def test_a_tombstone_comes_too_late_for_a_claimed_run(place: Place) -> None:
    run = place.submit("print(1)")
    with place.connect() as connection:
        assert connection.call({"op": "never", "run": run, "spec": {}}) == {"claimed": run}
    assert place.follow(run).kind == "done"


def test_following_from_any_byte_gives_the_rest(place: Place) -> None:
    run = place.submit("for i in range(1000): print(i)")
    whole = place.follow(run).log

    rest = place.follow(run, {"1/log.script": 1234})

    assert rest.log == whole[1234:]


def test_secrets_reach_the_script_and_nothing_else(place: Place) -> None:
    code = """
import os, sys, time
s = os.environ["TOKEN"]
print("the token is", s)
sys.stdout.write(s[:7]); sys.stdout.flush(); time.sleep(0.05); print(s[7:])
import dray
dray.log_params(token=s)
open("outputs/length", "w").write(str(len(s)))
"""
    secret = "correct-horse-battery"
    run = place.submit(code, secrets={"TOKEN": secret})
    heard = place.follow(run)

    assert heard.kind == "done"
    assert heard.log == b"the token is ***\n***\n"
    assert (place.folder(run) / "code/outputs/length").read_text() == str(len(secret))
    for file in place.folder(run).rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file


def test_nobody_else_can_read_a_run(place: Place) -> None:
    run = place.submit("print(1)")
    place.follow(run)

    assert place.folder(run).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"files": [["../x", "0" * 64, 1, 0]], "links": [], "dirs": []},
        {"files": [["/etc/x", "0" * 64, 1, 0]], "links": [], "dirs": []},
        {"files": [["l/x", "0" * 64, 1, 0]], "links": [["l", "/etc"]], "dirs": []},
        {"files": [["x", "../../etc/passwd", 1, 0]], "links": [], "dirs": []},
        {"files": [["x"]], "links": [], "dirs": []},
        {"nothing": 1},
    ],
)
def test_a_manifest_that_leads_outside_is_refused(here: Here, bad: dict[str, object]) -> None:
    from dray.hosts.errors import MachineRefused

    with here.connect() as connection, pytest.raises(MachineRefused) as refused:
        here.hand_over(connection, {"id": "abcdefghjk", "command": ["x"]}, bad, {})
    assert refused.value.refusal == "bad-manifest"


def test_a_damaged_blob_is_refused_and_claims_nothing(here: Here) -> None:
    from dray.hosts.errors import MachineRefused

    manifest = {"v": 1, "files": [["x.py", "a" * 64, 1, 0]], "links": [], "dirs": []}
    with here.connect() as connection, pytest.raises(MachineRefused):
        here.hand_over(connection, {"id": "abcdefghjk", "command": ["x.py"]}, manifest, {"a" * 64: b"other"})
    with here.connect() as connection:
        assert connection.call({"op": "list"}) == {"runs": [], "never": []}


def test_fetching_outside_the_run_is_refused(here: Here) -> None:
    from dray.hosts.errors import MachineRefused

    run = here.submit(
        "import os; os.symlink('/etc/passwd', 'outputs/link'); open('outputs/real','w').write('r')"
    )
    heard = here.follow(run)
    assert [path for path, _ in heard.end["outputs"]["files"]] == ["outputs/real"]
    for path in ("outputs/link", "../run.json", "/etc/passwd", "outputs/../../run.json"):
        with here.connect() as connection, pytest.raises(MachineRefused):
            connection.call({"op": "fetch", "run": run, "path": path})


def test_a_live_run_is_not_removed_and_an_ended_one_is(place: Place) -> None:
    run = place.submit("import time; print('on'); time.sleep(60)")
    wait_until(lambda: place.follow(run, wait=False).log)
    with place.connect() as connection:
        assert connection.call({"op": "remove", "run": run})["refused"] == "alive"
        connection.call({"op": "cancel", "run": run, "grace": 0, "by": "me"})
    place.follow(run)
    with place.connect() as connection:
        assert connection.call({"op": "remove", "run": run}) == {"removed": run}
        assert connection.call({"op": "list"})["runs"] == []


def _processes_of(run: str) -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if f"DRAY_RUN_ID={run}".encode() in file.read().split(b"\0"):
                        found.append(name)
            except OSError:
                continue
    return found
