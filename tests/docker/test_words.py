"""What engines say and are told, without any engine: text in, value out. nerdctl, CDI and NVIDIA by recorded answers."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.runner.containers import building, engines, gpus, images, users, words
from dray.runner.containers.engines import ContainerFailed, Facts
from dray.runner.containers.gpus import Toolkit

DOCKER: dict[str, Any] = {
    "ServerVersion": "28.1.1", "Name": "gpu1", "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
    "Runtimes": {"io.containerd.runc.v2": {}, "nvidia": {"path": "nvidia-container-runtime"}, "runc": {}},
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"], "InitBinary": "docker-init", "MemoryLimit": True, "MemTotal": 1 << 35,
}  # fmt: skip
# As nerdctl 1.7 answers `info --format '{{json .}}'`: docker's names, fewer of them.
NERDCTL: dict[str, Any] = {
    "ID": "x", "Driver": "overlayfs", "Name": "box", "ServerVersion": "v1.7.13", "SecurityOptions": ["name=rootless"],
    "CgroupDriver": "systemd", "CgroupVersion": "2", "MemTotal": 8 << 30, "OSType": "linux", "MemoryLimit": True,
}  # fmt: skip
PODMAN: dict[str, Any] = {
    "host": {"hostname": "lab", "security": {"rootless": True, "selinuxEnabled": True}, "memTotal": 4 << 30,
             "ociRuntime": {"name": "crun"}, "cgroupControllers": ["cpu", "memory"]},
    "version": {"Version": "5.4.0"},
}  # fmt: skip


def test_each_engine_is_understood_in_its_own_words() -> None:
    docker = engines.read_facts("docker", DOCKER)
    assert (docker.version, docker.name, docker.is_rootless, "nvidia" in docker.runtimes) == (
        "28.1.1",
        "gpu1",
        False,
        True,
    )
    nerdctl = engines.read_facts("nerdctl", NERDCTL)
    assert (nerdctl.version, nerdctl.is_rootless, nerdctl.memory) == ("v1.7.13", True, 8 << 30)
    podman = engines.read_facts("docker", PODMAN)  # `docker` may be another name of podman
    assert (podman.version, podman.is_rootless, podman.has_selinux) == ("5.4.0", True, True)
    assert engines.dialect_of("docker", PODMAN) == "podman"


@pytest.mark.parametrize("endpoint", ["ssh://ana@box", "tcp://10.0.0.1:2375", "npipe:////./pipe/docker"])
def test_an_endpoint_elsewhere_is_seen_as_such(endpoint: str) -> None:
    context = [{"Name": "far", "Endpoints": {"docker": {"Host": endpoint}}}]
    assert engines.endpoint_of(context) == ("far", endpoint)
    assert endpoint in (engines.far_away(endpoint) or "")
    assert engines.far_away("unix:///run/user/1000/docker.sock") is None


@pytest.mark.parametrize(
    ("engine", "facts", "words_of_it"),
    [
        ("docker", Facts(), ["--user", "1000:100", "--group-add", "27"]),
        ("docker", Facts(is_remapped=True), ["--userns", "host", "--user", "1000:100", "--group-add", "27"]),
        ("docker", Facts(is_rootless=True), ["--user", "0:0"]),
        ("nerdctl", Facts(is_rootless=True), ["--user", "0:0"]),
        ("podman", Facts(is_rootless=True), ["--userns", "keep-id", "--user", "1000:100"]),
        ("podman", Facts(), ["--user", "1000:100", "--group-add", "27"]),
    ],
)
def test_under_every_kind_of_engine_the_files_are_the_users(
    engine: str, facts: Facts, words_of_it: list[str]
) -> None:
    who = users.choose(engine, facts, 1000, 100, [100, 27], None)
    assert (who.words, who.is_own) == (words_of_it, True)


def test_the_list_of_users_has_the_user_once_and_all_others() -> None:
    theirs = (
        "root:x:0:0:root:/root:/bin/bash\njovyan:x:1000:100::/home/jovyan:/bin/sh\nana:x:7:7::/x:/bin/sh\n"
    )

    lines = users.passwd(theirs, "ana", 1000, 100, "/dray/home").splitlines()

    assert lines == ["root:x:0:0:root:/root:/bin/bash", "ana:x:1000:100::/dray/home:/bin/sh"]
    assert users.group("users:x:100:\n", "ana", 100) == "users:x:100:\n"
    assert users.group("ana:x:5:\n", "ana", 100).endswith("dray100:x:100:\n")


# Of the five broken hosts, and a sixth, what each is told: the first words of the command that mends it.
BROKEN = [
    ("docker", Facts(), Toolkit(has_gpu=True), "nvidia-container-toolkit"),
    ("docker", Facts(), Toolkit(has_gpu=True, ctk="/usr/bin/nvidia-ctk"), "sudo nvidia-ctk runtime configure"),
    ("docker", Facts(), Toolkit(has_gpu=True, snap=True, hook="/usr/bin/x"), "sudo snap remove docker"),
    ("docker", Facts(), Toolkit(has_gpu=True, hook="/x", driver_trouble="Driver/library version mismatch"), "reboot"),
    ("docker", Facts(), Toolkit(has_gpu=True, hook="/x", driver_trouble="couldn't communicate with the NVIDIA driver"), "sudo modprobe nvidia"),
    ("podman", Facts(), Toolkit(has_gpu=True, ctk="/usr/bin/nvidia-ctk"), "sudo nvidia-ctk cdi generate"),
    ("podman", Facts(), Toolkit(has_gpu=True), "nvidia-container-toolkit"),
    ("docker", Facts(), Toolkit(), "there is no NVIDIA GPU"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "facts", "toolkit", "mends"), BROKEN)
def test_each_broken_machine_is_told_by_name_with_what_mends_it(
    engine: str, facts: Facts, toolkit: Toolkit, mends: str
) -> None:
    with pytest.raises(ContainerFailed, match=mends) as told:
        gpus.way(engine, facts, toolkit)
    assert told.value.kind == "no-gpu-in-containers"


@pytest.mark.parametrize(
    ("engine", "facts", "toolkit", "way", "line"),
    [
        ("docker", Facts(), Toolkit(has_gpu=True, hook="/x"), "gpus", '--gpus "device=GPU-1,GPU-2" --env NVIDIA_DRIVER_CAPABILITIES=compute,utility'),
        ("docker", Facts(runtimes=["nvidia"]), Toolkit(has_gpu=True), "runtime", "--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2 --env NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        ("docker", Facts(version="28.1", cdi=["/etc/cdi"]), Toolkit(has_gpu=True, cdi_files=["/etc/cdi/nvidia.yaml"]), "cdi", "--device nvidia.com/gpu=GPU-1 --device nvidia.com/gpu=GPU-2"),
        ("podman", Facts(), Toolkit(has_gpu=True, cdi_files=["/etc/cdi/nvidia.yaml"]), "cdi", "--device nvidia.com/gpu=GPU-1 --device nvidia.com/gpu=GPU-2"),
    ],
)  # fmt: skip
def test_the_leased_gpus_and_no_others_get_in_by_what_the_engine_has(
    engine: str, facts: Facts, toolkit: Toolkit, way: str, line: str
) -> None:
    assert gpus.way(engine, facts, toolkit) == way
    assert " ".join(gpus.words(way, ["GPU-1", "GPU-2"])) == line


def test_without_gpus_an_image_that_asks_for_all_gets_none() -> None:
    assert gpus.words("gpus", []) == []
    assert gpus.none_words(["NVIDIA_VISIBLE_DEVICES"]) == ["--env", "NVIDIA_VISIBLE_DEVICES=void"]
    assert gpus.none_words(["PATH"]) == []


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].', "nvidia-container-toolkit"),
        ("docker: Error response from daemon: Unknown runtime specified nvidia.", "nvidia-ctk runtime configure"),
        ("docker: Error response from daemon: unknown or invalid runtime name: nvidia.", "nvidia-ctk runtime configure"),
        ('could not select device driver "cdi" with capabilities: []', "cdi generate"),
        ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=GPU-1", "cdi generate"),
        ("nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown", "reboot"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown", "modprobe"),
        ("Failed to initialize NVML: Unknown Error", "daemon-reload"),
    ],
)  # fmt: skip
def test_what_engines_say_of_gpus_is_explained(said: str, means: str) -> None:
    assert means in (gpus.explain(said) or "")


def test_other_troubles_are_left_as_they_are() -> None:
    assert gpus.explain("docker: Error response from daemon: no such image") is None


@pytest.mark.parametrize(
    ("name", "said", "means"),
    [
        ("ghcr.io/a/b:1", "denied: requested access to the resource is denied", "docker login ghcr.io"),
        ("x:1", "manifest unknown", "there is no image `x:1`"),
        ("x:1", 'Get "https://r/v2/": dial tcp: lookup r: no such host', "cannot be reached"),
        ("x:1", "disk quota", "could not be pulled: disk quota"),
    ],
)
def test_why_an_image_cannot_be_had_is_told(name: str, said: str, means: str) -> None:
    assert means in images.why_no_image(name, said)


def test_of_an_engines_words_the_telling_ones_are_kept() -> None:
    said = "WARNING: no swap\ndocker: Error response from daemon: it is broken.\nSee 'docker run --help'.\n"
    assert engines.telling(said) == "it is broken."


def test_a_mount_survives_any_name() -> None:
    assert words.mount_word(("/a,b", '/c"d', True)) == 'type=bind,"src=/a,b","dst=/c""d",readonly'


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40), max_size=3))  # fmt: skip
def test_secrets_come_out_of_a_shell_as_they_were(values: dict[str, str]) -> None:
    values = {f"T_{name}": value for name, value in values.items()}
    text = words.exports(values) + b"exec env -0"
    said = subprocess.run(
        ["sh", "-c", text], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True
    ).stdout
    found = dict(row.decode().partition("=")[::2] for row in said.split(b"\0") if row.startswith(b"T_"))
    assert found == values


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM a\nCOPY requirements.txt /r\nADD --chown=1 x/ y/ /z/\n", ["requirements.txt", "x", "y"]),
        ('FROM a AS b\nCOPY ["a b.txt", "/"]\nCOPY --from=b /x /y\n', ["a b.txt"]),
        ("FROM a\n# COPY no\nCOPY ./one \\\n  two /to\n", ["one", "two"]),
        ("FROM a\nADD https://x/y.tar /\n", []),
        ("FROM a\nCOPY . /app\n", None),
        ("FROM a\nCOPY ${what} /app\n", None),
        ("FROM a\nRUN --mount=type=bind,target=/src make\n", None),
    ],
)
def test_what_a_dockerfile_takes_from_the_code_is_seen(text: str, found: list[str] | None) -> None:
    assert building.copied(text) == found


def test_only_what_is_copied_makes_another_image() -> None:
    manifest = {"files": [["needs.txt", "a" * 64, 1, 0], ["train.py", "b" * 64, 1, 0]]}
    changed = {"files": [["needs.txt", "a" * 64, 1, 0], ["train.py", "c" * 64, 1, 0]]}
    other = {"files": [["needs.txt", "d" * 64, 1, 0], ["train.py", "b" * 64, 1, 0]]}
    text = "FROM a\nCOPY needs* /\n"

    digest = building.dockerfile_digest(text, manifest, "")

    assert building.dockerfile_digest(text, changed, "") == digest
    assert building.dockerfile_digest(text, other, "") != digest
    assert building.dockerfile_digest("FROM a\nCOPY . /\n", manifest, "") != building.dockerfile_digest(
        "FROM a\nCOPY . /\n", changed, ""
    )


def test_the_look_into_an_image_is_read_behind_any_banner() -> None:
    said = "== NVIDIA ==\ndray-probe-begin\ndray-probe-shell\ndray-probe-python python3 3.6.9\ndray-probe-passwd\nroot:x:0:0\ndray-probe-group\nroot:x:0:\ndray-probe-end\n"
    found = images.read_look(said)
    assert found == {
        "shell": True,
        "python": "python3",
        "version": "3.6.9",
        "passwd": "root:x:0:0\n",
        "group": "root:x:0:\n",
    }
    assert images.read_look("dray-probe-begin\n") is None
