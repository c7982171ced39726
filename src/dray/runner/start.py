"""Starts the runner of one run: forks it away from the channel, has it claim, and brings back its verdict."""

from __future__ import annotations

import json
import os
import signal
import traceback
from typing import Any

from . import ends, gate
from .folder import RunFolder, Taken
from .launch import Order
from .life import Runner, in_words
from .machine import Machine


def start_runner(
    machine: Machine, order: Order, manifest: dict[str, Any], held: int | None = None
) -> tuple[dict[str, Any], int]:
    """Fork the runner; returns its verdict on the claim as the frame to answer with, and a pipe that ends when runner and guard have.

    It keeps the gate that is `held` until its claim names what it uses, whatever becomes of us meanwhile.
    """
    verdict_r, verdict_w = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(verdict_r)
            os.setsid()
            if os.fork():
                os._exit(0)
            _detach()
            _be_runner(machine, order, manifest, verdict_w, held)
        except BaseException:
            traceback.print_exc()  # stderr is runner.log, once there is one
        finally:
            os._exit(70)
    os.close(verdict_w)
    os.waitpid(child, 0)
    words = b""
    while not words.endswith(b"\n"):
        piece = os.read(verdict_r, 65536)
        if not piece:
            break
        words += piece
    if not words:
        return {"refused": "runner-died", "text": "the runner died while it claimed the run"}, verdict_r
    answer: dict[str, Any] = json.loads(words.decode())
    return answer, verdict_r


def _tell(verdict: int, words: dict[str, Any]) -> None:
    os.write(verdict, json.dumps(words).encode() + b"\n")


def _detach() -> None:
    """Let go of the channel and of the place where it was started."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)


def _be_runner(
    machine: Machine, order: Order, manifest: dict[str, Any], verdict: int, held: int | None
) -> None:
    umask = os.umask(0o077)
    folder = RunFolder(machine, order.spec["id"])
    try:
        folder.claim(order.spec, manifest)
        brought = order.provisions()
        if brought:
            brought.lay_out(machine, folder.path)
        gate.leave(held)
        answer: dict[str, Any] = {"claimed": True}
    except Taken as taken:
        if taken.never:
            answer = {"refused": "never", "text": "the run was already declared not started"}
        elif taken.same:
            answer = {"claimed": True}
        else:
            answer = {"refused": "taken", "text": "there is another run of that id on the machine"}
        _tell(verdict, answer)
        os._exit(0)
    except OSError as trouble:
        text = "the run folder cannot be made: %s" % trouble.strerror
        _tell(verdict, {"refused": "no-folder", "text": text})
        os._exit(0)
    log = os.open(
        os.path.join(folder.attempt(1), "runner.log"),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
        0o600,
    )
    os.dup2(log, 2)
    _tell(verdict, answer)  # it stays open: its end is ours
    warning = _left_session(machine, folder.id)
    try:
        runner = Runner(machine, folder, order, manifest, umask)
    except OSError as trouble:  # no process for the guard, no room for the first word
        traceback.print_exc()
        folder.release_reserve()
        folder.write_end(1, ends.document("failed", ends.reason("staging-failed", in_words(trouble))))
    else:
        if warning:
            runner.said.say("note", text=warning)
        runner.live()
    os._exit(0)


def _left_session(machine: Machine, run_id: str) -> str | None:
    from . import logout

    try:
        return logout.leave(machine, run_id)
    except Exception:  # the run comes first
        traceback.print_exc()
        return None
