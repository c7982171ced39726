"""What can go wrong between a wish and a run.

DrayError
├── RunAlive           a live run cannot be removed
├── CannotWrite        a fetched file cannot be put where it was wanted
├── NoPython           no Python for the script on this shell's PATH
├── ScriptLeftOut      an ignore rule keeps the script here
└── BadScript          the script's kind cannot be started
"""

from __future__ import annotations

from dray.core.errors import DrayError, UsageError, printable


class RunAlive(DrayError):
    """Only ended runs can be forgotten."""

    code = "run-alive"

    def __init__(self, run_id: str, state: str) -> None:
        super().__init__(
            f"run {run_id} is {state}", why="a live run is never removed", hint=f"dray cancel {run_id}"
        )


class NoPython(UsageError):
    """There is no Python to start the script with."""

    code = "no-python"

    def __init__(self, where: str) -> None:
        super().__init__(
            "no Python for the script",
            why=f"{where} holds neither `python` nor `python3`",
            hint="activate a virtual environment, or add a conda_dependencies.yml to the folder",
        )


class BadScript(UsageError):
    """Neither a Python nor a shell script, nor executable."""

    code = "bad-script"

    def __init__(self, script: str) -> None:
        super().__init__(
            f"do not know how to start `{printable(script)}`",
            why="it is no .py and no .sh file, and is not executable",
            hint=f"dray submit -- PROGRAM {printable(script)}",
        )


class CannotWrite(DrayError):
    """The place for fetched files cannot be written to."""

    code = "cannot-write"

    def __init__(self, trouble: OSError) -> None:
        where = f" `{printable(str(trouble.filename))}`" if trouble.filename else ""
        super().__init__(f"cannot write{where}", why=trouble.strerror, hint="name another folder with `--to`")


class ScriptLeftOut(UsageError):
    """The script itself would not travel."""

    code = "script-left-out"

    def __init__(self, script: str, rule: str | None) -> None:
        super().__init__(
            f"the script `{printable(script)}` does not travel",
            why=f"left out by {printable(rule)}" if rule else "it was gone when the folder was read",
            hint=f"a later line `!/{printable(script)}` in the ignore file brings it back" if rule else None,
        )
