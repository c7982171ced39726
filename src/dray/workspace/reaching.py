"""What can be done inside a live run: the part of `Run` that reaches into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from dray.workspace.errors import NotRunning

if TYPE_CHECKING:
    from dray.workspace.events import Event
    from dray.workspace.executing import Executed
    from dray.workspace.forwarding import Forward
    from dray.workspace.run import Run


class Reachable:
    """A run, while it is alive."""

    def exec(
        self,
        *command: str,
        input: bytes | None = None,
        secrets: bool = False,
        on_output: Callable[[int, bytes], object] | None = None,
    ) -> Executed:
        """Run a command inside the live run, in its folder and environment: `run.exec("nvidia-smi").stdout`.

        It ends with the run at the latest. The run's secrets are among its variables only with `secrets`. `on_output` takes
        (1 or 2, bytes) as they come; else they are collected. Raises NotRunning, CannotExecute.
        """
        from dray.workspace.executing import execute

        return execute(self.reachable(), command, input=input, secrets=secrets, on_output=on_output)

    def forward(self, *ports: int | str, on: Callable[[Event], None] | None = None) -> Forward:
        """Bring ports of the live run here: `with run.forward(6006) as forward: print(forward.urls)`.

        A port is a number, or "6006:8080" for 8080 here; only this user can reach it. It goes on in the background until it is closed
        or the run ends. Raises NotRunning, PortTaken.
        """
        from dray.workspace.forwarding import Forward

        return Forward(self.reachable(), ports, on)

    def reachable(self) -> Run:
        """Itself; refuses what has ended before its machine is asked. Raises NotRunning."""
        run = cast("Run", self)
        if run.record.imported is not None:
            raise NotRunning(run.id, "it was imported, and has no machine here")
        if run.ended:
            raise NotRunning(run.id, f"it is {run.status}")
        return run
