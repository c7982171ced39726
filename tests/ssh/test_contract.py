"""The contract of targets, kept over real ssh; and the same on machines with other shells and odd homes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.core.interfaces import Target
from dray.targets import VmOptions, VmTarget
from tests.ssh.world import Server, World
from tests.workspace.contract import TargetContract

NOISE = {
    "/bin/dash": ".profile",
    "/bin/csh": ".cshrc",
    "/bin/tcsh": ".tcshrc",
    "/bin/zsh": ".zshenv",
    "/usr/bin/fish": ".config/fish/config.fish",
}


def vm(world: World, server: Server, monkeypatch: pytest.MonkeyPatch) -> VmTarget:
    """That server as a target of this very process."""
    for name, value in world.client.env.items():
        monkeypatch.setenv(name, value)
    options = VmOptions(
        f"{server.user}@{server.address}", port=server.port, identity_file=str(world.client.key)
    )
    return VmTarget("box", options.checked("box"), world.client.dray_home)


class TestSsh(TargetContract):
    @pytest.fixture
    def target(self, world: World, monkeypatch: pytest.MonkeyPatch) -> Target:
        return vm(
            world, world.known(home="a home with spaces", settings=["Banner /etc/os-release"]), monkeypatch
        )


@pytest.mark.parametrize("shell", sorted(NOISE))
def test_the_login_shell_does_not_matter(
    world: World, monkeypatch: pytest.MonkeyPatch, shell: str, tmp_path: Path
) -> None:
    from dray import Workspace

    server = world.known(shell=shell)
    noise = server.home / NOISE[shell]
    noise.parent.mkdir(parents=True, exist_ok=True)
    noise.write_text("echo Welcome\n")
    for place in (noise, *noise.parents):
        if place == server.home:
            break
        import os

        os.chown(place, server.uid, server.uid)
    (tmp_path / "hi.py").write_text("import sys; print('hi', sys.argv[1:])")

    with Workspace(tmp_path / "history", targets=[vm(world, server, monkeypatch)]) as ws:
        run = ws.submit("hi.py", "a b", "c'd", "!e", "$f", compute="box", cwd=str(tmp_path)).wait()

        assert run.log() == b"hi ['a b', \"c'd\", '!e', '$f']\n"
