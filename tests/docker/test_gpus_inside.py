"""GPUs in containers, as far as a machine with a fake driver can show: what is asked of the engine, and when that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.dray_shell import Shell
from tests.docker.world import BASE, Docker
from tests.gpu.fake import A100, FakeNvml


@pytest.fixture
def driver(tmp_path: Path, shell: Shell) -> FakeNvml:
    """A machine with one GPU, and leases of its own."""
    fake = FakeNvml(tmp_path / "driver")
    fake.gpu()
    shell.env.update(fake.environ(), DRAY_LEASES=str(tmp_path / "leases"))
    shell.env["PATH"] = f"{tmp_path}/tools:{shell.env['PATH']}"
    (tmp_path / "tools").mkdir()
    return fake


def shown(shell: Shell) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell.dray("show", "@last", "--json").stdout)
    return found


def test_without_a_toolkit_the_run_is_refused_before_anything_is_pulled(
    shell: Shell, driver: FakeNvml
) -> None:
    shell.write("s.py", "")

    done = shell.dray("submit", "--gpus", "1", "--image", "127.0.0.1:1/never/pulled:1", "s.py")

    assert done.returncode == 125
    assert b"nvidia-container-toolkit" in done.stderr
    assert b"pulling" not in done.stderr
    assert shown(shell)["reason"]["kind"] == "no-gpu-in-containers"
    assert b"nvidia-container-toolkit" in shell.dray("doctor").stdout


def test_the_leased_gpu_is_handed_to_the_engine_by_its_uuid(
    shell: Shell, driver: FakeNvml, tmp_path: Path
) -> None:
    # The hook is there, as far as files tell; the engine has none, and says so when it is asked.
    hook = tmp_path / "tools/nvidia-container-runtime-hook"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    shell.write("s.py", "")

    done = shell.dray("submit", "--gpus", "1", "--image", BASE, "s.py")

    assert done.returncode == 125
    assert b"docker cannot hand in GPUs" in done.stderr, done.stderr.decode()
    line = shown(shell)["environment"]["container"]["line"]
    assert f"--gpus '\"device={A100}\"'" in line


def test_a_run_without_gpus_gets_none_though_its_image_asks_for_all(
    shell: Shell, driver: FakeNvml, docker: Docker
) -> None:
    image = docker.build("dray-test/cuda:1", f"FROM {BASE}\nENV NVIDIA_VISIBLE_DEVICES=all\n")

    done = shell.dray(
        "submit", "--gpus", "0", "--image", image, "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES"
    )

    assert done.stdout == b"void\n", done.stderr.decode()
