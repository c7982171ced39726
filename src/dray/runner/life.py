"""The life of one claimed run: prepare (code, environment), run the script, collect, write the end.

Decides; `steps` and the guard below it do. Whatever goes wrong in here, an end is written.
"""

from __future__ import annotations

import errno
import os
import traceback
from typing import Any, Callable

from . import ends, environments, layout, login, processes, queue, results
from .environments.said import last_words
from .folder import RunFolder
from .gpu.evidence import Evidence, NoGpu
from .launch import Order, launcher_for
from .machine import Machine
from .mask import Mask
from .reach import door
from .steps import GuardGone, Steps, seconds
from .streams import StateStream
from .work import Work

LEFTOVERS_S = 5.0


class Runner:
    """One run on this machine."""

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
        self._door: dict[str, Any] = {}
        self._log_size: int | None = 0
        self.environ = login.own_environment()
        self.launcher = launcher_for(order, folder, self.number)
        self.steps = Steps(folder, umask, will_keep=order.asked.wants.is_anything)
        self.scheduler = queue.scheduler_for(self.spec, order.asked, self.steps, self.said)
        self.evidence = Evidence(order, folder, self.number, self.steps, self.said.say)

    def live(self) -> None:
        """Everything up to the end."""
        try:
            end = self._live()
        except GuardGone:
            end = self._without_guard()
        except (environments.Stopped, queue.Stopped):
            end = ends.document("canceled", ends.cancelled(self.steps.asked() or {}))
        except environments.BuildFailed as trouble:
            end = ends.document("failed", ends.reason(trouble.kind, str(trouble)))
        except queue.Failed as trouble:
            end = ends.document("failed", ends.reason("queue-failed", str(trouble)))
        except NoGpu as trouble:
            end = ends.document("failed", ends.reason("gpu-required", str(trouble)), gpu=self.evidence.found)
        except Exception as trouble:
            traceback.print_exc()
            end = self._at_fault(trouble)
        self.evidence.close()
        self.steps.sweep()
        if self.folder.was_visited():
            processes.kill_all(lambda: processes.marked(self.folder.id), 1.0)
        self.launcher.sweep()
        self.scheduler.leave()
        if self.order.secrets:
            cut = self.steps.complete_log()
            if cut:
                self.said.say("note", text="output was cut short: %s" % cut)
        self.folder.release_reserve()
        self.folder.write_end(self.number, end)
        self.steps.quit()

    def _live(self) -> dict[str, Any]:
        self.scheduler.enter()
        set_up = self._begin_set_up()
        if not layout.lay_out(
            self.machine, self.order.blobs, self.manifest, self.folder.code, lambda: not self.steps.asked()
        ):
            raise environments.Stopped
        set_up()
        self.launcher.make_ready(
            Work(self.machine, self.folder, self.number, self.said, self.steps, self.environ)
        )
        if self.steps.asked():
            raise environments.Stopped
        if self.spec.get("prepare"):
            return ends.document("completed", ends.reason("prepared", "its environment is ready"))
        self.order.granted = self.scheduler.wait()
        step = self.launcher.step(self.environ)
        self.evidence.check(step, getattr(self.launcher, "python", None))
        if self.steps.asked():
            raise environments.Stopped
        self._door = self.launcher.door(step)
        door.keep(self.folder.id, self._door)
        seen = self.steps.run(step, self._begun, lambda: self._watch(step["log"]))
        if "cannot" in seen:
            return _cannot_start(step["argv"][0], seen["cannot"])
        self._watch_log(step["log"])
        return self._finish(seen)

    def _begin_set_up(self) -> Callable[[], None]:
        """Have the login shell asked, where the run is to have its environment; what comes of it is taken by calling the result."""
        if not (self.spec.get("login") or self.spec.get("setup")):
            return lambda: None
        shell = login.LoginShell(self.folder.attempt(self.number), self.spec.get("setup"))
        self.steps.limit(shell.limit_s, 1.0)
        first = self.steps.begin(shell.step({processes.MARK: self.spec["id"]}))
        return lambda: self._take_set_up(shell, first)

    def _take_set_up(self, shell: login.LoginShell, first: dict[str, Any]) -> None:
        """The machine's environment from now on is the login shell's. Raises BuildFailed when a set-up of the user's failed."""
        seen = first
        if "cannot" not in first:
            seen = self.steps.see_end(lambda: self.steps.limit(0, 0) if shell.is_too_loud() else None)
        late = self.steps.no_limit()
        if self.steps.asked():
            raise environments.Stopped
        found = shell.environment() if seen.get("code") == 0 else None
        if found is not None:
            self.environ = found
        else:
            self._without_set_up(shell, late, seen)
        shell.forget()

    def _without_set_up(self, shell: login.LoginShell, late: bool, seen: dict[str, Any]) -> None:
        """Tell why the login shell gave nothing. Raises BuildFailed when it had a set-up to do."""
        log = os.path.join(self.folder.streams(self.number), "log.environment")
        with open(log, "ab") as file:
            file.write(b"dray: the machine's set-up in %s\n" % os.fsencode(shell.shell))
            since = file.tell()
            file.write(login.told(shell.noise))
        why = login.why_not(shell, late, seen, last_words(log, since))
        shell.forget()
        if shell.setup:
            raise environments.BuildFailed(why)
        self.said.say("note", text=why + "; the run has the environment of the connection (log: environment)")

    def _begun(self, report: dict[str, Any]) -> None:
        self.started = report["t"]
        pid = report.get("started") or report.get("pid")
        kept = {"keeper": report["keeper"]} if report.get("keeper") else {}
        self.said.state("running", pid=pid, **kept)
        self.evidence.begin(pid, report.get("cgroups"))
        if report.get("hosts"):
            door.keep(self.folder.id, dict(self._door, hosts=report["hosts"]))
        limit = seconds(self.spec.get("timeout_s"))
        if limit:
            self.steps.limit(limit, seconds(self.spec.get("grace_s")))

    def _watch(self, log: str) -> None:
        """Now and then while the script runs."""
        self.scheduler.tend()
        self.evidence.tick()
        self._watch_log(log)

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

    def _finish(self, seen: dict[str, Any]) -> dict[str, Any]:
        """The script has ended, as `seen`; leftovers get a while, then the end is what it is."""
        door.shut(self.folder.id)
        self.said.state("finalizing")
        asked = self.steps.asked()
        hurried = asked or self.steps.timed_out
        gpu = self.evidence.finish(seen.get("duration_s"))
        leftovers = self.steps.end_leftovers(0.0 if hurried else LEFTOVERS_S, Mask(self.order.hidden()))
        state, why = ends.by_exit(seen)
        if asked:
            state, why = "canceled", ends.cancelled(asked)
        elif self.steps.timed_out and not self.evidence.stopped_idle:
            text = "ended after its time limit of %g s" % self.spec["timeout_s"]
            state, why = "failed", ends.reason("timeout", text, limit_s=self.spec["timeout_s"])
        if not asked:
            state, why = self.evidence.refuse(gpu, state, why)
        self._look_at_disk()
        return ends.document(state, why, seen, leftovers=leftovers, gpu=gpu, **results.survey(self.folder))

    def _look_at_disk(self) -> None:
        try:
            space = os.statvfs(self.folder.path)
        except OSError:
            return
        if space.f_bavail * space.f_frsize < 1 << 20:
            self.said.say("note", text="the disk of the run folder is full; output may be cut short")

    def _at_fault(self, trouble: Exception) -> dict[str, Any]:
        """The end when the runner itself failed."""
        if self.started is None:
            return ends.document("failed", ends.reason("staging-failed", in_words(trouble)))
        why = ends.reason("runner-killed", "%s, and the script was ended" % _fault(trouble))
        return ends.document("failed", why, {"started": self.started}, **results.survey(self.folder))

    def _without_guard(self) -> dict[str, Any]:
        self.steps.kill_without_guard(self.spec["id"])
        if self.started is None and not self.folder.may_have_started(self.number):
            text = "dray's guard was killed before the script was started"
            return ends.document("failed", ends.reason("not-started", text))
        why = ends.reason("guard-killed", "dray's guard was killed, and the script with it")
        return ends.document("failed", why, {"started": self.started}, **results.survey(self.folder))


def _cannot_start(program: str, number: int) -> dict[str, Any]:
    told = {
        errno.ENOENT: "`%s` was not found on the machine" % program,
        errno.EACCES: "`%s` is not executable" % program,
        errno.ENOEXEC: "`%s` is no program: it has no `#!` line" % program,
    }
    text = told.get(number) or "`%s` cannot be executed: %s" % (program, os.strerror(number))
    return ends.document("failed", ends.reason("cannot-start", text, errno=number))


def in_words(trouble: Exception) -> str:
    """Why nothing could be started, for the user."""
    if isinstance(trouble, OSError):
        about = " (%s)" % os.path.basename(str(trouble.filename)) if trouble.filename else ""
        return "the code could not be laid out on the machine: %s%s" % (trouble.strerror, about)
    return _fault(trouble)


def _fault(trouble: Exception) -> str:
    return "the runner met a fault of its own, told in its `runner.log` (%s: %s)" % (
        type(trouble).__name__,
        trouble,
    )
