"""Takes what a machine says of a run into the history, and tells the caller what is new. The one place where both meet.

Read `Follower.events` first. Everything here may be cut at any moment: what was not taken in is sent again next time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from dray.core.errors import LinkLost, printable
from dray.core.states import RunState
from dray.gpu.verdict import header_lines
from dray.hosts import Connection
from dray.store import RunRecord, Shared, Store, decided
from dray.workspace.events import Ended, Event, Output, Progress, Said, StateChanged

_BATCH = 4 << 20
_PIECE = 1 << 20
_SMALL = 1 << 16
_NOT_STARTED = {"kind": "not-started", "text": "it never reached the machine"}
_GONE = {"kind": "vanished", "text": "its folder is not on the machine any more"}
_GRACE_FOR_CLIENT_S = 0.2
_LOOKED_EVERY_S = 2.0
_SAID = ("state.", "events.")


class Follower:
    """One run, from where the history stands."""

    def __init__(
        self, store: Store, run_id: str, streams: tuple[str, ...], shared_below: str | None = None
    ) -> None:
        """`shared_below`: the machine's folder, if this very machine can read it; logs then need not be carried over."""
        self.store = store
        self.run_id = run_id
        self.streams = streams
        self.shared_below = shared_below
        self.cursor = store.cursors(run_id)
        """Where the next byte of each stream is to come from; ahead of the history by what is not written yet."""
        self._tails: dict[tuple[int, str], bytes] = {}
        self._batch: list[tuple[int, str, int, bytes | Shared]] = []
        self._batch_size = 0
        self._looked = 0.0

    def stored(self) -> Iterator[Output]:
        """What the history holds of the wanted logs, up to the cursor."""
        cursor = dict(self.cursor)
        for key in sorted(cursor, key=_by_attempt):
            attempt, _, stream = key.partition("/")
            if stream in self.streams:
                for start in range(0, cursor[key], _PIECE):
                    size = min(_PIECE, cursor[key] - start)
                    data = self.store.read_log(self.run_id, int(attempt), stream, start, size)
                    yield Output(stream, int(attempt), data)

    def events(self, connection: Connection, *, wait: bool) -> Iterator[Event]:
        """What is new on the machine, taken in and told, up to the end (or, without `wait`, up to now).

        After a LinkLost it may be called again with another connection, and goes on at the byte.
        """
        try:
            yield from self._events(connection, wait=wait)
        finally:
            self._flush()

    def _events(self, connection: Connection, *, wait: bool) -> Iterator[Event]:
        request = {"op": "follow", "run": self.run_id, "wait": wait, "streams": [""]}
        request["shared"] = self.shared_below is not None
        connection.ask({**request, "cursor": self.cursor})
        while True:
            header, body = connection.receive()
            if "stream" in header:
                yield from self._told(header, body)
                # Many small frames are one transaction; a pause in the stream is the time to write.
                if self._batch_size < _BATCH and connection.has_news(0):
                    continue
                self._flush()
            elif "end" in header:
                self._finish(header)
                yield Ended(self.store.run(self.run_id))
                return
            elif "idle" in header:
                self._flush()
                if not wait or time.monotonic() - self._looked > _LOOKED_EVERY_S:
                    self.store.looked(self.run_id, time.time())
                    self._looked = time.monotonic()
                if not wait:
                    return
            elif "absent" in header:
                if settle_absent(self.store, connection, self.run_id):
                    record = self.store.run(self.run_id)
                    if record.status.is_ended:
                        yield Ended(record)
                    return
                if not wait:
                    return
                # Another client is just about to bring it there.
                time.sleep(_GRACE_FOR_CLIENT_S)
                connection.ask({**request, "cursor": self.cursor})
            elif "never" in header:
                self.store.set_state(self.run_id, RunState.FAILED, _NOT_STARTED)
                yield Ended(self.store.run(self.run_id))
                return

    def _told(self, header: Mapping[str, Any], body: bytes) -> Iterator[Event]:
        attempt, stream, offset = int(header["attempt"]), str(header["stream"]), int(header["offset"])
        if "at" in header:
            yield from self._told_of_shared(attempt, stream, offset, header)
            return
        self.cursor[f"{attempt}/{stream}"] = offset + len(body)
        if stream.endswith(".jsonl"):
            tail = self._tails.pop((attempt, stream), b"")
            data = tail + body
            whole = decided(data)
            if data[whole:]:
                self._tails[attempt, stream] = data[whole:]
            if whole:
                self._add(attempt, stream, offset - len(tail), data[:whole])
            if stream == "state.jsonl":
                yield from _spoken(data[:whole])
            return
        self._add(attempt, stream, offset, body)
        if stream in self.streams:
            yield Output(stream, attempt, body)

    def _told_of_shared(
        self, attempt: int, stream: str, offset: int, header: Mapping[str, Any]
    ) -> Iterator[Output]:
        """A log that lies on this machine: the history shares the file, and who wants to see it reads it there."""
        path, size = str(header["at"]), int(header["size"])
        if self.shared_below is None or not is_below(path, self.shared_below):
            raise LinkLost("the machine named a log outside its own folder", why=printable(path))
        self.cursor[f"{attempt}/{stream}"] = offset + size
        self._batch.append((attempt, stream, offset, Shared(path, size)))
        if stream in self.streams:
            with open(path, "rb") as file:
                file.seek(offset)
                while size:
                    data = file.read(min(_PIECE, size))
                    if not data:
                        return  # the script cut its own log; what is gone is gone
                    size -= len(data)
                    yield Output(stream, attempt, data)

    def _add(self, attempt: int, stream: str, offset: int, data: bytes) -> None:
        if self._batch:
            *place, start, before = self._batch[-1]
            if place == [attempt, stream] and isinstance(before, bytes) and len(before) + len(data) < _SMALL:
                # The machine sends a stream in order, so this joins on.
                self._batch[-1] = (attempt, stream, start, before + data)
                self._batch_size += len(data)
                return
        self._batch.append((attempt, stream, offset, data))
        self._batch_size += len(data)

    def _flush(self) -> None:
        if self._batch:
            batch, self._batch, self._batch_size = self._batch, [], 0
            self.store.ingest_many(self.run_id, batch)

    def _finish(self, header: Mapping[str, Any]) -> None:
        self._flush()
        for (attempt, stream), tail in self._tails.items():
            # Its own place and not the history's cursor: another follower may have set the tail aside already.
            at = self.cursor[f"{attempt}/{stream}"] - len(tail)
            self.store.ingest(self.run_id, attempt, stream, at, tail, final=True)
        self.store.end(self.run_id, int(header["attempt"]), header["end"], complete=True)


def settle_absent(store: Store, connection: Connection, run_id: str) -> bool:
    """The machine does not know the run: make that final, unless a client is bringing it there right now (False)."""
    record = store.run(run_id)
    if record.status.is_ended:
        store.mark_complete(run_id)
        return True
    if record.status not in (RunState.CREATED, RunState.STAGING):
        store.set_state(run_id, RunState.LOST, _GONE)
        store.mark_complete(run_id)
        return True
    if store.is_submitting(run_id):
        return False
    answer = connection.call({"op": "never", "run": run_id, "spec": record.spec.to_json()})
    if "never" in answer:
        store.set_state(run_id, RunState.FAILED, _NOT_STARTED)
        store.mark_complete(run_id)
        return True
    return False  # it has got there in this very moment


def look(store: Store, connection: Connection, records: list[RunRecord], within_s: float) -> bool:
    """Ask once how those runs stand, and for what they logged: once an end is known, nobody asks for that any more.

    Logs and pictures are left for whoever wants to see them. False when time was up before all was told: then the rest is still on its way, and the connection of no more use.
    What has come is taken in. Raises LinkLost when nothing came at all.
    """
    cursors = {
        r.id: {k: v for k, v in store.cursors(r.id).items() if k.partition("/")[2].startswith(_SAID)}
        for r in records
    }
    connection.ask({"op": "look", "runs": cursors, "streams": list(_SAID)})
    followers = {r.id: Follower(store, r.id, ()) for r in records}
    try:
        absent, is_all = _looked(store, connection, followers, within_s)
    finally:
        for follower in followers.values():
            follower._flush()
    if is_all:
        for run_id in absent:
            settle_absent(store, connection, run_id)
    return is_all


def _looked(
    store: Store, connection: Connection, followers: Mapping[str, Follower], within_s: float
) -> tuple[list[str], bool]:
    """Take in the answers; the runs that the machine does not know, and whether all was told."""
    deadline = time.monotonic() + within_s
    absent: list[str] = []
    has_answered = False
    while True:
        has_news = connection.has_news(max(0.0, deadline - time.monotonic()))
        if not has_news and not has_answered:
            raise LinkLost(f"{connection.where} did not answer within {within_s:g} s")
        if not has_news or (has_answered and time.monotonic() > deadline):
            return absent, False
        header, body = connection.receive()
        has_answered = True
        run_id = str(header.get("run") or header.get("absent") or header.get("never") or "")
        if "done" in header:
            return absent, True
        if run_id not in followers:
            continue
        follower = followers[run_id]
        if "stream" in header:
            list(follower._told(header, body))
            if follower._batch_size >= _BATCH:
                follower._flush()
        elif "end" in header:
            follower._flush()
            store.end(run_id, int(header["attempt"]), header["end"], complete=False)
        elif "idle" in header:
            follower._flush()
            store.looked(run_id, time.time())
        elif "absent" in header:
            absent.append(run_id)
        elif "never" in header:
            store.set_state(run_id, RunState.FAILED, _NOT_STARTED)
            store.mark_complete(run_id)


def is_below(path: str, folder: str) -> bool:
    """Whether `path` leads to something inside `folder`, all links followed."""
    return os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


def _spoken(lines: bytes) -> Iterator[Event]:
    """States and notes in whole lines of the runner's stream."""
    for line in lines.split(b"\n"):
        try:
            event = json.loads(line)
            kind, data = event["type"], event["data"]
            if kind == "state":
                yield StateChanged(RunState(data["state"]), data)
            elif kind == "note":
                yield Said(str(data["text"]))
            elif kind == "gpus":
                yield from map(Said, header_lines(data["devices"]))
            elif kind == "progress" and data.get("of") == "environment":
                yield _making(data)
            elif kind == "environment" and data.get("built_s"):
                yield Said(f"environment built in {data['built_s']:g} s")
        except (ValueError, KeyError, TypeError, RecursionError):
            continue


def _making(data: Mapping[str, Any]) -> Progress:
    """How far the making of the environment is."""
    done, total = data.get("done"), data.get("total")
    return Progress(
        f"environment: {printable(str(data['phase']))}"
        + (
            f" for run {printable(str(data['text']))}"
            if data["phase"] == "waiting" and data.get("text")
            else ""
        ),
        done if isinstance(done, int) else 0,
        total if isinstance(total, int) else None,
    )


def _by_attempt(key: str) -> tuple[int, str]:
    attempt, _, stream = key.partition("/")
    return int(attempt), stream
