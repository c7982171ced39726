"""What a channel can ask of this machine: submit, follow, look, cancel, fetch, code, remove, clean up, list, probe.

One process per channel, ended by the channel's end. It answers requests in order while it follows runs; docs/design.md, "The wire".
"""

from __future__ import annotations

import os
import select
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable

from . import bytecode, code, frames, gate, layout, results, visit
from .files import remove_tree, write_all
from .folder import RunFolder, Taken
from .machine import Machine
from .steps import seconds
from .streams import Reader
from .trouble import Trouble

if TYPE_CHECKING:
    from .queue.placing import Placing
    from .reach.line import Line

_SETTLE_EVERY_S = 1.0
_QUICK_S, _SLOW_S = 0.004, 0.05
_PLACE_S = 0.2
_WORTH_A_COPY = 64 * 1024  # below, one write is worth more than the copy that it takes


class _Following:
    """One run that the client wants to see grow."""

    def __init__(self, folder: RunFolder, request: dict[str, Any]) -> None:
        self.folder = folder
        self.wait = bool(request.get("wait", True))
        self.shared = bool(request.get("shared"))
        self.reader = Reader(folder, request.get("cursor") or {}, request.get("streams") or [""])
        self.settled = 0.0
        self.alive = True
        self.told_idle = False


class Server:
    """Answers one channel."""

    def __init__(self, root: str, here: str, receive: Callable[[], frames.Frame | None], out: int) -> None:
        self.machine = Machine(root)
        self.here = here
        self.receive = receive
        self.out = out
        self.following: dict[str, _Following] = {}
        self.placing: Placing | None = None
        self.ended = False
        self._lives: list[int] = []
        """A pipe of each run that was started here: it ends with the run, which is then told at once."""
        self.source = 0
        self._pause = _QUICK_S

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """One frame to the client."""
        if len(body) < _WORTH_A_COPY:
            write_all(self.out, frames.encode(header, body))
        else:
            write_all(self.out, frames.head_of(header, len(body)))
            write_all(self.out, body)

    def main(self, source: int, first: frames.Frame) -> None:
        """Answer `first`, then whatever comes, until the channel ends."""
        self.source = source
        self._answer(*first)
        while not self.ended:
            patience = self._pause if self.following else _PLACE_S if self.placing else None
            ready = select.select([source, *self._lives], [], [], patience)[0]
            if source in ready:
                frame = self.receive()
                if frame is None:
                    return
                self._answer(*frame)
                self._pause = _QUICK_S
            for life in self._lives[:]:
                if life in ready:
                    os.close(life)
                    self._lives.remove(life)
            self._tell_place()
            moved = [self._advance(key) for key in list(self.following)]
            # Awake while there is something to see, drowsy when there is not: at most 50 ms late.
            self._pause = _QUICK_S if any(moved) else min(_SLOW_S, self._pause * 1.2)

    def _answer(self, header: dict[str, Any], body: bytes) -> None:
        if "blobs" in header and "op" not in header:
            return  # of a submit that has failed meanwhile: an answer for each could fill the channel both ways
        op = str(header.get("op"))
        handler = getattr(self, "_op_" + op, None)
        try:
            if handler is None:
                raise Trouble("unknown-request", "this runner does not know `%s`" % op[:40])
            handler(header)
        except Trouble as trouble:
            self.send({"error": trouble.code, "text": str(trouble), "op": op})
        except BrokenPipeError:
            self.ended = True
        except OSError as trouble:
            about = ": %s" % trouble.filename if trouble.filename else ""
            self.send({"error": "os-error", "text": "%s%s" % (trouble.strerror, about), "op": op})
        except Exception as trouble:  # one bad request, or one ruined run folder, ends no channel
            traceback.print_exc()
            self.send(
                {"error": "bad-request", "text": "%s: %s" % (type(trouble).__name__, trouble), "op": op}
            )

    def _folder(self, header: dict[str, Any]) -> RunFolder:
        try:
            return RunFolder(self.machine, str(header.get("run")))
        except ValueError as trouble:
            raise Trouble("no-run-id", str(trouble)) from None

    # -- submit

    def _op_submit(self, header: dict[str, Any]) -> None:
        from . import queue  # what only a submit needs: most channels look, and want to be quick
        from .launch import Order
        from .start import start_runner

        spec, manifest = header["spec"], header["manifest"]
        self._folder({"run": spec.get("id")})
        try:
            layout.check(manifest)
        except layout.BadManifest as trouble:
            raise Trouble("bad-manifest", str(trouble)) from None
        placing, self.placing = self.placing, None
        try:
            asked = placing.asked if placing else queue.Asked(spec)
        except queue.Refused as refused:
            self.send({"refused": refused.code, "text": str(refused)})
            return
        if placing:
            placing.hand_over()
        order = Order(header, os.path.join(self.here, "travel"), asked)
        held = gate.enter(self.machine.folder)  # what is here now is here when the runner looks for it
        try:
            lacks = layout.lacking(self.machine, order.blobs, manifest)
            brought = order.provisions()
            if brought:
                lacks.update(brought.lacking(self.machine, spec, self._is_here))
            if lacks and not self._take_blobs(lacks):
                self.ended = True  # the client is gone in the middle: nothing was claimed
                return
            answer, life = start_runner(self.machine, order, manifest, held)
            self._lives.append(life)
        finally:
            gate.leave(held)
            if placing:
                placing.close()
        if answer.get("claimed"):
            answer["machine"] = {"id": self.machine.id, "boot": self.machine.boot}
        self.send(answer)

    def _is_here(self, digest: str, size: int) -> bool:
        return layout.find_blob(self.machine, None, digest, size) is not None

    def _take_blobs(self, wanted: dict[str, int]) -> bool:
        """Ask for those contents until all are there; False when the client is gone."""
        from .taking import Taking

        with Taking(self.machine, wanted) as taking:
            if taking.wanted:
                self.send(taking.lacks())
            while taking.wanted:
                frame = self.receive()
                if frame is None:
                    return False
                taking.frame(*frame)
                if taking.once_more():
                    self.send(taking.lacks())
        return True

    def _op_never(self, header: dict[str, Any]) -> None:
        folder = self._folder(header)
        try:
            folder.bury(header.get("spec") or {})
            self.send({"never": folder.id})
        except Taken as taken:
            self.send({"never": folder.id} if taken.never else {"claimed": folder.id})

    # -- follow and look

    def _op_follow(self, header: dict[str, Any]) -> None:
        folder = self._folder(header)
        if self._missing(folder):
            return
        self.following[folder.id] = _Following(folder, header)
        self._advance(folder.id)

    def _missing(self, folder: RunFolder) -> bool:
        """Tell the client when there is no such run here."""
        grave = folder.tombstone()
        if grave is not None:
            self.send({"never": folder.id, "t": grave.get("t"), "spec": grave.get("spec")})
        elif folder.run_json() is None:
            self.send({"absent": folder.id})
        else:
            return False
        return True

    def _advance(self, key: str) -> bool:
        """Send what is new of one followed run; True when there was something."""
        run = self.following[key]
        folder = run.folder
        now = time.monotonic()
        if now - run.settled >= _SETTLE_EVERY_S or not run.settled:
            run.alive = visit.settle(folder)
            run.settled = now
        number = (folder.attempts() or [1])[-1]
        # First whether it has ended, then what was said: so the end never overtakes a byte.
        end = folder.end(number)
        moved = False
        for news in run.reader.news(frames.PIECE, run.shared):
            header = {"run": key, "attempt": news.attempt, "stream": news.stream, "offset": news.offset}
            if news.path is not None:
                header.update({"at": news.path, "size": news.size})
            self.send(header, news.data)
            moved = True
        if moved:
            run.told_idle = False
            return True
        if end is not None:
            self.send({"run": key, "attempt": number, "end": end})
        if end is not None or not run.told_idle:
            self.send({"run": key, "idle": True, "alive": run.alive and end is None})
            run.told_idle = True
        if end is not None or not run.wait:
            del self.following[key]
        return False

    def _op_unfollow(self, header: dict[str, Any]) -> None:
        self.following.pop(str(header.get("run")), None)

    def _op_look(self, header: dict[str, Any]) -> None:
        for run_id, cursor in header["runs"].items():
            folder = self._folder({"run": run_id})
            try:
                if self._missing(folder):
                    continue
                request = {"cursor": cursor, "wait": False, "streams": header.get("streams") or ["state."]}
                self.following[run_id] = _Following(folder, request)
                while run_id in self.following:
                    self._advance(run_id)
            except (BrokenPipeError, Trouble):
                raise
            except Exception:
                traceback.print_exc()  # nothing can be said of this run for now; the others are told
                self.following.pop(run_id, None)
        self.send({"done": True})

    # -- the rest

    def _op_cancel(self, header: dict[str, Any]) -> None:
        folder = self._folder(header)
        if self._missing(folder):
            return
        visit.settle(folder)
        end = folder.end((folder.attempts() or [1])[-1])
        if end is not None:
            self.send({"end": end, "run": folder.id})
            return
        asked = {
            "by": str(header.get("by") or ""),
            "t": time.time(),
            "grace": seconds(header.get("grace", 10.0)),
        }
        folder.ask_to_cancel(asked)
        self.send({"cancelling": folder.id})

    def _op_files(self, header: dict[str, Any]) -> None:
        folder = self._folder(header)
        if self._missing(folder):
            return
        spec = (folder.run_json() or {}).get("spec") or {}
        globs = spec.get("outputs") or []
        if header.get("mirror"):
            self.send(results.listing_to_mirror(folder, globs, header.get("unless")))
        else:
            self.send({"files": results.listing(folder, globs)})

    def _op_fetch(self, header: dict[str, Any]) -> None:
        from .giving import give

        give(self._folder(header), header, self.send)

    # -- into a live run: the channel serves nothing else from then on

    def _op_exec(self, header: dict[str, Any]) -> None:
        from .reach.commands import execute

        self._reach(header, execute)

    def _op_forward(self, header: dict[str, Any]) -> None:
        from .reach.ports import forward

        self._reach(header, forward)

    def _reach(
        self, header: dict[str, Any], reach: Callable[[RunFolder, dict[str, Any], Line], None]
    ) -> None:
        from .reach.line import Line

        folder = self._folder(header)
        if self._missing(folder):
            return
        line = Line(self.receive, self.source, self.out)
        self.ended = True
        try:
            reach(folder, header, line)
        finally:
            line.finish()

    def _op_ping(self, header: dict[str, Any]) -> None:
        self.send({"pong": True})

    # -- the code of a run

    def _op_manifest(self, header: dict[str, Any]) -> None:
        folder = self._folder(header)
        if not self._missing(folder):
            self.send({"manifest": self._manifest(folder)})

    def _manifest(self, folder: RunFolder) -> dict[str, Any]:
        manifest = code.manifest_of(folder)
        if manifest is None:
            raise Trouble("no-manifest", "the list of the run's files is damaged or gone")
        return manifest

    def _op_blobs(self, header: dict[str, Any]) -> None:
        folder = self._folder(header)
        if self._missing(folder):
            return
        known = code.places(self._manifest(folder))
        for digest in map(str, header["digests"]):
            fd = code.open_content(self.machine, folder, digest, *known[digest]) if digest in known else None
            if fd is None:
                self.send({"gone": digest})
                continue
            try:
                self._send_content(fd, digest, known[digest][0])
            finally:
                os.close(fd)
        self.send({"done": True})

    def _send_content(self, fd: int, digest: str, size: int) -> None:
        while True:
            piece = os.read(fd, min(frames.PIECE, size))
            size -= len(piece)
            last = (
                size <= 0 or not piece
            )  # shorter than it was a moment ago: the client sees that by the digest
            self.send({"blob": digest, "last": last}, piece)
            if last:
                return

    def _op_remove(self, header: dict[str, Any]) -> None:
        folder = self._folder(header)
        if folder.tombstone() is None and visit.settle(folder):
            self.send({"refused": "alive", "run": folder.id})
            return
        grave = os.path.join(self.machine.runs, ".trash-%s-%s" % (folder.id, os.urandom(4).hex()))
        try:
            os.rename(folder.path, grave)
            remove_tree(grave)
        except FileNotFoundError:
            pass  # forgotten before: that is what was wanted
        bytecode.forget(self.machine, folder.path)
        self.send({"removed": folder.id})

    def _op_list(self, header: dict[str, Any]) -> None:
        runs, never = [], []
        for name in sorted(os.listdir(self.machine.runs)):
            if not name.startswith("."):
                folder = RunFolder(self.machine, name)
                facts = folder.run_json()
                if facts is not None:
                    runs.append({"run": name, "spec": facts.get("spec"), "claimed": facts.get("claimed")})
                elif folder.tombstone() is not None:
                    never.append({"run": name, "spec": (folder.tombstone() or {}).get("spec")})
        self.send({"runs": runs, "never": never})

    def _op_purge(self, header: dict[str, Any]) -> None:
        from . import purge

        live = purge.alive(self.machine)
        if live:
            self.send({"alive": live})
        else:
            self.send({"purged": self.machine.root, "left": purge.purge(self.machine)})

    def _op_env(self, header: dict[str, Any]) -> None:
        from .environments import asked

        for answer, body in asked.answers(self.machine, self.here, header):
            self.send(answer, body)

    def _op_gc(self, header: dict[str, Any]) -> None:
        from .cleaning import Cleaning

        cleaning = Cleaning(self.machine, self.here)
        if "take" in header:
            for answer in cleaning.take([(str(kind), str(name)) for kind, name in header["take"]]):
                self.send(answer)
        elif "codes" in header:
            for answer, body in cleaning.codes([str(run) for run in header["codes"]]):
                self.send(answer, body)
        else:
            for answer in cleaning.listing(header.get("sizes")):
                self.send(answer)
        self.send({"done": True})

    def _op_engine(self, header: dict[str, Any]) -> None:
        from . import login
        from .containers import looking

        environ = (
            looking.login_environment(header.get("setup")) if header.get("login") else login.own_environment()
        )
        self.send({"engine": looking.look(header.get("engine"), environ)})

    def _op_examine(self, header: dict[str, Any]) -> None:
        from .gpu.examine import examine

        python = header.get("python")
        path = os.environ.get("PATH", os.defpath)
        self.send({"gpu": examine(self.machine, str(python) if python else None, path)})

    def _op_place(self, header: dict[str, Any]) -> None:
        from . import queue
        from .queue.placing import Placing

        if self.placing:
            self.placing.give_up()
        try:
            self.placing = Placing(queue.Asked(header["spec"]))
        except (queue.Refused, queue.NoDesk) as refused:
            self.send({"refused": getattr(refused, "code", "no-leases"), "text": str(refused)})
            return
        self._tell_place()

    def _tell_place(self) -> None:
        """What is new of the place that the client holds."""
        if self.placing is None:
            return
        news = self.placing.news()
        if news is not None:
            self.send(news)

    def _op_gpus(self, header: dict[str, Any]) -> None:
        from .queue.picture import picture

        self.send({"gpus": picture()})

    def _op_probe(self, header: dict[str, Any]) -> None:
        from . import logout
        from .environments.pythons import find_program

        path = os.environ.get("PATH", os.defpath)
        space = os.statvfs(self.machine.folder)
        facts = dict(self.machine.facts(), root=self.machine.root)
        facts["disk_free"] = space.f_bavail * space.f_frsize
        facts["programs"] = {
            name: find_program([name], path)
            for name in ("python", "python3", "uv", "git", "nvidia-smi", "docker", "podman", "nerdctl")
        }
        if header.get("gpus"):
            from .gpu.facts import for_builds

            facts["gpus"] = for_builds()
        if header.get("attach"):
            from .queue.machine_units import look

            facts["gpu_units"] = len(look().units)
        facts["logout"] = logout.look(self.machine, may_linger=bool(header.get("attach")))
        self.send({"machine": facts})


def main(root: str, here: str, first: frames.Frame, source: int = 0, out: int = 1) -> None:
    """Serve the channel on `source` and `out`; `here` is the folder that this version was unpacked to."""

    def receive() -> frames.Frame | None:
        return frames.decode(frames.exact_reader(lambda size: os.read(source, size)))

    server = Server(root, here, receive, out)
    try:
        server.main(source, first)
    except (BrokenPipeError, frames.BrokenFrame):
        sys.exit(1)
    finally:
        if server.placing:
            server.placing.give_up()
