"""The guard: parent of every process of a run. It starts them, sees them end, and outlives the runner if it must.

The runner sends orders, the guard sends reports, one JSON line each, over two pipes. A closed order pipe means that the runner
is dead: then the guard ends everything below it and writes the end. docs/design.md, "Who lives and who dies".
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any, Callable

from . import ends, processes
from .files import write_all
from .folder import RunFolder
from .mask import Mask

_PIPE = 1024 * 1024


class Guard:
    """Runs in a process of its own, forked from the runner; `main` does not return."""

    def __init__(self, folder: RunFolder, orders: int, reports: int, umask: int, hand: Any = None) -> None:
        """`hand` is a socket by which the runner gives open files to keep, if it will."""
        self.folder = folder
        self.orders = orders
        self.reports = reports
        self.umask = umask
        self.prctl = processes.load_prctl()
        self.hand = hand
        self.kept: list[int] = []
        """Files whose locks are the run's: they stay open here until the end, and in the script's process."""
        self.child = 0
        self.story = ends.Story()
        self.pump: _Pump | None = None
        self.sweep: dict[str, Any] | None = None
        """What the run has beside our process tree: docs/design.md, "Who lives and who dies"."""
        self._keeper: _Keeper | None = None
        self._unread = b""

    def main(self) -> None:
        """Obey until the runner says quit, or is gone."""
        processes.become_subreaper(self.prctl)
        wake_r, wake_w = os.pipe()
        for fd in (wake_r, wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            waiting = [self.orders, wake_r] + ([self.pump.source] if self.pump else [])
            waiting += [self._keeper.told] if self._keeper else []
            ready, _, _ = select.select(waiting, [], [])
            if self._keeper and self._keeper.told in ready:
                self._hear()
            if self.pump and self.pump.source in ready and not self.pump.move():
                self.pump.close()
                self.pump = None
            if wake_r in ready:
                os.read(wake_r, 4096)
                self._reap()
            if self.orders in ready and not self._obey():
                self._alone()

    def _obey(self) -> bool:
        """Carry out the orders that have come. False: the runner is gone."""
        data = os.read(self.orders, 1 << 20)
        if not data:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            order = json.loads(line.decode())
            if order.get("quit"):
                os._exit(0)
            elif order.get("keep"):
                self._keep(int(order["keep"]))
                self._report({"kept": len(self.kept)})
            elif order.get("drain"):
                self._drain()
                self._report({"drained": True})
            else:
                self._start(order)
        return True

    def _keep(self, count: int) -> None:
        """Take over open files."""
        import array
        import socket

        files = array.array("i")
        how = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        for _, _, data in self.hand.recvmsg(1, socket.CMSG_SPACE(count * files.itemsize), how)[1]:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
        self.kept += list(files)

    def _start(self, order: dict[str, Any]) -> None:
        """Start one step. What happens next is told by reports."""
        self.story = ends.Story(order["step"], processes.oom_kills())
        self.sweep = order.get("sweep")
        try:
            number = self._fork(order)
        except OSError as trouble:  # no process, no pipe, no room for the log's name
            number = trouble.errno or errno.EAGAIN
        if number:
            self.child = 0
            self.story.cannot(number)
            self._report({"cannot": number})
        else:
            self._report({"started": self.child, "t": self.story.started})

    def _fork(self, order: dict[str, Any]) -> int:
        """Start the step's process; returns 0, or the errno that it met instead of becoming the program."""
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        output = log
        if order["mask"]:
            source, output = _named_pipe(order["pipe"]) if order.get("pipe") else os.pipe()
            self.pump = _Pump(
                source, log, Mask([m.encode("utf-8", "surrogateescape") for m in order["mask"]])
            )
        trouble_r, trouble_w = os.pipe()
        told_r, told_w = os.pipe() if order.get("keeper") else (-1, -1)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(order, output, trouble_w, parent, told_w)
        self.child = pid
        os.close(trouble_w)
        if order.get("keeper"):
            os.close(told_w)
            self._keeper = _Keeper(told_r)
        os.close(output)
        number = os.read(trouble_r, 16)
        os.close(trouble_r)
        return int(number or 0)

    def _become(self, order: dict[str, Any], output: int, trouble: int, parent: int, told: int) -> None:
        """In the child: turn into the program, or into a keeper. Writes the errno when that is impossible."""
        try:
            os.setsid()
            processes.die_with_parent(self.prctl, parent)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            if hasattr(signal, "SIGXFSZ"):
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            os.umask(self.umask)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            if order["step"] == "script":
                for kept in self.kept:
                    os.set_inheritable(kept, True)
            os.chdir(order["cwd"])
            if order.get("keeper"):
                os.close(trouble)
                _keep(order["keeper"], told)
            execute(order["argv"], order["env"], order.get("program"))
        except OSError as problem:
            os.write(trouble, str(problem.errno or errno.ENOEXEC).encode())
        except ValueError:  # a NUL byte, or a letter that this machine's names cannot hold
            os.write(trouble, str(errno.EINVAL).encode())
        finally:
            os._exit(127)

    def _reap(self) -> None:
        """Take note of every child that ended; most are orphans nobody else waits for."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.child = 0
                if self.pump:
                    self.pump.drain()
                self.story.ended_with(status, processes.oom_kills())
                if self._keeper:
                    self._hear()
                    self.story.kept(self._keeper.ended)
                    self._keeper.close()
                    self._keeper = None
                self._report({"exit": self.story.exit(), "t": self.story.ended})

    def _hear(self) -> None:
        """Pass on what the keeper says; its last word is the report of the end."""
        assert self._keeper
        for words in self._keeper.hear():
            if "up" in words:
                self._report(words)

    def _report(self, words: dict[str, Any]) -> None:
        words["step"] = self.story.step
        if self.pump and self.pump.trouble:
            words["cut"] = self.pump.trouble
        try:
            write_all(self.reports, json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            return  # the runner is gone; the order pipe says so too

    def _drain(self) -> None:
        """All that was said is in the log: nobody who could say more is alive."""
        if self.pump:
            self.pump.drain()
            self.pump.flush()

    def _alone(self) -> None:
        """The runner is dead: end everything below, and write the end that is true."""
        me = os.getpid()
        if self.child and not self.story.is_over:
            processes.kill_all(lambda: processes.descendants(me))
        self._reap_all(me)
        if self.sweep:
            from .containers import strays

            strays.end(self.sweep)
        self._drain()
        self.folder.release_reserve()
        number = self.folder.attempts()[-1]
        self.folder.write_end(number, ends.without_runner(self.story, self.folder, number))
        os._exit(0)

    def _reap_all(self, me: int) -> None:
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            processes.kill_all(lambda: processes.descendants(me), 1)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                return


class _Keeper:
    """The guard's end of what a keeper tells, line by line."""

    def __init__(self, told: int) -> None:
        self.told = told
        self.ended: dict[str, Any] | None = None
        self._unread = b""
        os.set_blocking(told, False)

    def hear(self) -> list[dict[str, Any]]:
        """What is new; how the container ended is kept."""
        while True:
            try:
                data = os.read(self.told, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        heard: list[dict[str, Any]] = [json.loads(line.decode()) for line in lines]
        for words in heard:
            self.ended = words.get("exit", self.ended)
        return heard

    def close(self) -> None:
        """No more of it."""
        os.close(self.told)


def _keep(order: dict[str, Any], told: int) -> None:
    """Be the keeper of a container, in the child; does not return."""
    from .containers import keeper

    try:
        keeper.keep(order, told)
        os._exit(0)
    finally:
        traceback.print_exc(file=sys.stderr)
        os._exit(70)


def _named_pipe(path: str) -> tuple[int, int]:
    """Both ends of a pipe that others find by its name. Its reading end is never at the end: the log is whole when all are dead."""
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), os.open(path, os.O_WRONLY | os.O_CLOEXEC)


class _Pump:
    """Moves the output of a run with secrets from a pipe to its log, masked."""

    def __init__(self, source: int, log: int, mask: Mask) -> None:
        self.source = source
        # The step's own end of the pipe is closed by `_start`; this end and the log are ours.
        self.log = os.dup(log)
        self.mask = mask
        self.trouble = ""
        os.close(log)
        os.set_blocking(source, False)

    def move(self) -> bool:
        """Move what is there. False at the end of the stream."""
        try:
            data = os.read(self.source, _PIPE)
        except BlockingIOError:
            return True
        if data:
            self._write(self.mask.feed(data))
        return bool(data)

    def _write(self, data: bytes) -> None:
        try:
            write_all(self.log, data)
        except OSError as trouble:
            # A full disk ends no script. It cannot be told as to one that writes its log itself, so the run tells it.
            self.trouble = os.strerror(trouble.errno or errno.EIO)

    def drain(self) -> None:
        """Move all that is there now, without waiting for whoever still holds the other end."""
        while select.select([self.source], [], [], 0)[0]:
            if not self.move():
                return

    def flush(self) -> None:
        """Write what was held back for being the beginning of a secret: it will not go on."""
        self._write(self.mask.rest())

    def close(self) -> None:
        """End of stream: let go."""
        self.flush()
        os.close(self.source)
        os.close(self.log)


def execute(argv: list[str], env: dict[str, str], named: str | None = None) -> None:
    """execve with the run's own PATH, not ours. `named`: the program, when the first word is not it. Raises the most telling OSError."""
    program = named or argv[0]
    if "/" in program:
        os.execve(program, argv, env)
    telling = OSError(errno.ENOENT, "not found")
    for folder in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(os.path.join(folder or ".", program), argv, env)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR):
                telling = problem
    raise telling


def fork_guard(
    folder: RunFolder, umask: int, in_child: Callable[[], None], hand: Any = None
) -> tuple[int, int, int]:
    """Start the guard; returns its pid and the runner's ends of the order and report pipes. `hand`: a socket for open files."""
    orders_r, orders_w = os.pipe()
    reports_r, reports_w = os.pipe()
    pid = os.fork()
    if pid:
        os.close(orders_r)
        os.close(reports_w)
        return pid, orders_w, reports_r
    try:
        os.close(orders_w)
        os.close(reports_r)
        in_child()
        Guard(folder, orders_r, reports_w, umask, hand).main()
    except BaseException:
        traceback.print_exc()  # stderr is runner.log
    finally:
        # Whatever happened, the copy of the runner's program must not run on in here.
        os._exit(70)
