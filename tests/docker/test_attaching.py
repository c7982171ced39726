"""`docker` is this machine's engine, `remotedocker` that of a machine behind ssh; both become computes."""

from __future__ import annotations

import base64
import json
import os
import pwd
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.dray_shell import Shell
from tests.docker.registry import PASSWORD, USER
from tests.docker.world import BASE, Docker
from tests.ssh.world import Server, World


def shown(shell: Shell, run: str = "@last") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell.dray("show", run, "--json").stdout)
    return found


def test_this_machines_engine_is_attached_and_its_runs_are_in_containers(shell: Shell) -> None:
    done = shell.dray("attach", "docker", "box", "--image", BASE, "--memory", "1GB")
    assert (done.returncode, done.stdout) == (0, b"box\n"), done.stderr.decode()
    assert b"containers by docker" in done.stderr

    shell.write("hello.py", "import os; print('in', os.getcwd())")
    run = shell.dray("submit", "-c", "box", "hello.py")

    assert run.stdout == b"in /dray/code\n", run.stderr.decode()
    assert "--memory 1000000000" in shown(shell)["environment"]["container"]["line"]
    assert shell.dray("submit", "-c", "box", "--image", "none", "hello.py").stdout != run.stdout
    assert shell.dray("compute", "rm", "box").returncode == 0


def test_an_old_compute_file_of_the_project_means_what_it_meant(shell: Shell, docker: Docker) -> None:
    old = docker.build("dray-test/old:1", f"FROM {BASE}\nRUN echo old > /which\n")
    assert shell.dray("attach", "docker", "my_dsvm", "--image", BASE).returncode == 0
    shell.write(
        "aml_config/my_dsvm.compute",
        f'address: "1.2.3.4"\nbaseDockerImage: {old}  # the old way\nnvidiaDocker: false\n',
    )
    shell.write("s.py", "print(open('/which').read().strip())")

    run = shell.dray("submit", "-c", "my_dsvm", "s.py")
    assert run.stdout == b"old\n", run.stderr.decode()
    plan = json.loads(
        shell.dray("submit", "-c", "my_dsvm", "--image", BASE, "--dry-run", "--json", "s.py").stdout
    )
    assert plan["container"]["image"] == BASE

    shell.write("aml_config/my_dsvm.compute", "nvidiaDocker: true\n")
    refused = shell.dray("submit", "-c", "my_dsvm", "s.py")
    assert refused.returncode != 0
    assert b"GPU" in refused.stderr


def test_attaching_twice_in_another_way_is_refused_and_update_changes_it(shell: Shell) -> None:
    assert shell.dray("attach", "docker", "box", "--image", BASE).returncode == 0

    assert shell.dray("attach", "docker", "box", "--image", "other:1").returncode == 2
    assert shell.dray("compute", "update", "box", "--memory", "2GB").returncode == 0

    options = json.loads((shell.home / "computes/box.compute").read_text())["options"]
    assert options["container"] == {"image": BASE, "memory": 2_000_000_000}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("attach", "docker", "x", "--address", "ana@10.0.0.5"), b"dray attach remotedocker x"),
        (("attach", "vm", "x", "--image", "python:3.12"), b"dray submit --image"),
        (("submit", "--memory", "8GB", "s.py"), b"--image"),
        (("submit", "--image", "a b", "s.py"), b"cannot name an image"),
        (("submit", "--image", "x", "--mount", "data:/x", "s.py"), b"--mount /data"),
        (("submit", "--image", "x", "--mount", "/data:/dray/code", "s.py"), b"is taken in a container"),
        (("submit", "--image", "x", "--user", "a;b", "s.py"), b"UID[:GID]"),
        (("submit", "--image", "x", "--memory", "1MB", "s.py"), b"at least 6 MiB"),
        (("submit", "--registry-login", "ana@ghcr.io", "s.py"), b"--registry-login` is about a container"),
        (
            ("submit", "--image", "x", "--env", "r.txt", "--offline-host", "s.py"),
            b"this run is in a container",
        ),
        (
            ("submit", "--image", "x", "--env", "r.txt", "--index-url", "http://u:hidden@h/s", "s.py"),
            b"http://h/s is not given",
        ),
    ],
)
def test_a_wrong_word_is_refused_before_anything_starts(
    shell: Shell, words: tuple[str, ...], said: bytes
) -> None:
    shell.write("s.py", "")
    shell.write("r.txt", "toy-dray\n")

    done = shell.dray(*words)

    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (shell.home / "machine").exists() or not list((shell.home / "machine").glob("*/runs/*"))


def test_an_engine_on_another_machine_is_refused_with_the_reason(shell: Shell) -> None:
    far = {"DOCKER_HOST": "tcp://10.99.0.1:2375"}
    done = shell.dray("attach", "docker", "box", env=far)
    assert done.returncode == 1
    assert b"an engine on another one" in done.stderr

    shell.write("s.py", "")
    run = shell.dray("submit", "--image", BASE, "s.py", env=far)
    assert run.returncode == 125
    assert shown(shell)["reason"]["kind"] == "engine-elsewhere"


def test_a_machine_without_an_engine_says_what_to_install(shell: Shell, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("sh", "python3", "env", "cat"):
        (bare / name).symlink_to(f"/usr/bin/{name}")
    done = shell.dray("attach", "docker", "box", env={"PATH": str(bare)})
    assert done.returncode == 1
    assert b"apt install docker.io" in done.stderr

    shell.write("s.py", "")
    run = shell.dray("submit", "--image", BASE, "s.py", env={"PATH": str(bare)})
    assert run.returncode == 125
    assert b"apt install docker.io" in run.stderr


def test_an_engine_that_does_not_run_is_told_with_what_starts_it(shell: Shell) -> None:
    done = shell.dray("attach", "docker", "box", env={"DOCKER_HOST": "unix:///nowhere/sock"})

    assert done.returncode == 1
    assert b"systemctl start docker" in done.stderr


@pytest.fixture
def far(world: World, docker: Docker) -> Server:
    """A machine behind ssh whose user may use the engine."""
    server = world.known()
    profile = server.home / ".profile"
    profile.write_text(f"export DOCKER_HOST=unix://{docker.socket} PATH=/usr/sbin:/usr/bin:/sbin:/bin\n")
    account = pwd.getpwnam(server.user)
    os.chown(profile, account.pw_uid, account.pw_gid)
    return server


@pytest.fixture
def client(world: World) -> Shell:
    project = world.folder / "project"
    project.mkdir()
    made = Shell(project, world.client.dray_home)
    made.env.update(world.client.env)
    return made


def attached(client: Shell, server: Server, *words: str) -> None:
    where = ["--address", f"{server.user}@{server.address}", "--port", str(server.port)]
    key = client.folder.parent / "client/.ssh/id_test"
    done = client.dray("attach", *words[:1], "my_dsvm", *where, "--identity-file", str(key), *words[1:])
    assert done.returncode == 0, done.stderr.decode() + server.log()


def test_a_container_behind_ssh_is_the_users_with_a_name_and_a_home_and_its_files_are_theirs(
    client: Shell, far: Server
) -> None:
    attached(client, far, "remotedocker", "--image", BASE)
    client.write(
        "train.py",
        "import getpass, os, pathlib, dray\n"
        "print(os.getuid(), getpass.getuser(), os.environ['USER'], os.path.expanduser('~'))\n"
        "pathlib.Path.home().joinpath('.cache').mkdir()\n"
        "dray.log(loss=1)\nopen('outputs/model', 'w').write('m')\n",
    )

    done = client.dray("submit", "-c", "my_dsvm", "train.py")

    assert done.stdout.decode() == f"{far.uid} {far.user} {far.user} /dray/home\n", done.stderr.decode()
    assert shown(client)["metrics"]["loss"]["value"] == 1
    assert client.dray("outputs", "--to", "got").returncode == 0
    assert (client.folder / "got/outputs/model").exists() or (client.folder / "got/model").exists()
    owners = {path.stat().st_uid for path in far.home.joinpath(".local").rglob("*")}
    assert owners == {far.uid}
    assert not list(far.home.rglob("attempts/1/home"))


def test_the_old_words_attach_it_and_a_vm_takes_an_image_without_a_second_attach(
    client: Shell, far: Server
) -> None:
    done = client.dray("computetarget", "attach", "remotedocker", "--name", "my_dsvm", "--address", far.address,
                       "--port", str(far.port), "--username", far.user, "--password", far.password)  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    where = ["--address", f"{far.user}@{far.address}", "--port", str(far.port), "--password", far.password]
    assert client.dray("attach", "vm", "plain", *where).returncode == 0

    client.write("s.py", "import os; print(os.getcwd())")

    assert client.dray("submit", "-c", "plain", "--image", BASE, "s.py").stdout == b"/dray/code\n"
    assert client.dray("submit", "-c", "plain", "s.py").stdout.endswith(b"/code\n")
    assert client.dray("submit", "-c", "my_dsvm", "--image", BASE, "s.py").stdout == b"/dray/code\n"


@pytest.mark.parametrize("who", ["image", "root", "1234:1234"])
def test_files_of_a_container_of_somebody_else_become_the_users(
    client: Shell, far: Server, docker: Docker, who: str
) -> None:
    image = docker.build("dray-test/other:1", f"FROM {BASE}\nRUN useradd -u 4321 other\nUSER other\n")
    attached(client, far, "remotedocker")
    client.write("s.py", "import os, dray\nprint(os.getuid())\ndray.log(x=1)\nos.umask(0o077)\nos.mkdir('outputs/deep')\nopen('outputs/deep/f', 'w').write('1')\n")  # fmt: skip

    done = client.dray("submit", "-c", "my_dsvm", "--image", image, "--user", who, "s.py")

    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    assert done.stdout == {"image": b"4321\n", "root": b"0\n"}.get(who, b"1234\n")
    assert {path.stat().st_uid for path in far.home.joinpath(".local").rglob("*")} == {far.uid}
    assert client.dray("outputs", "--to", "got").returncode == 0, "they can be read"


def test_a_container_behind_ssh_outlives_its_links_and_its_client(client: Shell, far: Server) -> None:
    attached(client, far, "remotedocker", "--image", BASE)
    client.write(
        "s.py",
        "import time, dray\nfor i in range(120):\n    print('line', i)\n    dray.log(i=i)\n    time.sleep(0.05)\n",
    )
    run = client.detached("-c", "my_dsvm", "s.py")

    with client.start("follow", run) as following:
        for _ in range(2):
            time.sleep(1.0)
            far.cut()
        out, err = following.communicate(timeout=60)
    with client.start("follow", run) as killed:
        killed.kill()

    assert out == b"".join(b"line %d\n" % i for i in range(120)), err.decode()
    assert client.dray("logs", run).stdout == out
    ended = shown(client, run)
    assert (ended["status"], ended["metrics"]["i"]["value"]) == ("completed", 119)


def test_a_private_image_is_pulled_behind_ssh_and_the_password_stays_on_no_disk_there(
    client: Shell, far: Server, image: str, private: str
) -> None:
    login = f"{USER}@{private}"
    client.env["DRAY_REGISTRY_PASSWORD"] = PASSWORD
    attached(client, far, "remotedocker", "--image", image, "--registry-login", login)
    del client.env["DRAY_REGISTRY_PASSWORD"]

    done = client.dray("submit", "-c", "my_dsvm", "--", "echo", "in")

    assert done.stdout == b"in\n", done.stderr.decode()
    basic = base64.b64encode(f"{USER}:{PASSWORD}".encode())
    for path in far.home.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert PASSWORD.encode() not in data, path
            assert basic not in data, path
    run = shown(client)["id"]
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"dray-login-{run}")]
