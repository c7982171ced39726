"""The process that stays beside a container: starts it, waits for it, and tells how it ended. The guard's child, forked and never executed.

The container is the engine's, not ours; the engine's commands are only a way to ask. Any of them may be killed: it is asked again.
What is told goes to the guard as JSON lines: {"up": {...}} once, then {"exit": {...}}.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from typing import Any, Dict, List, Tuple

from ..files import write_all
from .engines import Answer, parsed, telling
from .gpus import explain
from .words import MISSING

_AGAIN_S = 0.25
_NO_ENGINE_S = 600.0
_GONE = ("no such", "no container with name")


def keep(order: Dict[str, Any], told: int) -> None:
    """In a fresh child of the guard: see one container from its start to its end."""
    os.closerange(3, told)
    os.closerange(told + 1, 4096)
    _Keeper(order, told).live()


class _Keeper:
    def __init__(self, order: Dict[str, Any], told: int) -> None:
        self._order = order
        self._told = told
        self._name: str = order["name"]
        self._env: Dict[str, str] = order["env"]
        self._is_to_end = False
        self._is_up = False
        self._killers: List[subprocess.Popen[bytes]] = []

    def live(self) -> None:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._asked)
        begun = self._start()
        if begun is not None:
            self._tell({"exit": begun})
            return
        self._is_up = True
        if self._is_to_end:
            self._pass_on()
        self._tell({"up": {**self._seen_up(), "keeper": os.getpid(), "t": time.time()}})
        if self._order.get("secrets"):
            self._feed()
        if self._order.get("bare"):
            self._pump()
        self._tell({"exit": self._end()})

    def _tell(self, words: Dict[str, Any]) -> None:
        try:
            write_all(self._told, json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            pass  # the guard is gone, and we with it

    def _asked(self, number: int, frame: Any) -> None:
        """SIGTERM from the runner is meant for the script."""
        self._is_to_end = True
        if self._is_up:
            self._pass_on()

    def _pass_on(self) -> None:
        self._killers.append(self._engine(["kill", "--signal", "TERM", self._name]))

    def _engine(self, words: List[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._order["engine"], *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            cwd="/",
        )

    def _ask(self, words: List[str]) -> Answer:
        one = self._engine(words)
        out, err = one.communicate()
        return Answer(one.returncode, out, err)

    def _start(self) -> Dict[str, Any] | None:
        """Start the container; how it ended, when it did not come to be."""
        env, self._env = self._env, dict(self._env, **self._order.get("named") or {})
        answer = self._ask(self._order["start"])
        self._env = env
        if answer.code == 0:
            return None
        if answer.code is not None and answer.code < 0:
            # Somebody has killed the command; how far it had come, the engine knows.
            state = self._state()
            if state and state.get("Status") == "created" and not self._is_to_end:
                answer = self._ask(["start", self._name])
                if answer.code == 0:
                    return None
            elif state and state.get("Status") not in (None, "created"):
                return None
        why = explain(answer.err) or telling(answer.err) or "its command was killed"
        return {"refused": why, "code": answer.code}

    def _state(self) -> Dict[str, Any] | None:
        """The container's state as the engine sees it; None when there is no such container. Waits for an engine that is away."""
        deadline = time.monotonic() + _NO_ENGINE_S
        while True:
            answer = self._ask(["container", "inspect", "--format", "{{json .State}}", self._name])
            if answer.code == 0:
                try:
                    state: Dict[str, Any] = json.loads(answer.out)
                    return state
                except ValueError:
                    pass  # cut: ask again
            elif any(words in answer.err.lower() for words in _GONE):
                return None
            if time.monotonic() > deadline:
                return None
            time.sleep(_AGAIN_S)

    def _seen_up(self) -> Dict[str, Any]:
        """What others need to know of the container: its first process, its cgroup, the addresses of its ports."""
        said = parsed(self._ask(["container", "inspect", "--format", "{{json .}}", self._name]).out)
        if not isinstance(said, dict):
            return {}
        networks = (said.get("NetworkSettings") or {}).get("Networks") or {}
        found = [str((one or {}).get("IPAddress") or "") for one in networks.values()]
        return {
            "pid": int((said.get("State") or {}).get("Pid") or 0) or None,
            "cgroups": [str(said["Id"])] if said.get("Id") else [],
            "hosts": [address for address in found if address],
        }

    def _feed(self) -> None:
        """Hand the secrets to the shell in the container, which reads them from a pipe."""
        path, text = self._order["pipe"], self._order["secrets"].encode("utf-8", "surrogateescape")
        while True:
            try:
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError as trouble:
                if trouble.errno != errno.ENXIO:
                    return
            if not self._runs():
                return
            time.sleep(0.01)
        os.set_blocking(fd, True)
        try:
            write_all(fd, text)
        except BrokenPipeError:
            pass  # it ended meanwhile
        os.close(fd)

    def _runs(self) -> bool:
        return bool((self._state() or {}).get("Running"))

    def _end(self) -> Dict[str, Any]:
        """Wait until the container has ended; how it did."""
        while True:
            self._ask(["wait", self._name])
            state = self._state()
            if state is None:
                return {"gone": True}
            if state.get("Running") or state.get("Paused") or state.get("Restarting"):
                time.sleep(_AGAIN_S)  # the command was killed, or the engine has come back
                continue
            return self._told_by(state)

    def _told_by(self, state: Dict[str, Any]) -> Dict[str, Any]:
        code = int(state.get("ExitCode") or 0)
        seen: Dict[str, Any] = {
            "code": code,
            "signal": None,
            "oom": bool(state.get("OOMKilled")) and code != 0,
        }
        if seen["oom"]:
            seen["limit"] = self._order.get("limit")
        if 128 < code <= 128 + 64:
            seen.update({"code": None, "signal": code - 128})
        if code == 127 and not self._order.get("bare"):
            said = self._ask(["logs", self._name]).out
            if said.startswith(MISSING):
                return {"missing": said[len(MISSING) :].strip()}
        if state.get("Error"):
            return {"refused": telling(str(state["Error"])), "code": code}
        return seen

    def _pump(self) -> None:
        """Of an image without a shell the engine keeps the log: bring it to ours, and go on from the same byte when cut."""
        moved = 0
        while True:
            _, moved = self._log(["--follow"], moved)
            if not self._runs():
                break
            time.sleep(_AGAIN_S)
        # Docker's followers may stop before the last lines of a container that ends, and say that all is well. What has ended can be read
        # to its last line; the engine may still be writing that down.
        while True:
            before = moved
            code, moved = self._log([], moved)
            if (code == 0 and moved == before) or self._state() is None:
                return
            time.sleep(_AGAIN_S)

    def _log(self, how: List[str], moved: int) -> Tuple[int, int]:
        """Read the engine's log from its start; bring what comes after the first `moved` bytes. The command's code, and how much was brought in all."""
        reader = subprocess.Popen(
            [self._order["engine"], "logs", *how, self._name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._env,
            cwd="/",
        )
        moved = _move(reader, moved)
        return reader.wait(), moved


def _move(follower: subprocess.Popen[bytes], moved: int) -> int:
    """All that `follower` says, less the first `moved` bytes, to stdout; how much that is in all."""
    assert follower.stdout is not None
    skipped = 0
    while True:
        data = os.read(follower.stdout.fileno(), 1 << 16)
        if not data:
            follower.stdout.close()
            return max(moved, skipped)
        fresh = data[max(0, moved - skipped) :] if skipped < moved else data
        skipped += len(data)
        if fresh:
            write_all(1, fresh)
            moved = max(moved, skipped)
