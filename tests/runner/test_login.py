"""The machine's own set-up: the login shell's environment, whatever the shell and whatever its profiles print."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.runner import login
from tests.runner.machines import Elsewhere, Followed, is_alive, kill, people_of, wait_until

SHELLS = {
    name: path
    for name in ("bash", "zsh", "dash", "ksh", "mksh", "fish", "tcsh", "csh", "sh")
    if (path := shutil.which(name, path="/usr/bin:/bin"))
}
SHOW = "import os, json; print(json.dumps(dict(os.environ)))"
POSIX = "echo welcome; export FROM=profile PATH=/opt/mine:$PATH\nODD='a b\n\"c\" \\ ü'; export ODD\nfalse\n"
FISH = "if status is-login\n echo welcome; set -gx FROM profile; set -gx PATH /opt/mine $PATH\nend\nfalse\n"
CSH = "echo welcome\nsetenv FROM profile\nsetenv PATH /opt/mine:$PATH\n"


@pytest.fixture
def machine() -> Iterator[Elsewhere]:
    made = Elsewhere()
    for name in (".profile", ".bash_profile", ".zprofile"):
        made.write(name, POSIX)
    made.write(".login", CSH)
    made.write(".config/fish/config.fish", FISH)
    yield made
    made.clean()


def environ(heard: Followed) -> dict[str, str]:
    assert heard.kind == "done", (heard.end, heard.streams)
    found: dict[str, str] = json.loads(heard.log)
    return found


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_a_run_has_the_environment_of_the_login_shell(machine: Elsewhere, shell: str) -> None:
    machine.host.env = {"SHELL": SHELLS[shell]}
    heard = machine.run(SHOW, login=True)

    env = environ(heard)
    assert env["FROM"] == "profile"
    assert env["PATH"].startswith("/opt/mine:")
    assert env["SHELL"] == SHELLS[shell]
    assert {"DRAY_SETUP_TO", "DRAY_SETUP_STATUS", "OLDPWD"}.isdisjoint(env)
    assert env["PWD"] == str(machine.folder(env["DRAY_RUN_ID"]) / "code")
    assert "log.environment" not in heard.streams, "noise that did not matter is kept from everybody"


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_a_set_up_runs_in_the_login_shell_and_before_the_script(machine: Elsewhere, shell: str) -> None:
    machine.host.env = {"SHELL": SHELLS[shell]}
    setup = {
        "fish": "set -gx LOADED $FROM",
        "csh": "setenv LOADED $FROM",
        "tcsh": "setenv LOADED $FROM",
    }.get(shell, "export LOADED=$FROM  # a comment\n")

    assert environ(machine.run(SHOW, login=True, setup=setup))["LOADED"] == "profile"


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_a_set_up_that_fails_ends_the_run_with_its_last_words(machine: Elsewhere, shell: str) -> None:
    machine.host.env = {"SHELL": SHELLS[shell]}
    machine.write("bin/module", "#!/bin/sh\necho trying\necho no module $2 >&2\nexit 3\n", 0o755)
    heard = machine.run("print('never')", login=True, setup=f'"{machine.home}/bin/module" load cuda/99')

    assert heard.kind == "environment-failed"
    assert "load cuda/99`" in heard.end["reason"]["text"]
    assert heard.end["reason"]["text"].endswith("no module cuda/99")
    assert b"welcome" in heard.streams["log.environment"]
    assert b"trying" in heard.streams["log.environment"]
    assert "log.script" not in heard.streams


def test_values_of_several_lines_come_unharmed(machine: Elsewhere) -> None:
    machine.host.env = {"SHELL": "/bin/bash"}
    assert environ(machine.run(SHOW, login=True))["ODD"] == 'a b\n"c" \\ ü'


def test_without_shell_in_the_environment_it_is_the_one_of_the_passwd_file(machine: Elsewhere) -> None:
    env = environ(machine.run(SHOW, login=True))
    assert (env["SHELL"], env["FROM"]) == ("/bin/sh", "profile")


@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/no/such/shell", "fish"])
def test_a_shell_that_runs_nothing_is_passed_over(machine: Elsewhere, shell: str) -> None:
    machine.host.env = {"SHELL": shell}
    assert environ(machine.run(SHOW, login=True))["FROM"] == "profile"


def test_a_profile_that_turns_into_another_program_is_said_and_the_run_goes_on(machine: Elsewhere) -> None:
    machine.write(".profile", "echo off I go\nexec true\n")
    heard = machine.run(SHOW, login=True)

    assert "FROM" not in environ(heard)
    assert b"ended before it told its environment: off I go" in heard.streams["state.jsonl"]
    assert b"off I go" in heard.streams["log.environment"]


def test_a_set_up_in_such_a_profile_is_not_taken_for_done(machine: Elsewhere) -> None:
    machine.write(".profile", "exec true\n")
    assert machine.run(SHOW, login=True, setup="export X=1").kind == "environment-failed"


def test_a_profile_that_prints_without_end_is_stopped(machine: Elsewhere) -> None:
    machine.write(".profile", "yes 'and on and on'\n")
    heard = machine.run(SHOW, login=True)

    environ(heard)
    assert b"printed without end" in heard.streams["state.jsonl"]


@pytest.mark.slow
def test_a_profile_that_hangs_is_left_after_a_while(machine: Elsewhere) -> None:
    machine.write(".profile", "echo waiting; sleep 300\n")
    began = time.monotonic()
    heard = machine.run(SHOW, login=True)

    environ(heard)
    assert login.LIMIT_S <= time.monotonic() - began < login.LIMIT_S + 8
    assert b"took more than 20 s: waiting" in heard.streams["state.jsonl"]


def test_a_cancel_ends_a_set_up_that_hangs(machine: Elsewhere) -> None:
    pid_file = machine.write("pid", "")
    run = machine.submit(SHOW, login=True, setup=f"echo $$ > '{pid_file}'; sleep 300")
    pid = int(wait_until(lambda: pid_file.read_text().strip()))
    with machine.connect() as connection:
        connection.call({"op": "cancel", "run": run, "grace": 0.5, "by": "me"})

    assert machine.follow(run).end["state"] == "canceled"
    wait_until(lambda: not is_alive(pid))


def test_a_killed_runner_takes_the_set_up_with_it(machine: Elsewhere) -> None:
    pid_file = machine.write("pid", "")
    run = machine.submit(SHOW, login=True, setup=f"echo $$ > '{pid_file}'; sleep 300")
    pid = int(wait_until(lambda: pid_file.read_text().strip()))
    kill(people_of(pid)[0])

    assert machine.follow(run).kind == "not-started"
    wait_until(lambda: not is_alive(pid))


def test_secrets_reach_the_script_and_not_the_set_up(machine: Elsewhere) -> None:
    heard = machine.run(
        "import os; print(os.environ['SEEN_BEFORE'], 'TOKEN' in os.environ)",
        login=True,
        setup="export SEEN_BEFORE=$(env | grep -c TOKEN)x",
        secrets={"TOKEN": "s3cret-value"},
    )
    assert heard.log == b"0x True\n"


def test_the_environment_is_built_in_the_set_up_with_its_tools(machine: Elsewhere) -> None:
    machine.write(
        "tools/uv",
        '#!/bin/sh\nif [ "$1" = --version ]; then echo uv 0.9.0; exit; fi\necho "$*" >> ~/asked\nenv >> ~/seen\n'
        'if [ "$1" = venv ]; then eval "to=\\${$#}"; mkdir -p "$to/bin"; ln -s /usr/bin/python3 "$to/bin/python"; fi\n'
        'while [ $# -gt 0 ]; do if [ "$1" = --output-file ]; then echo > "$2"; fi; shift; done\n',
        0o755,
    )
    machine.write("tools/python3", '#!/bin/sh\nexec /usr/bin/python3 "$@"\n', 0o755)
    heard = machine.run(
        SHOW,
        login=True,
        setup="export PATH=~/tools:$PATH LOADED=cuda",
        python=None,
        environment={"digest": "d" * 64, "packages": ["six"], "python": None},
        secrets={"TOKEN": "s3cret-value"},
    )

    assert environ(heard)["LOADED"] == "cuda"
    asked = (machine.write("x", "").parent / "asked").read_text()
    assert f"--python {machine.home}/tools/python3 " in asked, "the set-up's Python is built on"
    seen = (machine.write("x", "").parent / "seen").read_text()
    assert seen.count("LOADED=cuda") == 3
    assert "TOKEN" not in seen


def test_what_marks_another_run_does_not_come_along(machine: Elsewhere) -> None:
    machine.host.env = {"DRAY_SECRETS": "OLD", "DRAY_STREAMS": "/elsewhere", "DRAY_HOME": "/mine"}
    machine.write(
        ".profile", "export DRAY_OUTPUTS=/tmp DRAY_RUN_ID=other DRAY_SETUP_STATUS=9 SAW=[$DRAY_STREAMS]\n"
    )
    env = environ(machine.run(SHOW, login=True))

    assert "DRAY_SECRETS" not in env
    assert "DRAY_SETUP_STATUS" not in env
    assert env["SAW"] == "[]"
    assert env["DRAY_RUN_ID"] != "other"
    assert env["DRAY_OUTPUTS"].startswith(machine.root_path())
    assert env["DRAY_HOME"] == "/mine", "that one is the user's own wish"


def test_nothing_of_the_set_up_is_left_on_the_disk(machine: Elsewhere) -> None:
    machine.write(".profile", "export PROFILE_TOKEN=tok-12345\n")
    run = machine.submit("print('on')", login=True)
    machine.follow(run)

    for file in machine.folder(run).rglob("*"):
        assert not file.is_file() or b"tok-12345" not in file.read_bytes(), file


@given(
    env=st.dictionaries(
        st.binary(min_size=1).filter(lambda n: b"\0" not in n and b"=" not in n),
        st.binary().filter(lambda v: b"\0" not in v),
        min_size=1,
    )
)
def test_any_environment_is_read_back(env: dict[bytes, bytes]) -> None:
    data = b"".join(name + b"=" + value + b"\0" for name, value in env.items())
    found = login.parse(data) or {}

    for name, value in found.items():
        assert env[os.fsencode(name)] == os.fsencode(value)
    assert {os.fsdecode(n) for n in env} - set(found) <= login._NOT_OURS | login._OF_THE_SHELL
    assert login.parse(data[:-1]) is None, "a cut one is none"
