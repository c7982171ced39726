"""The same with podman, as root; its rootless kinds by their words only (test_words.py)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.dray_shell import Shell, wait_until
from tests.docker.registry import PASSWORD, USER, new_registry
from tests.docker.world import base_tar, require

IMAGE = "dray-test/podman:1"
# What this kind of machine needs: no systemd, both generations of cgroups, no right to raise limits.
CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables for a podman with storage of its own, and the base image in it."""
    if os.geteuid() != 0 or not shutil.which("podman") or not shutil.which("runc"):
        require("podman", "root, podman and runc are needed")
    folder = tmp_path_factory.mktemp("podman")
    (folder / "containers.conf").write_text(CONF)
    storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    (folder / "storage.conf").write_text(storage)
    env = {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        # There may be another engine's command on the PATH, which has nothing to do with this one.
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    run({**env}, "import", str(base_tar()), IMAGE)
    yield env
    run(env, "rm", "--all", "--force")
    for place in sorted(Path("/proc/mounts").read_text().splitlines(), key=len, reverse=True):
        where = place.split()[1]
        if where.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", where], check=False, capture_output=True)


def run(env: dict[str, str], *words: str) -> str:
    done = subprocess.run(["podman", *words], env={"HOME": "/root", **env}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture
def shell(podman: dict[str, str], tmp_path: Path) -> Iterator[Shell]:
    project = tmp_path / "project"
    project.mkdir()
    made = Shell(project, tmp_path / "home")
    made.env.update(podman)
    yield made
    assert run(podman, "ps", "--all", "--quiet") == ""


def shown(shell: Shell, name: str = "@last") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell.dray("show", name, "--json").stdout)
    return found


def test_a_script_its_numbers_its_files_and_its_code_come_back_from_podman(shell: Shell) -> None:
    shell.write(
        "s.py",
        "import dray\ndray.log(loss=2)\nopen('outputs/x', 'w').write('1')\nprint('in')\nraise SystemExit(4)",
    )

    done = shell.dray("submit", "--engine", "podman", "--image", IMAGE, "s.py")

    assert (done.returncode, done.stdout) == (4, b"in\n"), done.stderr.decode()
    made = shown(shell)
    assert (made["metrics"]["loss"]["value"], made["outputs"][0]["path"]) == (2, "x")
    assert made["environment"]["container"]["engine"] == "podman"


def test_secrets_cancel_and_a_missing_program_are_as_with_docker(
    shell: Shell, podman: dict[str, str]
) -> None:
    shell.write("s.py", "import os, time\nprint(os.environ['TOKEN'])\ntime.sleep(100)")
    words = ["--engine", "podman", "--image", IMAGE]
    done = shell.dray("submit", "-d", *words, "--secret", "TOKEN", "s.py", env={"TOKEN": "not-to-be-seen"})
    name = done.stdout.decode().strip()
    wait_until(lambda: shell.dray("logs", name).stdout == b"***\n")
    assert "not-to-be-seen" not in run(podman, "container", "inspect", name)
    shell.dray("cancel", name)
    wait_until(lambda: shown(shell, name)["status"] == "canceled")

    missing = shell.dray("submit", *words, "--", "no-such-program")
    assert missing.returncode == 125
    assert b"was not found in the image" in missing.stderr


def test_a_dockerfile_is_built_by_podman_once(shell: Shell) -> None:
    shell.write("Dockerfile", f"FROM localhost/{IMAGE}\nRUN echo made > /made\n")
    words = ["submit", "--engine", "podman", "--dockerfile", "Dockerfile", "--", "cat", "/made"]

    first, second = shell.dray(*words), shell.dray(*words)

    assert first.stdout == second.stdout == b"made\n", first.stderr.decode()
    assert b"building" in first.stderr
    assert b"building" not in second.stderr


def test_a_private_image_is_pulled_by_podman_with_the_login_of_the_submit_or_of_the_machine(
    shell: Shell, podman: dict[str, str], tmp_path: Path
) -> None:
    conf = tmp_path / "registries.conf"
    shell.env["CONTAINERS_REGISTRIES_CONF"] = str(conf)
    for host in new_registry(tmp_path, is_private=True):
        conf.write_text(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n')
        env = {**podman, "CONTAINERS_REGISTRIES_CONF": str(conf)}
        image = f"{host}/ana/secret:1"
        run(env, "tag", IMAGE, image)
        run(env, "push", "--creds", f"{USER}:{PASSWORD}", image)
        words = ["submit", "--engine", "podman", "--image", image]

        run(env, "rmi", image)
        refused = shell.dray(*words, "--", "true")
        login = ["--registry-login", f"{USER}@{host}"]
        ours = shell.dray(*words, *login, "--", "echo", "in", env={"DRAY_REGISTRY_PASSWORD": PASSWORD})
        run(env, "rmi", image)
        own = tmp_path / "auth.json"
        own.write_text(
            json.dumps({"auths": {host: {"auth": base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}}})
        )
        theirs = shell.dray(
            *words, "--registry-login", "bob@ghcr.io", "--", "echo", "in",
            env={"REGISTRY_AUTH_FILE": str(own), "DRAY_REGISTRY_PASSWORD": "something"},
        )  # fmt: skip
        run(env, "rmi", image)

        assert refused.returncode == 125
        assert b"--registry-login" in refused.stderr, refused.stderr.decode()
        assert ours.stdout == b"in\n", ours.stderr.decode()
        assert theirs.stdout == b"in\n", theirs.stderr.decode()
