"""Outputs mirrored while a run goes on: growing, rewritten, renamed, killed, cut off, and lied about."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dray import Run, Workspace
from dray.core.errors import DrayError
from dray.core.interfaces import Target
from dray.workspace import Event, Said
from dray.workspace.outputs import Fetched
from tests.runner.machines import Elsewhere, wait_until
from tests.workspace.liars import Answer, Liar
from tests.workspace.test_targets import ElsewhereTarget


@pytest.fixture(params=["here", "elsewhere"])
def target(request: pytest.FixtureRequest) -> Iterator[Target | None]:
    if request.param == "here":
        yield None
        return
    machine = Elsewhere()
    yield ElsewhereTarget(machine)
    machine.clean()


@pytest.fixture
def workspace(target: Target | None, tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "history", targets=[target] if target else []) as made:
        yield made
        for run in made.runs():
            run.cancel(0)


class Script:
    """A run that does what a test says, line by line, and its outputs mirrored meanwhile."""

    def __init__(self, workspace: Workspace, tmp_path: Path) -> None:
        code = tmp_path / "code"
        code.mkdir()
        (code / "obey.py").write_text(
            "import os, time\nat = 0\n"
            "while True:\n"
            "    lines = open('/' + os.environ['ORDERS']).read().splitlines(True)\n"
            "    for line in lines[at:]:\n"
            "        if not line.endswith('\\n'): break\n"
            "        at += 1; exec(line)\n"
            "    time.sleep(0.02)\n"
        )
        self.orders = tmp_path / "orders"
        self.orders.write_text("os.makedirs('outputs', exist_ok=True)\n")
        for folder in (tmp_path, *tmp_path.parents):
            if folder.owner() == "root" and str(folder).startswith("/tmp/"):
                folder.chmod(0o755)
        names = [name for name in workspace.compute_names() if name != "local"]
        orders = {"ORDERS": str(self.orders).lstrip("/")}
        self.run: Run = workspace.submit(
            "obey.py", cwd=str(code), compute=(names or ["local"])[0], env=orders
        )
        self.run.detach()
        self.to = tmp_path / "here"
        self.heard: list[Event] = []
        self.fetched: Sequence[Fetched] = ()
        self.error: DrayError | None = None
        self._thread: threading.Thread | None = None

    def does(self, line: str) -> None:
        with self.orders.open("a") as file:
            file.write(line + "\n")

    def mirrored(self) -> None:
        self._thread = threading.Thread(target=self._mirror)
        self._thread.start()

    def _mirror(self) -> None:
        try:
            self.fetched = self.run.outputs.mirror(self.to, self.heard.append)
        except DrayError as error:
            self.error = error

    def ends(self) -> None:
        self.does("raise SystemExit(0)")
        if self._thread is not None:
            self._thread.join(60)
            assert not self._thread.is_alive()

    def sees(self, name: str, data: bytes) -> None:
        wait_until(lambda: (self.to / name).exists() and (self.to / name).read_bytes() == data, 20)

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.heard if isinstance(event, Said)]


@pytest.fixture
def script(workspace: Workspace, tmp_path: Path) -> Script:
    return Script(workspace, tmp_path)


def test_new_grown_rewritten_and_renamed_files_are_as_they_are_there(script: Script) -> None:
    script.mirrored()
    script.does("log = open('outputs/log', 'w'); log.write('one\\n'); log.flush()")
    script.sees("log", b"one\n")
    inode = (script.to / "log").stat().st_ino
    script.does("log.write('two\\n'); log.flush()")
    script.sees("log", b"one\ntwo\n")
    assert (script.to / "log").stat().st_ino == inode, "whoever reads it here reads on"
    script.does("open('outputs/latest', 'w').write('a' * 10)")
    script.sees("latest", b"a" * 10)
    script.does("open('outputs/latest', 'w').write('b' * 10)")
    script.sees("latest", b"b" * 10)
    script.does("os.mkdir('outputs/ck'); open('outputs/ck/tmp', 'wb').write(b'x' * 3000000)")
    script.sees("ck/tmp", b"x" * 3_000_000)
    inode = (script.to / "ck/tmp").stat().st_ino
    script.does("os.rename('outputs/ck/tmp', 'outputs/ck/1.pt'); open('outputs/ck/tmp', 'w').write('next')")
    script.sees("ck/1.pt", b"x" * 3_000_000)
    script.sees("ck/tmp", b"next")
    assert (script.to / "ck/1.pt").stat().st_ino == inode, "its bytes did not come twice"
    script.does("os.remove('outputs/ck/tmp'); log.write('end\\n'); log.close()")
    script.ends()

    assert script.error is None
    assert sorted(one.path for one in script.fetched) == ["ck/1.pt", "latest", "log"]
    assert all(one.digest and one.trouble is None for one in script.fetched)
    assert (script.to / "log").read_bytes() == b"one\ntwo\nend\n"
    assert (script.to / "ck/tmp").read_text() == "next", "nothing is removed here"
    assert any("ck/tmp" in text and "kept" in text for text in script.said)


def test_a_file_is_never_here_in_a_state_that_it_did_not_have_there(script: Script) -> None:
    """Rewritten by a rename again and again, as checkpoints are: whoever reads here never sees a mixture, nor a half."""
    script.mirrored()
    script.does("import itertools, threading")
    script.does(
        'exec(\'def go():\\n  for i in itertools.count():\\n    open("outputs/.new", "w").write(chr(33 + i % 91) * 2000000)\\n'
        '    os.rename("outputs/.new", "outputs/state"); time.sleep(0.05)\\n\')'
    )
    script.does("threading.Thread(target=go, daemon=True).start()")
    place = script.to / "state"
    seen: set[bytes] = set()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and len(seen) < 3:
        try:
            data = place.read_bytes()
        except FileNotFoundError:
            continue
        assert len(data) == 2_000_000, "half a file"
        assert len(set(data)) == 1, "a mixture"
        seen.add(data[:1])
        time.sleep(0.01)
    script.ends()
    assert script.error is None, script.said
    assert len(seen) == 3, script.said


def test_a_file_whose_beginning_changes_comes_whole(script: Script) -> None:
    script.mirrored()
    script.does("open('outputs/index', 'wb').write(b'a' * 200000)")
    script.sees("index", b"a" * 200_000)
    script.does("open('outputs/index', 'wb').write(b'b' * 300000)")
    script.sees("index", b"b" * 300_000)
    # Only far from its end: the look at what is near does not see it, the last one does.
    script.does(
        "f = open('outputs/index', 'r+b'); f.write(b'HEAD'); f.seek(0, 2); f.write(b'tail'); f.close()"
    )
    script.ends()
    assert (script.to / "index").read_bytes() == b"HEAD" + b"b" * 299_996 + b"tail"
    assert all(one.trouble is None for one in script.fetched)


def test_a_link_that_breaks_is_taken_up_again(script: Script) -> None:
    script.mirrored()
    script.does("log = open('outputs/log', 'w'); log.write('one\\n'); log.flush()")
    script.sees("log", b"one\n")
    _kill_channels()
    script.does("log.write('two\\n'); log.flush()")
    script.sees("log", b"one\ntwo\n")
    script.ends()
    assert script.error is None
    assert any("back after" in text for text in script.said)


def test_a_mirror_that_was_killed_is_gone_on_with(script: Script, workspace: Workspace) -> None:
    script.does("open('outputs/first', 'wb').write(b'f' * 5000000)")
    script.does("log = open('outputs/log', 'w'); log.write('one\\n' * 100000); log.flush()")
    script.does("open('outputs/latest', 'w').write('a' * 10)")
    if script.run.record.compute == "local":  # a process of its own knows no test target
        code = f"import dray; dray.Workspace({str(workspace.home)!r}).run({script.run.id!r}).outputs.mirror({str(script.to)!r})"
        for pause in (0.3, 0.6, 1.5):
            with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
                time.sleep(pause)
                process.send_signal(signal.SIGKILL)
    else:
        script.to.mkdir()
        (script.to / "log").write_bytes(b"one\n" * 7)
    script.does("open('outputs/latest', 'w').write('bb')")
    script.does("log.write('two\\n'); log.flush()")
    script.mirrored()
    script.sees("log", b"one\n" * 100_000 + b"two\n")
    script.ends()
    assert script.error is None
    assert [one.trouble for one in script.fetched] == [None] * 3
    assert (script.to / "latest").read_text() == "bb"


def test_files_of_others_in_the_folder_are_left_alone_unless_forced(script: Script) -> None:
    script.to.mkdir()
    (script.to / "mine").write_text("a thesis")
    script.mirrored()
    script.does("open('outputs/mine', 'w').write('numbers and more'); open('outputs/new', 'w').write('n')")
    script.sees("new", b"n")
    script.ends()
    troubles = {one.path: one.trouble for one in script.fetched}
    assert (script.to / "mine").read_text() == "a thesis"
    assert troubles["mine"] is not None
    assert troubles["new"] is None

    script.run.refresh()
    script.run.outputs.mirror(script.to, force=True)
    assert (script.to / "mine").read_text() == "numbers and more"


def test_a_run_that_has_ended_is_mirrored_at_once(script: Script) -> None:
    script.does("open('outputs/a.txt', 'w').write('1'); open('outputs/b.bin', 'w').write('2')")
    script.ends()
    script.run.wait()
    fetched = script.run.outputs.mirror(script.to, paths=["*.txt"])
    assert [(one.path, one.trouble) for one in fetched] == [("a.txt", None)]
    assert sorted(path.name for path in script.to.iterdir()) == ["a.txt"]


@pytest.mark.parametrize(
    "files",
    [
        [["outputs/../../evil", 4, 1, 1]],
        [["/etc/evil", 4, 1, 1]],
        [["outputs/x"]],
        "nonsense",
        [["outputs/x", "big", 1, 1]],
        [["outputs/grown", 1 << 40, 1, 1]],
    ],
)
def test_a_machine_that_lies_writes_nothing_outside_and_nothing_endless(
    tmp_path: Path, files: object
) -> None:
    from dray.core.spec import RunSpec

    def answers(request: dict[str, object]) -> list[Answer]:
        if request["op"] == "files":
            return [({"files": files, "digest": os.urandom(4).hex(), "ended": True}, b"")]
        if request["op"] == "fetch":
            offset = request.get("offset") or 0
            return [
                ({"fetching": "x", "offset": offset, "bytes": 8}, b""),
                ({"piece": "x", "offset": offset}, b"y" * 1_000_000),
            ]
        return []

    with Workspace(tmp_path / "history", targets=[Liar("liar", answers)]) as workspace:
        spec = RunSpec(id="abcdefghjk", experiment="e", compute="liar", command=("x",), created=1.0)
        workspace.store.create_run(spec)
        (tmp_path / "to").mkdir()
        (tmp_path / "to" / "grown").write_text("abc")
        heard: list[Event] = []
        with pytest.raises(DrayError):
            workspace.run("abcdefghjk").outputs.mirror(tmp_path / "to", heard.append)
    assert sorted(path.name for path in (tmp_path / "to").rglob("*")) == ["grown"]
    assert (tmp_path / "to" / "grown").read_text() == "abc"
    assert not (tmp_path / "evil").exists()


def _kill_channels() -> None:
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                parent = int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1])
                if parent == os.getpid():
                    os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue
