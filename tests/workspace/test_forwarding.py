"""Ports of a live run brought here: many at once, large, slow, half-closed, and nobody else's."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray import Run, Workspace
from dray.core.errors import DrayError, UsageError
from dray.core.interfaces import Target
from dray.workspace import Event, Said, Served
from dray.workspace.errors import NotRunning, PortTaken
from tests.runner.machines import USER, Elsewhere, make_user, wait_until
from tests.workspace.liars import Answer, Liar
from tests.workspace.test_targets import ElsewhereTarget

SERVER = """
import os, sys, time
from http.server import HTTPServer, SimpleHTTPRequestHandler, ThreadingHTTPServer
class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words): pass
class Server(ThreadingHTTPServer):
    request_queue_size = 1000
    def handle_error(self, *words): pass
time.sleep(float(sys.argv[3]))
with open('big', 'wb') as file:
    for _ in range(100): file.write(os.urandom(1 << 20))
open('scalars', 'w').write('curve')
Server((sys.argv[2], int(sys.argv[1])), Quiet).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(params=["here", "elsewhere"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target | None]:
    if request.param == "here":
        yield None
        return
    machine = Elsewhere()
    yield ElsewhereTarget(machine)
    machine.clean()


@pytest.fixture
def workspace(target: Target | None, tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "history", targets=[target] if target else []) as made:
        made.name_of_target = target.name if target else "local"  # type: ignore[attr-defined]
        yield made
        for run in made.runs():
            run.cancel(0)


def serving(
    workspace: Workspace, tmp_path: Path, *, host: str = "127.0.0.1", after_s: float = 0
) -> tuple[Run, int]:
    """A run that serves its folder over HTTP, as TensorBoard would, and its port."""
    port = free_port()
    (tmp_path / "code").mkdir(exist_ok=True)
    (tmp_path / "code" / "serve.py").write_text(SERVER)
    run = workspace.submit(
        "serve.py", str(port), host, str(after_s), cwd=str(tmp_path / "code"), compute=workspace.name_of_target  # type: ignore[attr-defined]
    )  # fmt: skip
    run.detach()
    return run, port


def got(url: str, path: str = "scalars") -> bytes:
    with urllib.request.urlopen(f"{url}/{path}", timeout=60) as answer:
        return bytes(answer.read())


def test_a_port_is_waited_for_and_then_brought_here(workspace: Workspace, tmp_path: Path) -> None:
    run, port = serving(workspace, tmp_path, after_s=1.0)
    heard: list[Event] = []
    with run.forward(port, on=heard.append) as forward:
        assert not forward.is_served(port)
        assert forward.wait_served(30)
        assert got(forward.urls[0]) == b"curve"
        wait_until(lambda: any(isinstance(event, Served) for event in heard))
    said = [event.text for event in heard if isinstance(event, Said)]
    assert any(f"nothing serves port {port}" in text or "to start" in text for text in said), said
    assert [event.url for event in heard if isinstance(event, Served)] == forward.urls


def test_100_mb_come_through_whole(workspace: Workspace, tmp_path: Path) -> None:
    run, port = serving(workspace, tmp_path)
    with run.forward(port) as forward:
        assert forward.wait_served(30)
        seen = got(forward.urls[0], "big")
    (there,) = [Path(found) for found in _roots(workspace, run, "code/big")]
    assert len(seen) == 100 << 20
    assert hashlib.sha256(seen).digest() == hashlib.sha256(there.read_bytes()).digest()


def test_200_connections_at_once(workspace: Workspace, tmp_path: Path) -> None:
    run, port = serving(workspace, tmp_path)
    answers: list[bytes] = []
    with run.forward(port) as forward:
        assert forward.wait_served(30)
        threads = [threading.Thread(target=lambda: answers.append(got(forward.urls[0]))) for _ in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [b"curve"] * 200


def test_one_that_reads_nothing_holds_up_no_other_and_fills_no_memory(
    workspace: Workspace, tmp_path: Path
) -> None:
    run, port = serving(workspace, tmp_path)
    with run.forward(port) as forward:
        assert forward.wait_served(30)
        stuck = []
        for _ in range(5):
            one = socket.create_connection(("127.0.0.1", forward.places[port]))
            one.sendall(b"GET /big HTTP/1.0\r\n\r\n")
            stuck.append(one)
        time.sleep(1.0)
        before = _resident()
        assert [got(forward.urls[0]) for _ in range(20)] == [b"curve"] * 20
        assert _resident() - before < 50_000
        for one in stuck:
            one.close()
        assert got(forward.urls[0]) == b"curve"


def test_what_is_sent_reaches_the_run_and_each_side_may_end_first(
    workspace: Workspace, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "sum.py").write_text(
        "import hashlib, socket\n"
        f"door = socket.create_server(('127.0.0.1', {port}))\n"
        "while True:\n"
        "    one, _ = door.accept(); seen = hashlib.sha256()\n"
        "    while data := one.recv(1 << 20): seen.update(data)\n"
        "    one.sendall(seen.hexdigest().encode()); one.close()\n"
    )
    run = workspace.submit("sum.py", cwd=str(tmp_path / "code"), compute=workspace.name_of_target)  # type: ignore[attr-defined]
    run.detach()
    data = os.urandom(30_000_000)
    with run.forward(port) as forward:
        assert forward.wait_served(30)
        with socket.create_connection(("127.0.0.1", forward.places[port])) as one:
            one.sendall(data)
            one.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: one.recv(4096), b""))
    assert answer.decode() == hashlib.sha256(data).hexdigest()


def test_it_ends_with_the_run_and_lets_go_of_the_port(workspace: Workspace, tmp_path: Path) -> None:
    run, port = serving(workspace, tmp_path)
    with run.forward(port) as forward:
        assert forward.wait_served(30)
        threading.Timer(0.2, run.cancel, (0,)).start()
        assert forward.wait(15)
        assert forward.run_ended
        with pytest.raises(ConnectionRefusedError), socket.socket() as probe:
            probe.connect(("127.0.0.1", forward.places[port]))
    with pytest.raises(NotRunning):
        run.wait().forward(port)


def test_a_link_that_breaks_is_taken_up_again(workspace: Workspace, tmp_path: Path) -> None:
    run, port = serving(workspace, tmp_path)
    heard: list[Event] = []
    with run.forward(port, on=heard.append) as forward:
        assert forward.wait_served(30)
        _kill_channels()
        wait_until(lambda: any(isinstance(event, Said) and "back after" in event.text for event in heard))
        assert forward.wait_served(10)
        assert got(forward.urls[0]) == b"curve"


def test_only_this_users_own_processes_get_in(workspace: Workspace, tmp_path: Path) -> None:
    _needs_root()
    make_user("drayother")
    run, port = serving(workspace, tmp_path)
    with run.forward(port) as forward:
        assert forward.wait_served(30)
        code = f"import socket; s = socket.create_connection(('127.0.0.1', {forward.places[port]})); s.sendall(b'GET /scalars HTTP/1.0\\r\\n\\r\\n'); print(s.recv(1000))"
        done = subprocess.run(
            ["/usr/bin/python3", "-c", code],
            user="drayother",
            capture_output=True,
            check=False,
            env={},
            cwd="/",
        )
        assert b"curve" not in done.stdout
        assert b"200 OK" not in done.stdout
        assert got(forward.urls[0]) == b"curve"


def test_it_is_on_no_address_but_this_computers_own(workspace: Workspace, tmp_path: Path) -> None:
    run, port = serving(workspace, tmp_path)
    with run.forward(port) as forward:
        assert forward.wait_served(30)
        rows = (
            Path("/proc/net/tcp").read_text().splitlines() + Path("/proc/net/tcp6").read_text().splitlines()
        )
        listening = [row.split()[1] for row in rows if row.split()[3] == "0A"]
        mine = [row for row in listening if row.endswith(f":{forward.places[port]:04X}")]
    assert mine == [f"0100007F:{forward.places[port]:04X}"]


def test_a_port_of_another_user_is_not_brought_here(workspace: Workspace, tmp_path: Path) -> None:
    _needs_root()
    make_user(USER)
    is_here = workspace.name_of_target == "local"  # type: ignore[attr-defined]
    port = free_port()
    code = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); print('on', flush=True); time.sleep(600)"
    other = subprocess.Popen(
        ["/usr/bin/python3", "-c", code],
        user=USER if is_here else "root",
        stdout=subprocess.PIPE,
        env={},
        cwd="/",
    )
    heard: list[Event] = []
    try:
        assert other.stdout.readline() == b"on\n"
        (tmp_path / "long.py").write_text("import time; time.sleep(600)")
        run = workspace.submit(
            command=["sleep", "600"], cwd=str(tmp_path), compute=workspace.name_of_target  # type: ignore[attr-defined]
        )  # fmt: skip
        run.detach()
        with run.forward(port, on=heard.append) as forward:
            wait_until(lambda: any(isinstance(e, Said) and "another user" in e.text for e in heard))
            assert forward.places == {}
            assert not forward.wait_served(0.5)
    finally:
        other.kill()
        other.communicate()


@pytest.mark.parametrize("host", ["0.0.0.0", "::1", "::", "127.0.0.7"])
def test_whatever_address_the_run_listens_on(tmp_path: Path, host: str) -> None:
    with Workspace(tmp_path / "history") as workspace:
        workspace.name_of_target = "local"  # type: ignore[attr-defined]
        port = free_port()
        (tmp_path / "code").mkdir()
        family = "AF_INET6" if ":" in host else "AF_INET"
        (tmp_path / "code" / "hello.py").write_text(
            f"import socket\ndoor = socket.create_server(({host!r}, {port}), family=socket.{family})\n"
            "while True:\n    one, _ = door.accept(); one.sendall(b'hello'); one.close()\n"
        )
        run = workspace.submit("hello.py", cwd=str(tmp_path / "code"))
        run.detach()
        with run.forward(port) as forward:
            assert forward.wait_served(30)
            with socket.create_connection(("127.0.0.1", forward.places[port])) as one:
                assert one.recv(10) == b"hello"
        run.cancel(0)


def test_words_that_are_no_ports_and_ports_that_are_taken(tmp_path: Path) -> None:
    with Workspace(tmp_path / "history") as workspace, socket.create_server(("127.0.0.1", 0)) as taken:
        run = workspace.submit(command=["sleep", "600"], cwd=str(tmp_path))
        run.detach()
        for word in ("x", "0", "65536", "1:", ":1", "1:2:3", "-1", "1:x"):
            with pytest.raises(UsageError, match="is no port"):
                run.forward(word)
        with pytest.raises(PortTaken, match="cannot be used"):
            run.forward("6006:6006")
        with pytest.raises(UsageError, match="named twice"):
            run.forward(6006, "6006:7001")
        with pytest.raises(PortTaken, match="cannot be used"):
            run.forward(f"6006:{taken.getsockname()[1]}")
        run.cancel(0)
        run.wait()


def test_a_number_that_is_in_use_here_gets_the_next_free_one(tmp_path: Path) -> None:
    with Workspace(tmp_path / "history") as workspace:
        workspace.name_of_target = "local"  # type: ignore[attr-defined]
        run, port = serving(workspace, tmp_path)  # on this very computer: its number is its own
        heard: list[Event] = []
        with run.forward(port, on=heard.append) as forward:
            assert forward.wait_served(30)
            assert port < forward.places[port] <= port + 20
            assert got(forward.urls[0]) == b"curve"
        assert any("stands in for it" in e.text for e in heard if isinstance(e, Said))
        run.cancel(0)


@pytest.mark.parametrize(
    "lies",
    [
        [({"port": 22, "served": True}, b"")],
        [({"port": [], "served": True}, b"")],
        [({"pipe": 1}, b"x" * (3 << 20))],
        [({"pipe": 1, "took": 1 << 40}, b"")],
        [({"pipe": 1, "took": "many"}, b"")],
    ],
)
def test_a_machine_that_lies_about_ports_is_left(tmp_path: Path, lies: list[Answer]) -> None:
    from dray.core.spec import RunSpec

    def answers(request: dict[str, object]) -> list[Answer]:
        if "open" in request or "port" in lies[0][0]:
            return lies
        return [({"port": 6006, "served": True}, b"")] if "op" in request else []

    liar = Liar("liar", answers, waits=True)
    with Workspace(tmp_path / "history", targets=[liar]) as workspace:
        spec = RunSpec(id="abcdefghjk", experiment="e", compute="liar", command=("x",), created=1.0)
        workspace.store.create_run(spec)
        with workspace.run("abcdefghjk").forward(6006) as forward:
            if forward.wait_served(5):
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", forward.places[6006]), timeout=5) as one,
                ):
                    while one.recv(1 << 20):
                        continue
            with pytest.raises(DrayError):
                forward.wait(10)


def _roots(workspace: Workspace, run: Run, path: str) -> list[str]:
    import glob

    homes = [str(workspace.home / "machine"), "/tmp/dray else where */.local/share/dray/machine"]
    return [found for home in homes for found in glob.glob(f"{home}/*/runs/{run.id}/{path}")]


def _resident() -> int:
    rows = Path("/proc/self/status").read_text().splitlines()
    return int(next(row for row in rows if row.startswith("VmRSS")).split()[1])


def _kill_channels() -> None:
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                parent = int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1])
                if parent == os.getpid():
                    os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue


def _needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
