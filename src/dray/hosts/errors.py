"""What can go wrong on the way to a machine.

DrayError
├── HostUnreachable     the channel could not be opened, or gave no greeting
├── HostPythonTooOld    the machine's python3 cannot run the runner
├── MachineRefused      the machine understood and said no
└── LinkLost            (core) the channel broke in the middle
"""

from __future__ import annotations

from dray.core.errors import DrayError, printable


class HostUnreachable(DrayError):
    """No runner answered at the other end."""

    code = "host-unreachable"

    def __init__(self, where: str, said: str, hint: str | None = None) -> None:
        last = printable(said.strip().splitlines()[-1]) if said.strip() else "it said nothing"
        super().__init__(f"cannot start dray's runner on {where}", why=last, hint=hint)


class HostPythonTooOld(DrayError):
    """The runner needs Python 3.8."""

    code = "host-python-too-old"

    def __init__(self, where: str, found: str, program: str) -> None:
        super().__init__(
            f"{where} cannot run dray's runner",
            why=f"its Python ({printable(program)}) is {printable(found)}; 3.8 or newer is needed",
        )


class MachineRefused(DrayError):
    """The runner answered with an error."""

    code = "machine-refused"

    def __init__(self, where: str, code: str, text: str) -> None:
        super().__init__(
            f"{where} refused: {printable(text)}", why=f"its runner calls this `{printable(code)}`"
        )
        self.refusal = code
