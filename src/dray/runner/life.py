"""The runner: one run's life from claim to end, in a process that belongs to nobody.

prepare (code, environment) -> running -> finalizing -> end. The guard starts the processes; this process decides.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
import traceback
from typing import Any

from . import ends, environment, layout, processes, results
from .files import read_json, write_all
from .folder import RunFolder, Taken
from .guard import fork_guard
from .machine import Machine
from .mask import Mask
from .streams import StateStream

LEFTOVERS_S = 5.0
_TICK_S = 0.2


class GuardGone(Exception):
    """The guard died before its time."""


class Order:
    """What a submit brings beside the spec: things that must not be written down, and things at hand."""

    def __init__(
        self, spec: dict[str, Any], near: dict[str, Any], secrets: dict[str, str], travel: str
    ) -> None:
        self.spec = spec
        self.blobs: str | None = near.get("blobs")
        self.uv: str | None = near.get("uv")
        self.secrets = secrets
        self.travel = travel


def start_runner(machine: Machine, order: Order, manifest: dict[str, Any]) -> dict[str, Any]:
    """Fork the runner; returns its verdict on the claim as the frame to answer with."""
    verdict_r, verdict_w = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(verdict_r)
            os.setsid()
            if os.fork():
                os._exit(0)
            _detach()
            _be_runner(machine, order, manifest, verdict_w)
        except BaseException:
            traceback.print_exc()  # stderr is runner.log, once there is one
        finally:
            os._exit(70)
    os.close(verdict_w)
    os.waitpid(child, 0)
    words = b""
    while True:
        piece = os.read(verdict_r, 65536)
        if not piece:
            break
        words += piece
    os.close(verdict_r)
    if not words:
        return {"refused": "runner-died", "text": "the runner died while it claimed the run"}
    answer: dict[str, Any] = json.loads(words.decode())
    return answer


def _detach() -> None:
    """Let go of the channel and of the place where it was started."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)


def _be_runner(machine: Machine, order: Order, manifest: dict[str, Any], verdict: int) -> None:
    umask = os.umask(0o077)
    folder = RunFolder(machine, order.spec["id"])
    try:
        folder.claim(order.spec, manifest)
        answer: dict[str, Any] = {"claimed": True}
    except Taken as taken:
        if taken.never:
            answer = {"refused": "never", "text": "the run was already declared not started"}
        elif taken.same:
            answer = {"claimed": True}
        else:
            answer = {"refused": "taken", "text": "there is another run of that id on the machine"}
        os.write(verdict, json.dumps(answer).encode())
        os._exit(0)
    except OSError as trouble:
        text = "the run folder cannot be made: %s" % trouble.strerror
        os.write(verdict, json.dumps({"refused": "no-folder", "text": text}).encode())
        os._exit(0)
    log = os.open(
        os.path.join(folder.attempt(1), "runner.log"),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
        0o600,
    )
    os.dup2(log, 2)
    os.write(verdict, json.dumps(answer).encode())
    os.close(verdict)
    try:
        runner = Runner(machine, folder, order, manifest, umask)
    except OSError as trouble:  # no process for the guard, no room for the first word
        traceback.print_exc()
        folder.release_reserve()
        folder.write_end(1, ends.document("failed", ends.reason("staging-failed", _in_words(trouble))))
    else:
        runner.live()
    os._exit(0)


class Runner:
    """The life of one claimed run."""

    def __init__(
        self, machine: Machine, folder: RunFolder, order: Order, manifest: dict[str, Any], umask: int
    ) -> None:
        self.machine = machine
        self.folder = folder
        self.order = order
        self.spec = order.spec
        self.manifest = manifest
        self.number = 1
        self.said = StateStream(folder, self.number)
        self.said.say("host", **machine.facts())
        self.said.state("preparing")
        self.started: float | None = None
        self.deadline: float | None = None
        self.timed_out = False
        self._buffer = b""
        self._log_size: int | None = 0
        self._prctl = processes.load_prctl()
        processes.become_subreaper(self._prctl)
        self.guard, self.orders, self.reports = fork_guard(folder, umask, lambda: None)

    def live(self) -> None:
        """Everything up to the end. Whatever goes wrong, an end is written."""
        try:
            end = self._live()
        except GuardGone:
            end = self._without_guard()
        except environment.Stopped:
            end = ends.document("canceled", ends.cancelled(self._asked() or {}))
        except environment.BuildFailed as trouble:
            end = ends.document("failed", ends.reason("environment-failed", str(trouble)))
        except Exception as trouble:
            traceback.print_exc()
            end = self._at_fault(trouble)
        self._sweep()
        self._complete_log()
        self.folder.release_reserve()
        self.folder.write_end(self.number, end)
        try:
            self._order({"quit": True})
        except GuardGone:
            return  # it went first; nothing is left to guard

    def _live(self) -> dict[str, Any]:
        if not layout.lay_out(
            self.machine, self.order.blobs, self.manifest, self.folder.code, lambda: not self._asked()
        ):
            raise environment.Stopped
        python = self._python()
        if self._asked():
            raise environment.Stopped
        argv = self._argv(python)
        step = {
            "step": "script",
            "argv": argv,
            "env": self._env(python),
            "cwd": self.folder.code,
            "log": os.path.join(self.folder.streams(self.number), "log.script"),
            "mask": list(self.order.secrets.values()),
        }
        seen = self._run(step, announce=True)
        if "cannot" in seen:
            return self._cannot_start(argv[0], seen["cannot"])
        return self._finish(seen)

    # -- what is needed

    def _python(self) -> str | None:
        """The interpreter of this run; None when the command needs none. Makes the environment if there is one."""
        wanted = self.spec.get("environment")
        if not wanted:
            found = self.spec.get("python") or environment.machine_python(os.environ.get("PATH", os.defpath))
            if found:
                self.said.say("environment", python=found, version=None, digest=None, built_s=None)
            return found
        builder = environment.Builder(self.machine, wanted, self.order.uv, self._build_step)
        was_ready = builder.ready() is not None
        facts = dict(
            builder.provide(lambda text: self.said.say("note", text=text), lambda: not self._asked())
        )
        if was_ready:
            facts["built_s"] = None
        self.said.say("environment", **facts)
        return builder.python

    def _build_step(self, what: str, argv: list[str], env: dict[str, str]) -> dict[str, Any]:
        log = os.path.join(self.folder.streams(self.number), "log.environment")
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(fd, ("dray: %s\n" % what).encode())
        since = os.fstat(fd).st_size
        os.close(fd)
        env = dict(env, **{processes.MARK: self.spec["id"]})
        seen = self._run(
            {
                "step": "environment",
                "argv": argv,
                "env": env,
                "cwd": self.machine.folder,
                "log": log,
                "mask": [],
            }
        )
        if "cannot" in seen:
            seen = {"code": 127, "last": "`%s` cannot be executed" % argv[0]}
        else:
            seen["last"] = environment.last_words(log, since)
        seen["stopped"] = bool(self._asked())
        return seen

    def _argv(self, python: str | None) -> list[str]:
        command = [str(word) for word in self.spec["command"]]
        if not self.spec.get("script", True):
            return command
        script = command[0]
        if script.endswith(".py"):
            return [python or "python3", *command]
        if script.endswith(".sh"):
            return ["sh", *command]
        return [os.path.join(self.folder.code, script), *command[1:]]

    def _env(self, python: str | None) -> dict[str, str]:
        env = dict(os.environ)
        if self.spec.get("environment") and python:
            folder = os.path.dirname(os.path.dirname(python))
            env["VIRTUAL_ENV"] = folder
            env["PATH"] = os.path.join(folder, "bin") + ":" + env.get("PATH", os.defpath)
            env.pop("CONDA_PREFIX", None)
            env.pop("PYTHONHOME", None)
        env.update(self.spec.get("env") or {})
        if not self.spec.get("buffered"):
            env.setdefault("PYTHONUNBUFFERED", "1")
        theirs = env.get("PYTHONPATH")
        env["PYTHONPATH"] = theirs + ":" + self.order.travel if theirs else self.order.travel
        env["PWD"] = self.folder.code
        env[processes.MARK] = self.spec["id"]
        env["DRAY_ATTEMPT"] = str(self.number)
        env["DRAY_STREAMS"] = self.folder.streams(self.number)
        env["DRAY_OUTPUTS"] = os.path.join(self.folder.code, results.OUTPUTS)
        env["DRAY_EXPERIMENT"] = str(self.spec.get("experiment") or "")
        env.pop("DRAY_SECRETS", None)
        if self.order.secrets:
            env["DRAY_SECRETS"] = ",".join(self.order.secrets)
            env.update(self.order.secrets)
        return env

    # -- one process

    def _order(self, words: dict[str, Any]) -> None:
        """Tell the guard. Raises GuardGone."""
        try:
            write_all(self.orders, json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            raise GuardGone from None

    def _run(self, step: dict[str, Any], announce: bool = False) -> dict[str, Any]:
        """Have the guard run one step to its end; cancel and timeout are seen to meanwhile."""
        self._order(step)
        first = self._report()
        if "cannot" in first:
            return first
        if announce:
            self.started = first["t"]
            self.said.state("running", pid=first["started"])
            limit = self.spec.get("timeout_s")
            self.deadline = time.monotonic() + limit if limit else None
        while not self._has_report(_TICK_S):
            self._wake_guard()
            if announce:
                self._watch_log(step["log"])
            grace = self._grace()
            if grace is not None:
                self._end_script(grace)
                break
        seen: dict[str, Any] = self._report()["exit"]
        return seen

    def _end_script(self, grace: float) -> None:
        """SIGTERM to all, and SIGKILL to what is left after `grace` seconds, or fewer if somebody insists."""
        processes.send(self._ours(), signal.SIGTERM)
        began = time.monotonic()
        while not self._has_report(0.05):
            self._wake_guard()
            insisted = self._grace()
            if insisted is not None:
                grace = min(grace, insisted)
            if time.monotonic() - began >= grace:
                processes.kill_all(self._ours, 1.0)

    def _grace(self) -> float | None:
        """Seconds between SIGTERM and SIGKILL when the run is to end now; None when it may go on."""
        if self.folder.is_gone():
            return 0.0  # whoever asks is told that there is no such run: then nothing of it may go on
        asked = self._asked()
        if asked:
            return seconds(asked.get("grace"))
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self.timed_out = True
            return seconds(self.spec.get("grace_s"))
        return None

    def _watch_log(self, log: str) -> None:
        """A log only grows, unless its script cuts it: `> /dev/stderr` does, `>&2` does not. Then that is told, once."""
        if self._log_size is None:
            return
        try:
            size = os.stat(log).st_size
        except OSError:
            return
        if size < self._log_size:
            text = "the script emptied its own log, as `> /dev/stderr` does and `>&2` does not; what stood there may be lost"
            self.said.say("note", text=text)
            self._log_size = None
        else:
            self._log_size = size

    def _wake_guard(self) -> None:
        """A script may have stopped its parent; then nobody would see it end."""
        processes.send([self.guard], signal.SIGCONT)

    def _has_report(self, patience_s: float) -> bool:
        """Whether the guard has said something, waiting a little for it. Raises GuardGone."""
        if b"\n" not in self._buffer and select.select([self.reports], [], [], patience_s)[0]:
            data = os.read(self.reports, 65536)
            if not data:
                raise GuardGone
            self._buffer += data
        return b"\n" in self._buffer

    def _report(self) -> dict[str, Any]:
        """The guard's next report, however long it takes."""
        while not self._has_report(60):
            continue
        line, _, self._buffer = self._buffer.partition(b"\n")
        report: dict[str, Any] = json.loads(line.decode())
        return report

    def _ours(self) -> list[int]:
        """Every process of the run, the guard apart. Orphans of a dead guard are ours by now."""
        return [pid for pid in processes.descendants(os.getpid()) if pid != self.guard]

    def _asked(self) -> dict[str, Any] | None:
        """What was written when somebody asked for the end."""
        return read_json(self.folder.cancel_file)

    # -- the end

    def _finish(self, seen: dict[str, Any]) -> dict[str, Any]:
        """The script has ended, as `seen`; leftovers get a while, then the end is what it is."""
        self._watch_log(os.path.join(self.folder.streams(self.number), "log.script"))
        self.said.state("finalizing")
        asked = self._asked()
        leftovers = self._end_leftovers(patience=0.0 if asked or self.timed_out else LEFTOVERS_S)
        state, why = ends.by_exit(seen)
        if asked:
            state, why = "canceled", ends.cancelled(asked)
        elif self.timed_out:
            text = "ended after its time limit of %g seconds" % self.spec["timeout_s"]
            state, why = "failed", ends.reason("timeout", text, limit_s=self.spec["timeout_s"])
        self._look_at_disk()
        return ends.document(state, why, seen, leftovers=leftovers, **results.survey(self.folder))

    def _end_leftovers(self, patience: float) -> list[dict[str, Any]]:
        """Processes that outlived the script: they get `patience` seconds, are ended, and are named."""
        if not processes.has_children(self.guard):
            return []
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self._alive():
            time.sleep(0.02)
        mask = Mask([value.encode("utf-8", "surrogateescape") for value in self.order.secrets.values()])
        named = [{"pid": pid, "name": processes.name_of(pid, mask)} for pid in self._alive()]
        if named:
            processes.send(self._ours(), signal.SIGTERM)
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline and self._alive():
                time.sleep(0.02)
            processes.kill_all(self._ours)
        return named

    def _alive(self) -> list[int]:
        return [pid for pid in self._ours() if not processes.is_zombie(pid)]

    def _sweep(self) -> None:
        """Nothing of the run is alive once its end is written."""
        self._wake_guard()
        if processes.has_children(self.guard):
            processes.kill_all(self._ours)

    def _complete_log(self) -> None:
        """Of a run with secrets the guard writes the log: it is whole before the end is told."""
        if not self.order.secrets:
            return
        deadline = time.monotonic() + 5.0
        try:
            self._order({"drain": True})
            while time.monotonic() < deadline:
                if self._has_report(0.1):
                    report = self._report()
                    if report.get("cut"):
                        self.said.say("note", text="output was cut short: %s" % report["cut"])
                    if report.get("drained"):
                        return
        except GuardGone:
            return  # what it held went with it (docs/decisions/0005)

    def _look_at_disk(self) -> None:
        try:
            space = os.statvfs(self.folder.path)
        except OSError:
            return
        if space.f_bavail * space.f_frsize < 1 << 20:
            self.said.say("note", text="the disk of the run folder is full; output may be cut short")

    def _cannot_start(self, program: str, number: int) -> dict[str, Any]:
        told = {
            errno.ENOENT: "`%s` was not found on the machine" % program,
            errno.EACCES: "`%s` is not executable" % program,
            errno.ENOEXEC: "`%s` is no program: it has no `#!` line" % program,
        }
        text = told.get(number) or "`%s` cannot be executed: %s" % (program, os.strerror(number))
        return ends.document("failed", ends.reason("cannot-start", text, errno=number))

    def _at_fault(self, trouble: Exception) -> dict[str, Any]:
        """The end when the runner itself failed."""
        if self.started is None:
            return ends.document("failed", ends.reason("staging-failed", _in_words(trouble)))
        why = ends.reason("runner-killed", "%s, and the script was ended" % _fault(trouble))
        return ends.document("failed", why, {"started": self.started}, **results.survey(self.folder))

    def _without_guard(self) -> dict[str, Any]:
        """The guard was killed: the script died with it (PDEATHSIG), its descendants are ours to end."""
        mine = os.getpid()
        # First those below us alone: to look for marks takes longer than a quick forker lives.
        processes.kill_all(lambda: processes.descendants(mine))
        processes.kill_all(lambda: processes.descendants(mine) + processes.marked(self.spec["id"]))
        if self.started is None and not self.folder.may_have_started(self.number):
            text = "dray's guard was killed before the script was started"
            return ends.document("failed", ends.reason("not-started", text))
        text = "dray's guard was killed, and the script with it"
        why = ends.reason("guard-killed", text)
        return ends.document("failed", why, {"started": self.started}, **results.survey(self.folder))


def _in_words(trouble: Exception) -> str:
    if isinstance(trouble, OSError):
        about = " (%s)" % os.path.basename(str(trouble.filename)) if trouble.filename else ""
        return "the code could not be laid out on the machine: %s%s" % (trouble.strerror, about)
    return _fault(trouble)


def _fault(trouble: Exception) -> str:
    return "the runner met a fault of its own, told in its `runner.log` (%s: %s)" % (
        type(trouble).__name__,
        trouble,
    )


def seconds(value: Any) -> float:
    """A length of time from a document that others can write; what is none is no time at all."""
    try:
        seconds = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return seconds if seconds > 0 else 0.0  # not-a-number is not
