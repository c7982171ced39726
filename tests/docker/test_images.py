"""Images: pulled, by digest, from a Dockerfile of the project, with an environment in them; made once, and cleared away."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import http.server
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.runner.containers.building import recipe
from tests.cli.dray_shell import Shell, wait_until
from tests.docker.registry import new_registry
from tests.docker.world import BASE, Docker


def shown(shell: Shell, run: str = "@last") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell.dray("show", run, "--json").stdout)
    return found


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Open to all."""
    yield from new_registry(tmp_path_factory.mktemp("registry"))


def test_an_image_is_pulled_once_shown_live_and_recorded_by_its_digest(
    shell: Shell, docker: Docker, registry: str
) -> None:
    name = f"{registry}/ana/small:1"
    docker.docker("tag", BASE, name)
    digest = docker.docker("push", name).split("digest: ")[1].split()[0]
    docker.docker("rmi", name)
    shell.write("s.py", "print('ran')")

    first = shell.dray("submit", "--image", name, "s.py")
    second = shell.dray("submit", "--image", name, "s.py")

    assert first.stdout == second.stdout == b"ran\n", first.stderr.decode()
    assert b"Pulling from ana/small" in first.stderr
    assert b"Pulling" not in second.stderr
    container = shown(shell)["environment"]["container"]
    assert container["digest"] == f"{registry}/ana/small@{digest}"
    assert container["digest"] in container["line"]
    first_run = json.loads(shell.dray("runs", "--json").stdout)[1]["id"]
    assert b"Digest: " + digest.encode() in shell.dray("logs", first_run, "--stream", "image").stdout
    docker.docker("rmi", name)
    by_digest = shell.dray("submit", "--image", container["digest"], "s.py")
    assert by_digest.stdout == b"ran\n", by_digest.stderr.decode()


def test_an_image_that_does_not_exist_and_a_registry_that_does_not_answer_are_told(
    shell: Shell, registry: str
) -> None:
    shell.write("s.py", "")
    missing = shell.dray("submit", "--image", f"{registry}/no/such:1", "s.py")
    assert missing.returncode == 125
    assert b"there is no image" in missing.stderr
    assert shown(shell)["reason"]["kind"] == "image-failed"

    away = shell.dray("submit", "--image", "127.0.0.1:1/x/y:1", "s.py")
    assert away.returncode == 125
    assert b"cannot be reached from the machine" in away.stderr


def test_a_dockerfile_of_the_project_is_built_once_whatever_changes_in_the_code(
    shell: Shell, docker: Docker
) -> None:
    shell.write("Dockerfile", f"FROM {BASE}\nCOPY needs.txt /needs.txt\nRUN cat /needs.txt > /built\n")
    shell.write("needs.txt", "one")
    shell.write("s.py", "print(open('/built').read())")

    first = shell.dray("submit", "--dockerfile", "Dockerfile", "s.py")
    shell.write("s.py", "print(open('/built').read(), 'again')")
    second = shell.dray("submit", "--dockerfile", "Dockerfile", "s.py")
    shell.write("needs.txt", "two")
    third = shell.dray("submit", "--dockerfile", "Dockerfile", "s.py")

    assert [one.stdout for one in (first, second, third)] == [b"one\n", b"one again\n", b"two again\n"]
    built = [b"building Dockerfile" in one.stderr for one in (first, second, third)]
    assert built == [True, False, True]


def test_a_dockerfile_that_fails_says_where(shell: Shell) -> None:
    shell.write("Dockerfile", f"FROM {BASE}\nRUN echo trouble-here && false\n")
    done = shell.dray("submit", "--dockerfile", "Dockerfile", "--", "true")

    assert done.returncode == 125
    assert b"trouble-here" in done.stderr
    assert b"`Dockerfile` could not be built" in done.stderr
    assert shell.dray("submit", "--dockerfile", "Dokerfile", "--", "true").returncode == 2


def test_two_runs_share_one_build(shell: Shell, docker: Docker) -> None:
    shell.write("Dockerfile", f"FROM {BASE}\nRUN sleep 2 && date +%N > /built\n")

    pair = [shell.start("submit", "--dockerfile", "Dockerfile", "--", "cat", "/built") for _ in range(2)]
    said = [one.communicate(timeout=60) for one in pair]

    assert said[0][0] == said[1][0] != b"", said
    assert sum(b"building Dockerfile" in err for _, err in said) == 1
    assert sum(b"another run is making the same image" in err for _, err in said) == 1


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index with one package, on a port of this machine."""
    folder = tmp_path / "index/simple/toy-dray"
    folder.mkdir(parents=True)
    (tmp_path / "index/simple/index.html").write_text('<a href="toy-dray/">toy-dray</a>')
    wheel = folder / "toy_dray-1.0-py3-none-any.whl"
    files = {
        "toy_dray.py": b"WORD = 'installed'\n",
        "toy_dray-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: toy-dray\nVersion: 1.0\n",
        "toy_dray-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in {**files, "toy_dray-1.0.dist-info/RECORD": record.encode()}.items():
            archive.writestr(name, data)
    (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path / "index"))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_environment_is_put_into_a_base_image_once(shell: Shell, docker: Docker, index: str) -> None:
    shell.write("requirements.txt", f"--index-url {index}\ntoy-dray==1.0\n")
    shell.write("s.py", "import sys, toy_dray\nprint(toy_dray.WORD, sys.prefix)")
    words = ["--network", "host", "--image", BASE]

    first = shell.dray("submit", *words, "s.py")
    shell.write("s.py", "import toy_dray\nprint('changed', toy_dray.WORD)")
    second = shell.dray("submit", *words, "s.py")

    assert first.stdout == b"installed /opt/dray/env\n", first.stderr.decode()
    assert second.stdout == b"changed installed\n", second.stderr.decode()
    built = [b"installing the environment" in one.stderr for one in (first, second)]
    assert built == [True, False]
    assert shown(shell)["environment"]["digest"]


def test_an_environment_that_cannot_be_installed_says_why(shell: Shell, docker: Docker, index: str) -> None:
    shell.write("requirements.txt", f"--index-url {index}\ntoy-dray==2.0\n")

    done = shell.dray("submit", "--network", "host", "--image", BASE, "--", "true")

    assert done.returncode == 125
    assert shown(shell)["reason"]["kind"] == "environment-failed"
    assert b"toy-dray==2.0" in done.stderr
    assert [name for name in docker.containers() if name.startswith("dray-build")] == []


def test_an_image_without_uv_gets_its_environment_by_pip(docker: Docker, index: str) -> None:
    script = recipe({"packages": ["toy-dray==1.0"], "index": {"index_url": index}})
    script += "/opt/dray/env/bin/python -c 'import toy_dray; print(toy_dray.WORD)'\n"

    said = docker.docker("run", "--rm", "--network", "host", BASE, "/bin/sh", "-c", script)

    assert said.splitlines()[-1] == "installed"


def test_gc_removes_the_images_that_dray_made_and_nothing_else(shell: Shell, docker: Docker) -> None:
    theirs = docker.build("theirs:1", f"FROM {BASE}\nRUN echo theirs > /x\n")
    shell.write("Dockerfile", f"FROM {BASE}\nRUN echo mine > /y\n")
    assert shell.dray("submit", "--dockerfile", "Dockerfile", "--", "true").returncode == 0
    made = docker.docker("images", "--filter", "label=dray.made", "--format", "{{.Repository}}:{{.Tag}}",
                         f"--filter=since={theirs}")  # fmt: skip
    assert made.startswith("dray/build:")

    live = shell.detached("--dockerfile", "Dockerfile", "--", "sleep", "100")
    wait_until(lambda: docker.containers() == [live])
    before = set(docker.images())
    assert shell.dray("gc", "--yes").returncode == 0
    in_use = shell.dray("gc", "--yes", "--older-than", "1s")
    assert set(docker.images()) == before, in_use.stderr.decode()
    shell.dray("cancel", live, "--grace", "0")
    wait_until(lambda: shown(shell, live)["status"] == "canceled")
    time.sleep(1.1)
    done = shell.dray("gc", "--yes", "--older-than", "1s")

    assert done.returncode == 0
    assert b"image" in done.stdout, (done.stdout, done.stderr)
    assert before - set(docker.images()) == {made}
    assert {theirs, BASE} <= set(docker.images())
    with contextlib.suppress(AssertionError):
        docker.docker("rmi", theirs)
