"""One run, as the SDK and the command line see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dray.core.errors import DrayError, LinkLost, UnknownName
from dray.core.states import RunState
from dray.hosts import Connection, HostUnreachable
from dray.store import RunRecord, Series, Store, StoreError
from dray.workspace.edits import check_note, checked_tags, edits_of
from dray.workspace.errors import RunAlive
from dray.workspace.events import Ended, Event, Output, StateChanged
from dray.workspace.explain import explain
from dray.workspace.following import Follower, look
from dray.workspace.linking import linked
from dray.workspace.outputs import Outputs
from dray.workspace.reaching import Reachable
from dray.workspace.showing import Shown
from dray.workspace.submission import check_word, me

if TYPE_CHECKING:
    from pathlib import Path

    from dray.gpu.verdict import Told
    from dray.workspace.comparing import Comparison
    from dray.workspace.facade import Workspace
    from dray.workspace.logged import Image, Table
    from dray.workspace.repeating import Repetition
    from dray.workspace.restoring import Restored

SCRIPT_LOG = "log.script"
LOCK = "lock.environment"
_MOST_TAIL = 64 << 20


class Run(Reachable):
    """A run of the history. Reading attributes reads the history; `refresh` and `follow` ask the machine."""

    def __init__(
        self,
        workspace: Workspace,
        record: RunRecord,
        connection: Connection | None = None,
        *,
        interrupted: bool = False,
    ) -> None:
        self._workspace = workspace
        self._store = workspace.store
        self.record = record
        self.id = record.id
        self._connection = connection
        self._interrupted = interrupted

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.name or self.record.experiment} {self.status}>"

    # -- how it stands

    @property
    def name(self) -> str | None:
        """The name it was given, at submit or by `rename`."""
        return self.record.name

    @property
    def note(self) -> str | None:
        """What somebody wrote about it afterwards; set it to write one, to None to take it away."""
        return self.record.note

    @note.setter
    def note(self, text: str | None) -> None:
        check_note(text)
        self._edit(note=text or "")

    @property
    def status(self) -> RunState:
        """As of the last look."""
        return self.record.status

    @property
    def reason(self) -> dict[str, Any] | None:
        """Why it ended."""
        return self.record.reason

    @property
    def exit_code(self) -> int | None:
        """The script's own, if it ended by itself."""
        return self.record.exit_code

    @property
    def ended(self) -> bool:
        """Nothing will happen any more."""
        return self.record.status.is_ended

    @property
    def _is_here(self) -> bool:
        """All that can be known is in the history: there is no machine to be asked."""
        return self.record.complete or self.record.imported is not None

    def _reread(self) -> None:
        self.record = self._store.run(self.id)

    def refresh(self, everything: bool = True) -> Run:
        """Ask the machine and take in what is new; costs nothing once the run is complete here."""
        if self._is_here or (self.ended and not everything):
            return self
        for _ in self._live(self._follower(()), wait=False):
            continue
        self._reread()
        return self

    def look(self, within_s: float = 2.0) -> Run:
        """Ask the machine how the run stands, and not for its log. Raises LinkLost when there is no answer in time."""
        if not self.ended:
            connection = self._take_connection()
            try:
                is_all = look(self._store, connection, [self.record], within_s)
            except BaseException:
                connection.close()
                raise
            self._connection = connection  # who looks goes on to follow, mostly
            if not is_all:
                self.detach()
            self._reread()
            if self.record.complete:
                self.detach()
        return self

    # -- following

    def follow(self, *, streams: tuple[str, ...] = (SCRIPT_LOG,), wait: bool = True) -> Iterator[Event]:
        """Everything from the first byte on, then live up to the end. Leaving early harms nothing."""
        if self._interrupted:
            # Ctrl-C came while the run was handed over, and too late to stop it: the caller leaves, the run goes on.
            self._interrupted = False
            raise KeyboardInterrupt
        follower = self._follower(streams)
        self._reread()
        if not self._is_here and self.status not in (RunState.CREATED, RunState.STAGING):
            yield StateChanged(self.record.status)
        yield from follower.stored()
        if self._is_here:
            yield Ended(self.record)
            return
        yield from self._live(follower, wait=wait)

    def _here(self) -> Store:
        """The history, brought up to date if the machine can be asked; what it knows is worth telling in any case."""
        try:
            self.refresh()
        except DrayError as trouble:
            if isinstance(trouble, StoreError):
                raise
            self._store.looked(self.id, time.time(), unreachable=trouble.what)
            self._reread()
        return self._store

    def _follower(self, streams: tuple[str, ...]) -> Follower:
        return Follower(self._store, self.id, streams, self._workspace.readable_root(self.record.compute))

    def _live(self, follower: Follower, *, wait: bool) -> Iterator[Event]:
        shown = self.record.status
        for event in self._linked(follower, wait=wait):
            if isinstance(event, StateChanged):
                if event.state is shown:
                    continue
                shown = event.state
            if isinstance(event, Ended):
                self.record = event.record
            yield event

    def _linked(self, follower: Follower, *, wait: bool) -> Iterator[Event]:
        """The follower's events, over as many connections as it takes."""
        patience_s = self._workspace.target(self.record.compute).host.patience_s
        try:
            yield from linked(follower, self._take_connection, patience_s, wait=wait)
        except LinkLost as lost:
            self._store.looked(self.id, time.time(), unreachable=lost.what)
            raise

    def _take_connection(self) -> Connection:
        connection, self._connection = self._connection, None
        return connection or self._workspace.connect(self.record.compute)

    def lock(self) -> tuple[str, str]:
        """`(text, kind)` of what was installed for it, exactly: "pylock" or "requirements". Raises NoLock."""
        from dray.workspace.errors import NoLock

        if self.record.spec.environment is None:
            raise NoLock(self.id, "it had no environment of its own: nothing was installed for it")
        events = self.follow(streams=(LOCK,), wait=False)
        text = b"".join(event.data for event in events if isinstance(event, Output) and event.stream == LOCK)
        if not text:
            raise NoLock(
                self.id,
                "its environment was never ready" if self.ended else "its environment is not ready yet",
            )
        shown = text.decode("utf-8", "replace")
        return shown, "pylock" if "\nlock-version = " in f"\n{shown}" else "requirements"

    def wait(self, show_output: bool = False, timeout: float | None = None) -> Run:
        """Until the run has ended. With `show_output` its log goes to stdout. TimeoutError after `timeout` seconds."""
        streams = (SCRIPT_LOG,) if show_output else ()
        events = self.follow(streams=streams) if timeout is None else self._looks(streams, timeout)
        shown = Shown()
        try:
            for event in events:
                if isinstance(event, Output):
                    shown.write(event.data)
        finally:
            shown.finish()
        return self

    def _looks(self, streams: tuple[str, ...], within_s: float) -> Iterator[Event]:
        """What `follow` gives, by looking again and again, because a connection can wait without end."""
        deadline = time.monotonic() + within_s
        follower = self._follower(streams)
        yield from follower.stored()
        while not self.record.complete:
            yield from self._live(follower, wait=False)
            self._reread()
            if self.ended:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"run {self.id} is still {self.status} after {within_s:g} s")
            time.sleep(0.1)

    def detach(self) -> None:
        """Let go of the connection that the submit left open."""
        if self._connection:
            self._connection.close()
            self._connection = None

    # -- what it said

    @property
    def metrics(self) -> Mapping[str, Series]:
        """Full histories by name."""
        return self._here().metrics(self.id)

    def latest(self) -> dict[str, tuple[float, int | None]]:
        """(value, step) of the last point of each metric."""
        return self._store.latest([self.id])[self.id]

    @property
    def params(self) -> dict[str, Any]:
        """As the script logged them."""
        return self._here().params(self.id)

    @property
    def tags(self) -> dict[str, str]:
        """From the submit, from the script, and set afterwards."""
        return self._here().tags(self.id)

    def texts(self) -> dict[str, tuple[str, int | None]]:
        """name -> (value, step) of the last that was given to `log` under that name and was no number."""
        lines = self._store.texts(self.id)
        return {line.data["name"]: (str(line.data.get("value")), line.data["step"]) for line in lines}

    def tables(self) -> list[Table]:
        """What was logged with `log_table`, oldest first."""
        from dray.workspace import logged

        return logged.tables(self._here().tables(self.id))

    def images(self) -> list[Image]:
        """What was logged with `log_image`, oldest first."""
        from dray.workspace import logged

        return logged.images(self._here(), self.id, self._store.images(self.id))

    def to_pandas(self) -> Any:
        """All metrics as one DataFrame with the columns name, step, time, value. Raises PandasMissing."""
        from dray.workspace.frames import metrics_frame

        return metrics_frame(self.metrics)

    def log_streams(self) -> list[str]:
        """Names of the logs there are: `log.script`, `log.environment`."""
        return sorted({stream for _, stream in self._here().log_streams(self.id)})

    def log(self, stream: str = SCRIPT_LOG) -> bytes:
        """A log's bytes, of all attempts."""
        self._check_stream(stream)
        store = self._store
        return b"".join(
            store.read_log(self.id, attempt, name, 0, store.log_size(self.id, attempt, name))
            for attempt, name in store.log_streams(self.id)
            if name == stream
        )

    def tail(self, lines: int, stream: str = SCRIPT_LOG) -> bytes:
        """The last lines of a log."""
        self._check_stream(stream)
        return self._stored_tail(lines, stream)

    def _stored_tail(self, lines: int, stream: str) -> bytes:
        attempts = [attempt for attempt, name in self._store.log_streams(self.id) if name == stream]
        if not attempts:
            return b""
        start = self._store.tail_start(self.id, attempts[-1], stream, lines)
        return self._store.read_log(self.id, attempts[-1], stream, start, _MOST_TAIL)

    def _check_stream(self, stream: str) -> None:
        known = self.log_streams()
        if stream not in known and stream != SCRIPT_LOG:
            raise UnknownName(
                "log", stream.removeprefix("log."), [name.removeprefix("log.") for name in known]
            )

    @property
    def gpu(self) -> Told | None:
        """Whether it used a GPU, and if not, why; None while nobody can say."""
        end = self.record.end
        if end is None:
            return None
        from dray.gpu.verdict import of_run

        is_summed_up = "gpu" in end
        samples = () if is_summed_up else [line.data for line in self._store.telemetry(self.id)]
        devices = None if is_summed_up else self._store.gpus(self.id)
        return of_run(end, devices, samples, self.record.compute)

    @property
    def outputs(self) -> Outputs:
        """What it left behind."""
        return Outputs(self)

    def explain(self) -> list[str]:
        """Sentences that spare the user a search: what was left out and then missed, what lies elsewhere."""
        spec = self.record.spec
        # From the history alone: a list of all runs has these sentences too, and asks no machine.
        is_puzzling = self.record.exit_code and spec.left_out
        return explain(self.record, spec, self._stored_tail(200, SCRIPT_LOG) if is_puzzling else b"")

    # -- what is said afterwards

    def rename(self, name: str | None) -> None:
        """Call it `name` from now on; None takes the name away. What the run itself said is kept (`edits`)."""
        if name is not None:
            check_word("name", name)
        self._edit(name=name or "")

    def tag(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Put tags on it, as in `run.tag(stage="dev")`, whatever the run itself said."""
        self._edit(tags=checked_tags({**(values or {}), **named}))

    def untag(self, *names: str) -> None:
        """Take tags away. Raises UnknownName for one that it does not have."""
        known: Mapping[str, str] = self._store.tags(self.id)
        if not known.keys() >= set(names):
            known = self.tags  # the script may have set it meanwhile
        for name in names:
            if name not in known:
                raise UnknownName("tag", name, known)
        self._edit(tags=dict.fromkeys(names))

    def edits(self) -> list[dict[str, Any]]:
        """What was said afterwards: kind, name (of a tag), value, time, and what the run itself had `said`."""
        return edits_of(self._store, self.record)

    def _edit(self, **said: Any) -> None:
        self._store.edit(self.id, **said)
        self._reread()

    # -- acts

    def cancel(self, grace_s: float = 10.0) -> RunState:
        """Ask for the end: SIGTERM to all, SIGKILL after `grace_s`. Returns the state right after asking."""
        try:
            return self._cancel(grace_s)
        except HostUnreachable as away:
            away.hint = f"it goes on, as far as is known; when the machine is back: dray cancel {self.id}"
            raise

    def _cancel(self, grace_s: float) -> RunState:
        self.refresh(everything=False)
        if self.ended:
            return self.status
        by = me()
        with self._workspace.connect(self.record.compute) as connection:
            answer = connection.call({"op": "cancel", "run": self.id, "grace": grace_s, "by": by})
            if "absent" in answer and self.status in (RunState.CREATED, RunState.STAGING):
                # Still on its way: a tombstone is there before it.
                spec = self.record.spec.to_json()
                answer = connection.call({"op": "never", "run": self.id, "spec": spec})
                if "never" in answer:
                    why = {
                        "kind": "cancelled",
                        "text": f"cancelled by {by} before it reached the machine",
                        "by": by,
                    }
                    self._store.set_state(self.id, RunState.CANCELED, why)
                    self._store.mark_complete(self.id)
                else:
                    answer = connection.call({"op": "cancel", "run": self.id, "grace": grace_s, "by": by})
        if "cancelling" in answer:
            self._reread()
        else:
            self.refresh()
        return self.status

    def restore(
        self, to: str | Path, on: Callable[[Event], None] | None = None, *, force: bool = False
    ) -> Restored:
        """Lay its exact code out in the folder `to`, new or empty; with `force` what is there moves to a name beside it."""
        from dray.workspace.restoring import restore

        return restore(self, to, on, force=force)

    def rerun(self, *args: str, on: Callable[[Event], None] | None = None, **fields: Any) -> Run:
        """Run the same code, environment and command again; returns once the new run has begun its life.

        `args` replace all words after the script (`args=()` leaves none). `fields` are those of Repetition: compute, name,
        experiment, tags, env, secrets (values for all that the run had), `timeout` in seconds.
        """
        from dray.workspace.repeating import repetition

        return self.repeat(repetition(args, fields), on)

    def repeat(self, wish: Repetition, on: Callable[[Event], None] | None = None) -> Run:
        """The same, for a Repetition."""
        from dray.workspace.repeating import rerun

        return rerun(self._workspace, self, wish, on)

    def compare(self, *others: Run) -> Comparison:
        """What is different in `others`: plain data, and on demand the difference of code and environments."""
        from dray.workspace.comparing import Comparison

        return Comparison(self._workspace, [self, *others])

    def remove(self) -> None:
        """Forget the run, here and on its machine (an imported one: here). Raises RunAlive for a live one."""
        self.refresh(everything=False)
        if not self.ended:
            raise RunAlive(self.id, str(self.status))
        if self.record.imported is None:
            with self._workspace.connect(self.record.compute) as connection:
                if "refused" in connection.call({"op": "remove", "run": self.id}):
                    raise RunAlive(self.id, "still alive on its machine")
        self._store.remove(self.id)

    def to_json(self) -> dict[str, Any]:
        """The document of `dray show --json`, from the history alone; `refresh` first if it has to be fresh."""
        record, spec = self.record, self.record.spec
        host = dict(record.host or {})
        return {
            "id": record.id,
            "name": record.name,
            "experiment": record.experiment,
            "compute": record.compute,
            "status": str(record.status),
            "reason": record.reason,
            "exit_code": record.exit_code,
            "signal": record.signal,
            "command": list(spec.command),
            "script": spec.command[0] if spec.script else None,
            "created": record.created,
            "started": record.started,
            "ended": record.ended,
            "duration_s": record.duration_s,
            "host": host or None,
            "folder": spec.folder,
            "snapshot": {"digest": spec.snapshot, "files": spec.files, "bytes": spec.bytes},
            "git": dict(spec.git) if spec.git else None,
            "environment": {
                **(record.environment or {"python": spec.python}),
                "spec": spec.environment.to_json() if spec.environment else None,
            },
            "params": self._store.params(self.id),
            "tags": self._store.tags(self.id),
            "note": record.note,
            "edits": self.edits(),
            "metrics": {name: {"value": v, "step": s} for name, (v, s) in sorted(self.latest().items())},
            "texts": {name: {"value": v, "step": s} for name, (v, s) in sorted(self.texts().items())},
            "gpu": told.to_json() if (told := self.gpu) else None,
            "outputs": [{"path": p, "bytes": n} for p, n in self.outputs.known()],
            "logs": sorted({s for _, s in self._store.log_streams(self.id) if s.startswith("log.")}),
            "attempts": record.attempts,
            "notes": list(record.notes),
            "explanations": self.explain(),
            "leftovers": (record.end or {}).get("leftovers", []),
            "rerun_of": spec.rerun_of,
            "timeout_s": spec.timeout_s,
            "env": dict(spec.env),
            "secrets": list(spec.secrets),
            "submitted_by": spec.submitted_by,
            "as_of": record.as_of,
            "unreachable": record.unreachable,
            "imported": record.imported,
        }
