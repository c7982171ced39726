"""What a submit asks for, looked at before it is claimed: what can never be is refused at once."""

from __future__ import annotations

import time
from typing import Any, Dict, Optional, Tuple

from . import wants
from .desk import Desk, NoDesk
from .machine_units import Look, cores, look, may_have_gpus


class Refused(Exception):
    """The run can never start here; `code` and words are the answer to its submit."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Asked:
    """The wish, and the machine as it was when the wish came."""

    def __init__(self, spec: Dict[str, Any]) -> None:
        """Raises Refused."""
        if spec.get("prepare"):
            spec = dict(spec, gpus=None, cpus=None)  # an environment is built without them
        said = spec.get("gpus")
        self.desk: Optional[Desk] = None
        self.place: Optional[Tuple[int, int]] = None
        """(number, open file) of a ticket that its client has drawn before."""
        try:
            # Who asks for none sees none, wherever it is; a default of none hides only what is there.
            is_none = said is None or (said.get("count") == 0 and not said.get("default"))
            if not is_none and said and said.get("default"):
                is_none = (
                    not may_have_gpus()
                )  # who asked for nothing in particular does not wait for an answer
            self.look = Look((), cores(), None, has_hardware=False) if is_none else look()
            self.at = time.monotonic()
            if self.look.is_silent and said and (said.get("count") or said.get("ids")):
                raise Refused("driver-silent", "%s, `--gpus 0` runs without a GPU" % self.look.why)
            self.wants = wants.of_spec(spec, self.look.units)
            wants.check(self.wants, self.look.units, self.look.cores, self.look.why)
        except wants.Impossible as trouble:
            raise Refused("no-such-gpu", str(trouble)) from None
        if self.wants.is_anything:
            try:
                self.desk = Desk()
            except NoDesk as trouble:
                raise Refused("no-leases", str(trouble)) from None
