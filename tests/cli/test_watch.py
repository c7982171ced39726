"""`dray runs --watch`: live lines of real scripts, on a terminal and without one."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

from tests.cli.dray_shell import Shell, Terminal, wait_until

# Each step waits for a file, so that a test decides how far a script is.
STEPS = """
import os, sys, time, dray
name, total = sys.argv[1], int(sys.argv[2])
dray.log_params(total_steps=total)
for step in range(1, total + 1):
    while not os.path.exists(f"{os.environ['GATES']}/{name}-{step}"):
        time.sleep(0.01)
    dray.log(loss=1 / step, step=step)
while not os.path.exists(f"{os.environ['GATES']}/{name}-end"):
    time.sleep(0.01)
sys.exit(int(sys.argv[3]))
"""


class Scripts:
    """Scripts that go on when they are told to."""

    def __init__(self, shell: Shell, gates: Path) -> None:
        self.shell, self.gates = shell, gates
        gates.mkdir()
        shell.write("steps.py", STEPS)

    def begin(self, name: str, total: int = 4, code: int = 0) -> str:
        words = ["-e", f"GATES={self.gates}", "--name", name, "steps.py", name, str(total), str(code)]
        return self.shell.detached(*words)

    def go(self, name: str, *to: object) -> None:
        for word in to:
            (self.gates / f"{name}-{word}").touch()

    def end_all(self) -> None:
        self.shell.dray("cancel", *[line.split()[0] for line in self.active()], "--grace", "0")

    def active(self) -> list[str]:
        listed = self.shell.dray("runs", "--where", "status in (preparing, running)").stdout.decode()
        return listed.splitlines()[1:]


def screen(seen: bytes, columns: int, lines: int = 40) -> list[str]:
    """What a terminal shows that was sent `seen`: enough of one for what `Live` uses."""
    rows, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", seen.decode()):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif piece.endswith("A") and piece[0] == "\x1b":
            row = max(0, row - int(piece[2:-1]))
        elif piece == "\x1b[K":
            rows[row] = rows[row][:column]
        elif piece == "\x1b[J":
            rows[row:] = [rows[row][:column]]
        elif not piece.endswith("m") or piece[0] != "\x1b":
            assert column + len(piece) < columns, f"this wraps: {piece!r}"
            rows[row] = rows[row][:column].ljust(column) + piece + rows[row][column + len(piece) :]
            column += len(piece)
    return [line for line in rows if line]


def until_shown(terminal: Terminal, pattern: str, columns: int = 100) -> list[str]:
    """Read on until a line of the screen is like `pattern`; the screen then."""
    deadline = time.monotonic() + 30
    while True:
        shown = screen(terminal.seen, columns)
        if any(re.search(pattern, line) for line in shown):
            return shown
        assert terminal._read(deadline), shown


def test_two_scripts_are_seen_live_and_the_watch_ends_with_the_last(shell: Shell, tmp_path: Path) -> None:
    scripts = Scripts(shell, tmp_path / "gates")
    one, two = scripts.begin("one"), scripts.begin("two", code=3)

    with shell.terminal("runs", "--watch") as terminal:
        scripts.go("one", 1, 2)
        shown = until_shown(terminal, rf"^{one} .* 2/4 50%  loss 0.5$")
        assert shown[0].split()[:4] == ["ID", "NAME", "COMPUTE", "STATUS"]
        assert len(shown) == 3
        scripts.go("one", 3)
        until_shown(terminal, rf"^{one} .* 3/4 75%  loss 0.3333$")
        scripts.go("two", 1, 2, 3, 4, "end")
        until_shown(terminal, rf"^{two}  two  failed: exit code 3, after .*  loss 0.25$")
        until_shown(terminal, rf"^{one} .* running")
        scripts.go("one", 4, "end")
        code = terminal.ended()

    left = screen(terminal.seen, 100)
    assert code == 0
    assert [line.split()[:2] for line in left[:2]] == [[two, "two"], [one, "one"]]
    assert left[2:] == ["dray: no run is active any more"]
    assert b"\x1b[32mcompleted\x1b[0m" in terminal.seen
    assert b"\x1b[?1049h" not in terminal.seen  # no alternate screen: what was shown stays


def test_ctrl_c_leaves_the_watch_and_the_runs_go_on(shell: Shell, tmp_path: Path) -> None:
    scripts = Scripts(shell, tmp_path / "gates")
    scripts.begin("one")

    with shell.terminal("runs", "--watch") as terminal:
        until_shown(terminal, "running")
        terminal.press(b"\x03")
        code = terminal.ended()

    assert code == 130
    assert b"dray: left; 1 run goes on\r\n      return: dray runs --watch\r\n" in terminal.seen
    assert len(scripts.active()) == 1
    scripts.end_all()


def test_the_lines_follow_the_width_of_the_window(shell: Shell, tmp_path: Path) -> None:
    scripts = Scripts(shell, tmp_path / "gates")
    run = scripts.begin("a-name-of-some-length")
    scripts.go("a-name-of-some-length", 1)

    with shell.terminal("runs", "--watch", columns=100) as terminal:
        until_shown(terminal, "a-name-of-some-length .* loss 1$")
        terminal.seen = b""
        fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 36, 0, 0))
        narrow = until_shown(terminal, rf"^{run} .*running", columns=100)
        terminal.press(b"\x03")
        terminal.ended()

    assert all(len(line) < 36 for line in narrow)
    scripts.end_all()


def test_without_a_terminal_it_is_a_line_for_what_is_new(shell: Shell, tmp_path: Path) -> None:
    scripts = Scripts(shell, tmp_path / "gates")
    run = scripts.begin("one")
    wait_until(scripts.active)

    with shell.start("runs", "--watch") as process:
        assert process.stdout is not None
        first = process.stdout.readline().decode()
        scripts.go("one", 1, 2, 3, 4, "end")
        out, err = process.communicate(timeout=30)

    assert re.fullmatch(rf"{run}  one  local  running  \S+\n", first)
    assert re.fullmatch(rf"{run}  one  completed after \S+  loss 0.25\n", out.decode())
    assert err == b"dray: no run is active any more\n"
    assert process.returncode == 0


def test_only_the_runs_that_were_asked_for_are_watched_and_by_the_columns_asked_for(
    shell: Shell, tmp_path: Path
) -> None:
    scripts = Scripts(shell, tmp_path / "gates")
    scripts.begin("one")
    scripts.begin("two")
    wait_until(lambda: len(scripts.active()) == 2)

    words = ["--watch", "--where", "name = one", "--columns", "name,metrics.loss.min,params.zz"]
    with shell.terminal("runs", *words) as terminal:
        scripts.go("one", 1, 2)
        shown = until_shown(terminal, r"^one +0.5 +-$")
        scripts.go("one", 3, 4, "end")
        code = terminal.ended()

    assert shown[0].split() == ["NAME", "metrics.loss.min", "params.zz"]
    assert not any("two" in line for line in shown)
    assert code == 0
    assert b"no active run fits any more" in terminal.seen
    scripts.end_all()


def test_nothing_to_watch_is_said_at_once(shell: Shell, tmp_path: Path) -> None:
    nothing = shell.dray("runs", "--watch")
    scripts = Scripts(shell, tmp_path / "gates")
    scripts.begin("one")
    others = shell.dray("runs", "--watch", "--experiment", "other")
    wrong = shell.dray("runs", "--watch", "--where", "metrics.loss <")

    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, b"", b"dray: no run is active\n")
    assert (others.returncode, others.stderr) == (0, b"dray: no active run fits; 1 other active\n")
    assert wrong.returncode == 2
    scripts.end_all()


def servers_of(pid: int) -> list[int]:
    """The processes that answer for the machine."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in listed.stdout.split()]


def test_a_machine_that_does_not_answer_is_said_with_what_was_known_when(
    shell: Shell, tmp_path: Path
) -> None:
    scripts = Scripts(shell, tmp_path / "gates")
    run = scripts.begin("one")
    scripts.go("one", 1)
    runner = shell.home / "machine" / "runner"

    with shell.terminal("runs", "--watch") as terminal:
        until_shown(terminal, "loss 1$")
        runner.rename(runner.with_name("away"))
        runner.write_text("in the way")
        for pid in servers_of(terminal.process.pid):
            os.kill(pid, signal.SIGKILL)
        away = until_shown(terminal, rf"^{run} .* running .* loss 1 +(now|\d+s ago)$")
        runner.unlink()
        runner.with_name("away").rename(runner)
        scripts.go("one", 2, 3)
        back = until_shown(terminal, r"3/4 75% +loss 0.3333$")
        scripts.go("one", 4, "end")
        code = terminal.ended()

    assert any(line.startswith("dray: local: ") for line in away)
    assert "AS OF" in away[-2]
    assert "AS OF" not in back[-2]
    assert code == 0


def test_watching_costs_little_and_asks_about_once_a_second(shell: Shell, tmp_path: Path) -> None:
    scripts = Scripts(shell, tmp_path / "gates")
    scripts.begin("one")
    wait_until(scripts.active)

    with shell.terminal("runs", "--watch") as terminal:
        until_shown(terminal, "running")
        before, began = cpu_s(terminal.process.pid), time.monotonic()
        terminal.seen = b""
        while time.monotonic() - began < 3:
            terminal._read(time.monotonic() + 30)
        spent, lasted = cpu_s(terminal.process.pid) - before, time.monotonic() - began
        pictures = terminal.seen.count(b"\x1b[J")
        scripts.go("one", 1, 2, 3, 4, "end")
        terminal.ended()

    assert pictures <= lasted + 2
    assert spent < 0.1 * lasted


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
