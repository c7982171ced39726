"""`--registry-login`: a private image is pulled with a password that is kept here, and that is nowhere afterwards on the machine of the run."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dray.runner.containers.logins import registry_of, with_logins
from tests.cli.dray_shell import Shell, wait_until
from tests.docker.registry import PASSWORD, USER
from tests.docker.world import DOCKER, Docker

BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
GIVEN = {"DRAY_REGISTRY_PASSWORD": PASSWORD}


def where_it_is(*folders: Path) -> list[Path]:
    """Files that hold the password, in itself or as docker writes it."""
    needles = (PASSWORD.encode(), BASIC.encode())
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                found += [path] if any(one in data for one in needles) else []
    return found


def in_memory(shell: Shell) -> list[str]:
    return os.listdir(shell.env["XDG_RUNTIME_DIR"])


@pytest.fixture(autouse=True)
def runtime(shell: Shell, tmp_path: Path) -> None:
    """A folder for what is in memory of this test's own: others look at the machine's at the same time."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    shell.env["XDG_RUNTIME_DIR"] = str(folder)


@pytest.fixture
def spied(tmp_path: Path) -> dict[str, str]:
    """Variables with which every docker command leaves its words and its settings behind, before it does what it does."""
    folder = tmp_path / "spied"
    folder.mkdir()
    (folder / "docker").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/words\nenv >> {tmp_path}/variables\n'
        f'case $1 in pull) ls -ld "$DOCKER_CONFIG" > {tmp_path}/place;; esac\nexec {DOCKER} "$@"\n'
    )
    (folder / "docker").chmod(0o755)
    return {"PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"}


def test_a_private_image_is_pulled_with_a_password_that_is_left_nowhere(
    shell: Shell, image: str, private: str, spied: dict[str, str], tmp_path: Path
) -> None:
    shell.env.update(spied)
    shell.write("s.py", "import os\nprint('ran', [n for n in os.environ if 'REGISTRY' in n])")
    login = f"{USER}@{private}"

    attached = shell.dray("attach", "docker", "box", "--image", image, "--registry-login", login, env=GIVEN)
    done = shell.dray("submit", "-c", "box", "s.py")

    assert attached.returncode == 0, attached.stderr.decode()
    assert b"login-secrets.json, which only you can read" in attached.stderr
    assert done.stdout == b"ran []\n", done.stderr.decode()
    kept = shell.home / "login-secrets.json"
    assert where_it_is(shell.home, shell.folder) == [kept]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert in_memory(shell) == []
    assert "drwx------" in (tmp_path / "place").read_text()
    assert "dray-login-" in (tmp_path / "place").read_text()
    seen = (tmp_path / "words").read_text() + (tmp_path / "variables").read_text()
    assert PASSWORD not in seen
    assert BASIC not in seen
    assert PASSWORD not in shell.dray("show", "--json", "@last").stdout.decode()

    forgotten = shell.dray("compute", "rm", "box")
    assert f"the password of {login} is forgotten".encode() in forgotten.stderr
    assert not kept.exists()


def test_the_machines_own_login_works_and_stays_in_force_beside_one_of_ours(
    shell: Shell, docker: Docker, image: str, private: str, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    settings = {"auths": {private: {"auth": BASIC}}, "HttpHeaders": {"X-Mine": "1"}}
    (own / "config.json").write_text(json.dumps(settings))
    shell.env["DOCKER_CONFIG"] = str(own)
    plain = shell.dray("submit", "--image", image, "--", "echo", "in")
    assert plain.stdout == b"in\n", plain.stderr.decode()

    docker.docker("rmi", image)
    other = shell.dray(
        "submit", "--image", image, "--registry-login", "bob@ghcr.io", "--", "echo", "in", env=GIVEN
    )

    assert other.stdout == b"in\n", other.stderr.decode()
    assert json.loads((own / "config.json").read_text()) == settings


def test_a_wrong_password_and_none_are_told_with_what_to_do(shell: Shell, image: str, private: str) -> None:
    words = ["submit", "--image", image]

    without = shell.dray(*words, "--", "true")
    assert without.returncode == 125
    assert f"--registry-login USER@{private}".encode() in without.stderr

    login = f"{USER}@{private}"
    unknown = shell.dray(*words, "--registry-login", login, "--", "true")
    assert unknown.returncode == 125
    assert f"the password of `{login}` is not known".encode() in unknown.stderr
    assert b"--registry-password-stdin" in unknown.stderr
    assert b"dray: run " not in unknown.stderr

    wrong = shell.dray(
        *words, "--registry-login", login, "--", "true", env={"DRAY_REGISTRY_PASSWORD": "wrong-one"}
    )
    assert wrong.returncode == 125
    assert f"may not be pulled as {USER}".encode() in wrong.stderr
    assert b"wrong-one" not in wrong.stderr
    assert in_memory(shell) == []


@pytest.mark.parametrize(
    "login", ["ghcr.io", "ana@", "@ghcr.io", f"ana:{PASSWORD}@ghcr.io", "ana@https://ghcr.io", "ana@a b"]
)
def test_what_is_no_login_is_refused_and_a_password_in_it_is_not_repeated(shell: Shell, login: str) -> None:
    done = shell.dray("submit", "--image", "x", "--registry-login", login, "--", "true", env=GIVEN)

    assert done.returncode == 2
    assert b"USER@REGISTRY" in done.stderr
    assert PASSWORD.encode() not in done.stderr


def test_the_password_is_asked_for_changed_and_taken_away(shell: Shell, image: str, private: str) -> None:
    login = f"{USER}@{private}"
    with shell.terminal("attach", "docker", "box", "--image", image, "--registry-login", login) as asked:
        asked.until(b"Password of " + login.encode())
        asked.press(b"not-the-right-one\n")
        assert asked.ended() == 0
        assert b"not-the-right-one" not in asked.seen
    assert shell.dray("submit", "-c", "box", "--", "true").returncode == 125

    with shell.start("compute", "update", "box", "--registry-login", login, "--registry-password-stdin", stdin=True) as update:  # fmt: skip
        update.communicate(PASSWORD.encode() + b"\n", timeout=60)
    assert update.returncode == 0
    assert shell.dray("submit", "-c", "box", "--", "echo", "in").stdout == b"in\n"
    again = shell.dray("rerun", "@last")
    assert again.stdout == b"in\n", again.stderr.decode()

    gone = shell.dray("compute", "update", "box", "--registry-login", "")
    assert b"is forgotten" in gone.stderr
    assert (
        "logins" not in json.loads((shell.home / "computes/box.compute").read_text())["options"]["container"]
    )


def test_a_dockerfile_may_begin_with_a_private_image(
    shell: Shell, docker: Docker, image: str, private: str
) -> None:
    shell.write("Dockerfile", f"FROM {image}\nRUN echo made > /made\n")
    words = ["submit", "--dockerfile", "Dockerfile", "--registry-login", f"{USER}@{private}"]

    done = shell.dray(*words, "--", "cat", "/made", env=GIVEN)

    assert done.stdout == b"made\n", done.stderr.decode()
    assert in_memory(shell) == []


def test_a_runner_that_is_killed_in_a_pull_leaves_no_password_behind(
    shell: Shell, image: str, private: str, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "docker").write_text(f'#!/bin/sh\ncase $1 in pull) sleep 100;; esac\nexec {DOCKER} "$@"\n')
    (slow / "docker").chmod(0o755)
    shell.env["PATH"] = f"{slow}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = shell.dray("submit", "-d", "--image", image, "--registry-login", f"{USER}@{private}", "--", "true", env=GIVEN)  # fmt: skip
    run = done.stdout.decode().strip()
    wait_until(lambda: b"pulling" in shell.dray("logs", run, "--stream", "image").stdout)
    (folder,) = in_memory(shell)
    assert run in folder

    for pid in runners_of(run):
        os.kill(pid, 9)

    wait_until(lambda: json.loads(shell.dray("show", run, "--json").stdout)["status"] in ("failed", "lost"))
    wait_until(lambda: in_memory(shell) == [])


def runners_of(run: str) -> list[int]:
    """The processes of that run that write its log of their own: the runner, not its guard's children."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if f"{run}/attempts/1/runner.log" in os.readlink(f"/proc/{name}/fd/2"):
                    found.append(int(name))
            except OSError:
                continue
    return sorted(found)[:1]


def test_what_an_engine_is_told_keeps_what_the_machine_says_of_other_registries() -> None:
    own = {
        "auths": {"a.example": {"auth": "x"}, "b.example/team": {}},
        "credsStore": "pass",
        "currentContext": "c",
    }

    made: dict[str, Any] = with_logins(own, {"b.example": ("u", "p"), "docker.io": ("h", "p")}, docker=True)

    assert made["auths"]["a.example"] == {"auth": "x"}
    assert made["auths"]["b.example"] == {"auth": base64.b64encode(b"u:p").decode()}
    assert "b.example/team" not in made["auths"]
    assert made["credHelpers"] == {"b.example": "", "https://index.docker.io/v1/": ""}
    assert (made["credsStore"], made["currentContext"]) == ("pass", "c")
    podman = with_logins({"credHelpers": {"b.example": "pass"}}, {"b.example": ("u", "p")}, docker=False)
    assert podman["credHelpers"] == {}


@pytest.mark.parametrize(
    ("image", "registry"),
    [("python:3.12", "docker.io"), ("ana/x", "docker.io"), ("ghcr.io/ana/x:1", "ghcr.io"), ("localhost/x", "localhost"),
     ("127.0.0.1:5000/x@sha256:0", "127.0.0.1:5000")],
)  # fmt: skip
def test_the_registry_of_an_image_is_what_its_name_says(image: str, registry: str) -> None:
    assert registry_of(image) == registry
