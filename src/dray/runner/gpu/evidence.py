"""The GPU side of one run, from its claim to its end: what `life` calls, and nothing else.

Read `Evidence` first. It holds the sampler, knows what the run may see, and makes the verdict. Its own trouble never fails a run, unless the
run asked for that with `--require-gpu`.
"""

from __future__ import annotations

import json
import os
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import ends
from ..folder import RunFolder
from ..launch import Order
from ..steps import Steps, seconds
from . import frameworks, verdict
from .shown import VISIBLE, visible
from .watch import Watch

_DRIVER_S = 20.0
_LADDER_S = 180.0
_SHORT_S = 4.0


class NoGpu(Exception):
    """`--require-gpu`, and the ladder is broken before the script was started. The text is for the user."""


class Evidence:
    """What is seen of GPUs while one run lives."""

    def __init__(
        self, order: Order, folder: RunFolder, number: int, steps: Steps, say: Callable[..., None]
    ) -> None:
        self.order = order
        self.spec = spec = order.spec
        self.folder = folder
        self.number = number
        self.steps = steps
        self.say = say
        self.required = bool(spec.get("require_gpu"))
        self.idle_limit_s = seconds(spec.get("stop_if_idle_s"))
        self.stopped_idle = False
        self.found: Dict[str, Any] = {}
        self._step: Dict[str, Any] = {}
        self._python: Optional[str] = None
        self._told = self._warned = False
        self._frameworks: List[Dict[str, Any]] = []
        self.watch = Watch(spec["id"], steps.guard, folder.streams(number))
        if self.watch.pid:
            steps.apart.add(self.watch.pid)

    # -- before the script

    def check(self, step: Dict[str, Any], python: Optional[str]) -> None:
        """The script is about to be started so. Raises NoGpu when the run requires one and cannot have it."""
        self._step, self._python = step, python
        if not self.required:
            return
        self.watch.wait_for_devices(_DRIVER_S)
        found = self._verdict(None)
        unanswered = found["verdict"] == verdict.NOT_MEASURABLE and self.watch.devices is None
        if unanswered or found["verdict"] in (verdict.NO_GPU, verdict.NOT_VISIBLE, verdict.NOT_REQUESTED):
            self.found = found
            raise NoGpu("%s: %s" % (found["verdict"], found["reason"]))
        self._climb()

    def _climb(self) -> None:
        """Builds, a tiny multiplication, architectures: in the run's own Python, before user code. Raises NoGpu."""
        told = self._ask_python()
        if told is None:
            self.say(
                "note",
                text="--require-gpu: there is no Python outside a container to try the GPU with; only the machine was checked",
            )
            return
        self._frameworks = told.get("frameworks") or []
        self.found = self._verdict(None)
        broken = self.found["verdict"] in (
            verdict.CPU_BUILD,
            verdict.DRIVER_TOO_OLD,
            verdict.ARCH_UNSUPPORTED,
        )
        works = [one for one in self._frameworks if one.get("works")]
        if broken:
            raise NoGpu("%s: %s" % (self.found["verdict"], self.found["reason"]))
        if self._frameworks and not works:
            why = "; ".join(
                "%s: %s" % (one["name"], one.get("trouble") or "sees no GPU") for one in self._frameworks
            )
            self.found.update(verdict=verdict.NOT_VISIBLE, reason=why)
            raise NoGpu("%s: %s" % (verdict.NOT_VISIBLE, why))
        if not self._frameworks:
            self.say(
                "note",
                text="--require-gpu: no torch, tensorflow or jax in the run's Python; only the machine was checked",
            )
        for one in works:
            self.say("note", text="%s %s multiplied on %s" % (one["name"], one["version"], one["works"]))

    # -- while it runs

    def begin(self, pid: Optional[int], cgroups: Optional[List[str]] = None) -> None:
        """The script is there."""
        self.watch.begin(pid or 0, self._shown, cgroups)

    def tick(self) -> None:
        """Now and then: say what GPUs there are, once, and whether they are idle for long."""
        self.watch.hear()
        if self.watch.devices is not None and not self._told:
            self._told = True
            shown = verdict.held_devices(self._seen(None))
            if shown:
                machine = self.watch.devices
                self.say("gpus", driver=machine.get("driver"), cuda=machine.get("cuda"), devices=shown)
            if self.idle_limit_s and not shown:
                self.say("note", text="--stop-if-idle: the run has no GPU to watch")
        idle = self.watch.idle_s
        if not self.idle_limit_s or idle is None or self.stopped_idle:
            return
        if idle >= self.idle_limit_s:
            self.stopped_idle = True
            self.steps.limit(0.0, seconds(self.spec.get("grace_s")) or 10.0)
        elif idle >= self.idle_limit_s / 2 and not self._warned:
            self._warned = True
            left = self.idle_limit_s - idle
            self.say(
                "note",
                text="no GPU use for %.0f s; the run is stopped in %.0f s if that stays so" % (idle, left),
            )
        elif idle < self.idle_limit_s / 4:
            self._warned = False

    # -- after it

    def finish(self, duration_s: Optional[float]) -> Dict[str, Any]:
        """The verdict, for the end."""
        try:
            self.watch.finish()
            self.tick()
            return self._finish(duration_s)
        except Exception as trouble:
            traceback.print_exc()  # stderr is runner.log; the run's end is what counts
            return {
                "verdict": verdict.NOT_MEASURABLE,
                "reason": "the runner met a fault of its own (%s)" % type(trouble).__name__,
            }

    def _finish(self, duration_s: Optional[float]) -> Dict[str, Any]:
        usage = self.watch.usage
        if usage and usage.get("frameworks"):
            self._frameworks = _merged(self._frameworks, usage["frameworks"])
        found = self._verdict(duration_s)
        if found["verdict"] != verdict.VISIBLE_NOT_USED or self._frameworks:
            return found
        # Too short to see what it loaded: then what its Python has is the next best.
        if self._python and (duration_s or 0.0) < _SHORT_S:
            there = frameworks.of_python(self._python, self._step.get("env") or {})
            self._frameworks = [dict(one, loaded=False) for one in there]
        return self._verdict(duration_s)

    def refuse(self, found: Dict[str, Any], state: str, why: Dict[str, Any]) -> Tuple[str, Dict[str, Any]]:
        """The end's state and reason, given those that the script earned."""
        if self.stopped_idle:
            text = "stopped after %g s without GPU use (--stop-if-idle)" % self.idle_limit_s
            return "failed", ends.reason("idle", text, limit_s=self.idle_limit_s)
        if self.required and state == "completed" and found["verdict"] != verdict.USED:
            text = "it required a GPU and did not use one: %s (%s)" % (found["verdict"], found["reason"])
            return "failed", ends.reason("gpu-not-used", text)
        return state, why

    def close(self) -> None:
        """Whatever happened: nobody watches any more."""
        self.watch.close()

    # -- facts

    def _seen(self, duration_s: Optional[float]) -> verdict.Seen:
        watch = self.watch
        held, hidden_by = visible(self._shown, watch.devices)
        return verdict.Seen(
            watch.devices,
            self._requested(),
            held,
            hidden_by,
            self._frameworks,
            watch.usage,
            watch.trouble,
            duration_s,
        )

    def _verdict(self, duration_s: Optional[float]) -> Dict[str, Any]:
        return verdict.judge(self._seen(duration_s))

    def _requested(self) -> Optional[int]:
        """How many GPUs the run asked for; None where nobody said, and all are there for it."""
        wanted = self.order.asked.wants.gpus
        return wanted if wanted or self.order.granted.hides else None

    @property
    def _shown(self) -> Optional[str]:
        """What the run's environment says to CUDA; a container sees what it was given."""
        held = [unit.uuid for unit in self.order.granted.units]
        if "keeper" in self._step:
            return ",".join(held) if held or self.order.granted.hides else None
        told = (self._step.get("env") or {}).get(VISIBLE)
        return None if told is None else str(told)

    def _ask_python(self) -> Optional[Dict[str, Any]]:
        """Have the run's own Python try its frameworks; None where there is none."""
        if not self._python or "keeper" in self._step:
            return None
        answer = os.path.join(self.folder.attempt(self.number), "ladder.json")
        ladder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ladder.py")
        step = dict(
            self._step, step="gpu", argv=[self._python, ladder, answer],
            log=os.path.join(self.folder.streams(self.number), "log.gpu"),
        )  # fmt: skip
        step.pop("program", None)
        self.steps.limit(_LADDER_S, 1.0)
        self.steps.run(step)
        self.steps.no_limit()
        try:
            with open(answer, "rb") as file:
                told = json.loads(file.read(1 << 20).decode())
            os.unlink(answer)
        except (OSError, ValueError):
            return {"frameworks": []}
        return told if isinstance(told, dict) else {"frameworks": []}


def _merged(first: List[Dict[str, Any]], then: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The frameworks that were loaded, with what was found out about them before."""
    known = {one["name"]: one for one in first}
    return [dict(known.get(one["name"], {}), **one) for one in then]
