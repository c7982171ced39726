"""Byte channels, and the hand-shake on top of them."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from dray.core.errors import LinkLost
from dray.core.interfaces import Host
from dray.hosts import Connection, LocalHost, ProcessChannel
from dray.hosts.errors import HostPythonTooOld, HostUnreachable, MachineRefused
from tests.runner.machines import Elsewhere


class HostContract:
    """What every host promises: two pipes to `sh -c WORD`, nothing more."""

    def test_bytes_go_both_ways_unharmed(self, host: Host) -> None:
        sent = os.urandom(3_000_000)
        channel = host.open("head -c 3000000")
        # More than a pipe holds: the reader has to be there while the writer writes.
        import threading

        writer = threading.Thread(target=channel.write, args=(sent,))
        writer.start()
        heard = b""
        while len(heard) < len(sent):
            piece = channel.read(1 << 20)
            assert piece
            heard += piece
        writer.join()
        channel.close()
        assert heard.endswith(sent)

    def test_the_end_is_an_empty_read(self, host: Host) -> None:
        channel = host.open("exit 3")
        while channel.read(1000):
            continue
        channel.close()

    def test_last_words_are_those_of_stderr(self, host: Host) -> None:
        channel = host.open("echo it broke >&2; exit 1")
        while channel.read(1000):
            continue
        assert "it broke" in channel.last_words()
        channel.close()

    def test_waiting_has_a_limit(self, host: Host) -> None:
        channel = host.open("sleep 5")
        while channel.wait_readable(0.3):
            assert channel.read(1000)  # a banner
        assert not channel.wait_readable(0.01)
        channel.close()

    def test_a_program_with_thousands_of_open_files_may_wait_too(self, host: Host) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        try:
            channel = host.open("echo here")
            assert channel.wait_readable(5)
            channel.close()
        finally:
            for fd in held:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_closing_twice_is_fine(self, host: Host) -> None:
        channel = host.open("cat")
        channel.close()
        channel.close()

    def test_it_says_where_it_is(self, host: Host) -> None:
        assert host.describe()


class TestLocalHost(HostContract):
    @pytest.fixture
    def host(self) -> Host:
        return LocalHost()


class TestAnotherUsersShell(HostContract):
    @pytest.fixture
    def host(self) -> Iterator[Host]:
        machine = Elsewhere()
        yield machine.host
        machine.clean()


class _Program(Host):
    """A host on which `python3` is some program of the test's."""

    name = "odd"

    def __init__(self, folder: Path, text: str) -> None:
        self.program = folder / "python3"
        self.program.write_text(text)
        self.program.chmod(0o755)
        self.folder = folder

    def open(self, word: str, *, without: Collection[str] = ()) -> ProcessChannel:
        return ProcessChannel(
            ["sh", "-c", word], env={"PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.folder)}
        )

    def describe(self) -> str:
        return "odd machine"


def test_a_machine_without_python_is_told_in_its_own_words(tmp_path: Path) -> None:
    host = _Program(tmp_path, "#!/bin/sh\necho python3: command not found >&2\nexit 127\n")
    with pytest.raises(HostUnreachable, match="command not found"):
        Connection(host).call({"op": "probe"})


def test_a_python_that_is_too_old_gets_a_sentence(tmp_path: Path) -> None:
    # The program of the channel runs under a Python that calls itself 3.6.
    pretend = "import sys; sys.version_info = (3, 6, 9); sys.version = '3.6.9 (old)'; exec(sys.argv[1])"
    host = _Program(tmp_path, f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$4"\n')
    with pytest.raises(HostPythonTooOld, match=r"3\.6\.9; 3\.8 or newer"):
        Connection(host, str(tmp_path / "root")).call({"op": "probe"})


def test_a_channel_that_ends_in_the_middle_is_a_lost_link(tmp_path: Path) -> None:
    connection = Connection(LocalHost(), str(tmp_path), sys.executable)
    connection.call({"op": "probe"})
    connection._channel.close()
    with pytest.raises((LinkLost, ValueError, OSError)):
        connection.call({"op": "probe"})


def test_garbage_on_the_channel_is_no_frame(tmp_path: Path) -> None:
    host = _Program(tmp_path, "#!/bin/sh\nwhile :; do echo lots of nonsense; done | head -c 3000000\n")
    with pytest.raises(HostUnreachable):
        Connection(host).call({"op": "probe"})


def test_an_unknown_request_is_refused_by_name(tmp_path: Path) -> None:
    with (
        Connection(LocalHost(), str(tmp_path), sys.executable) as connection,
        pytest.raises(MachineRefused, match="`dance`"),
    ):
        connection.call({"op": "dance"})


def test_the_runner_is_sent_once_per_version(tmp_path: Path) -> None:
    for _ in range(2):
        with Connection(LocalHost(), str(tmp_path), sys.executable) as connection:
            connection.call({"op": "probe"})
    (unpacked,) = (tmp_path / "runner").iterdir()
    before = unpacked.stat().st_ctime_ns
    with Connection(LocalHost(), str(tmp_path), sys.executable) as connection:
        connection.call({"op": "probe"})
    assert unpacked.stat().st_ctime_ns == before
