"""A machine with nothing but busybox's tools and a Python, as on Alpine: no bash, no GNU tools, no machine-id, no systemd.

It is a root folder of its own, in mounts that nobody else sees. Its Python is this system's, so its C library is too: musl is not tried here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.dray_shell import Shell
from tests.ssh.test_machines import words
from tests.ssh.world import Server, World

PYTHON = "/usr/bin/python3"


@pytest.fixture
def root() -> Iterator[Path]:
    """An empty root folder, where sshd accepts one: below folders that only root may write."""
    folder = Path(f"/run/dray-small-{os.urandom(4).hex()}")
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def small(world: World, root: Path) -> Server:
    busybox = shutil.which("busybox")
    if busybox is None:
        if "sshd" in os.environ.get("DRAY_REQUIRE", "").split(","):
            pytest.fail("busybox is required here")
        pytest.skip("needs busybox (Debian: busybox-static)")
    for name in ("bin", "usr/bin", "usr/lib", "etc", "proc", "dev", "tmp", "home"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(busybox, root / "bin/busybox")
    for tool in subprocess.run(
        [busybox, "--list"], capture_output=True, text=True, check=True
    ).stdout.split():
        if not (root / "bin" / tool).exists():
            (root / "bin" / tool).symlink_to("busybox")
    shutil.copy(os.path.realpath(PYTHON), root / "usr/bin/python3")
    for name in ("lib", "lib64"):  # this system's C library, and Python's own
        if os.path.islink(f"/{name}"):
            (root / name).symlink_to(f"usr/{name}")
    (root / "usr/lib64").mkdir()
    (root / "etc/os-release").write_text('PRETTY_NAME="Small Linux"\n')
    number = len(world.servers)
    home = world.folder / f"host{number}" / "home"
    mounts = [
        *(f"mount --bind -o ro /usr/{name} {root}/usr/{name}" for name in ("lib", "lib64")),
        f"mkdir -p '{root}{home}'", f"mount --bind '{home}' '{root}{home}'",
        f"cp /etc/passwd /etc/group {root}/etc/", f"mount -t proc proc {root}/proc", f"mount --bind /dev {root}/dev",
    ]  # fmt: skip
    server = world.known(
        shell="/bin/ash",
        settings=[f"ChrootDirectory {root}", "PrintLastLog no"],
        disguise="; ".join(mounts),
    )
    world.client.configure(f'IdentityFile "{world.client.key}"\n')
    return server


def test_a_machine_with_busybox_and_python_is_enough(world: World, shell: Shell, root: Path) -> None:
    server = small(world, root)
    (server.home / ".profile").write_text("echo Welcome; export FROM=profile\n")
    done = shell.dray("attach", "vm", "small", *words(server))
    assert done.returncode == 0, done.stderr.decode() + server.log()
    assert b"Small Linux" in done.stderr
    assert b"BusyBox" in shell.dray("ssh", "small", "ls --help 2>&1").stdout

    shell.write("data/words.txt", "from the client\n")
    shell.write(
        "job.py",
        "import os, sys, dray\n"
        "dray.log(loss=0.5)\n"
        "print(open('data/words.txt').read().strip(), os.environ['FROM'], os.environ['SHELL'])\n"
        "open('outputs/model', 'wb').write(bytes(3_000_000))\n"
        "sys.exit(4)\n",
    )
    run = shell.dray("submit", "-c", "small", "job.py")
    assert (run.returncode, run.stdout) == (4, b"from the client profile /bin/ash\n"), run.stderr.decode()
    assert shell.dray("outputs", "--to", str(world.folder / "got")).returncode == 0
    assert (world.folder / "got" / "model").stat().st_size == 3_000_000
    assert json.loads(shell.dray("metrics", "--json").stdout)["loss"]["values"] == [0.5]

    sleeper = shell.detached("-c", "small", "--", "sleep", "300")
    assert shell.dray("cancel", sleeper, "--grace", "0").returncode == 0
    assert shell.dray("wait", sleeper).returncode == 143
    assert shell.dray("compute", "rm", "small", "--purge", "-y").returncode == 0
    assert not [name for name in server.files() if "dray" in name]


def test_there_uv_is_what_a_person_is_told_of_when_python_is_missing(
    world: World, shell: Shell, root: Path
) -> None:
    server = small(world, root)
    (root / "usr/bin/python3").unlink()
    done = shell.dray("attach", "vm", "small", *words(server))

    assert done.returncode == 1
    assert b"has no Python 3.8 or newer" in done.stderr
    assert b"--host-python uv" in done.stderr
