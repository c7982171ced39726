"""What can go wrong between a wish and a run.

DrayError
├── RunAlive           a live run cannot be removed
├── CannotWrite        a fetched file, or a restored folder, cannot be put where it was wanted
├── NoRoomForOutputs   the files do not fit on the disk
├── BadAnswer          a machine does not keep to what it said
├── FolderNotEmpty     a folder that is to be restored to holds something
├── NoCode             a run carried no code
├── CodeGone           the code of a run is not to be had any more
├── SecretMissing      a run cannot be repeated without its secret
├── NotRunning         a command or a port is wanted of a run that does not run
├── PortTaken          a port of this computer that was wanted is in use
├── CannotExecute      a command cannot be started inside a run
├── PandasMissing      a DataFrame is wanted where there is no pandas
├── NoHome             no place for the history
├── RunNotEnded        only what has ended can be exported
├── ExportThere        an export would have to be replaced
├── BadExport          what was to be imported is not whole, or not what it says
├── RunDiffers         another run of the same id is here
├── NoRoomToImport     the disk would be full before the end
├── NoPython           no Python for the script on this shell's PATH
├── NoLock             a run has no environment that was resolved
├── NotAPython         what --python names is none
├── NoTorchBuild       no build of PyTorch fits the driver
├── WouldNotUseGpu     what is to be installed would leave the GPU alone, and one is required
├── OfflineHost        the packages for a machine without an index could not be had here
├── ScriptLeftOut      an ignore rule keeps the script here
├── WholeFileSystem    the code folder would be `/`
└── BadScript          the script's kind cannot be started
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from pathlib import Path

from dray.core.durations import show_bytes
from dray.core.errors import DrayError, UsageError, printable


class RunAlive(DrayError):
    """Only ended runs can be forgotten."""

    code = "run-alive"

    def __init__(self, run_id: str, state: str) -> None:
        super().__init__(
            f"run {run_id} is {state}", why="a live run is never removed", hint=f"dray cancel {run_id}"
        )


class NotRunning(DrayError):
    """Nobody can reach into a run that does not run."""

    code = "not-running"
    exit_code = 125

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(
            f"run {run_id} is not running", why=printable(why), hint=f"what it left: dray show {run_id}"
        )


class PortTaken(UsageError):
    """Something else listens here."""

    code = "port-taken"

    def __init__(self, port: int, remote: int, why: str) -> None:
        super().__init__(
            f"port {port} of this computer cannot be used",
            why=why,
            hint=f"name another: {remote}:{port + 1 if port < 65535 else 8000}; or {remote} alone, for one that is free",
        )


class CannotExecute(DrayError):
    """The command is not there, or is no program."""

    code = "cannot-execute"
    exit_code = 126

    def __init__(self, run_id: str, why: str, number: str) -> None:
        super().__init__(
            f"the command cannot be started in run {run_id}",
            why=printable(why),
            hint=f"for pipes and variables: dray exec {run_id} -- sh -c 'echo $PATH'",
        )
        if number == str(errno.ENOENT):
            self.exit_code = 127


class PandasMissing(DrayError):
    """DataFrames need pandas, which dray does not bring."""

    code = "pandas-missing"

    def __init__(self, trouble: str) -> None:
        super().__init__(
            "a DataFrame needs pandas",
            why=f"{sys.executable or 'this Python'}: {printable(trouble)}",
            hint="pip install pandas; or read `run.metrics`, which needs nothing",
        )


class NoHome(UsageError):
    """A user without a home folder, as in some containers."""

    code = "no-home"

    def __init__(self) -> None:
        super().__init__(
            "there is no place for dray's history",
            why="you have no home folder: HOME is not set, and the system does not know your user",
            hint="name a folder: `export DRAY_HOME=/path/to/folder`",
        )


class RunNotEnded(DrayError):
    """Only what has ended can be exported: nothing of it changes any more."""

    code = "run-not-ended"

    def __init__(self, run_id: str, state: str) -> None:
        super().__init__(
            f"run {run_id} is {state}", why="only ended runs are exported", hint=f"dray wait {run_id}"
        )


class ExportThere(DrayError):
    """At the place of an export is another one, or something else."""

    code = "export-there"

    def __init__(self, place: object, why: str, *, replaceable: bool) -> None:
        super().__init__(
            f"did not write `{printable(str(place))}`",
            why=why,
            hint="`--force` to replace it, or another folder for `--to`"
            if replaceable
            else "name another folder for `--to`, or move it away",
        )


class BadExport(DrayError):
    """An exported run that is not whole, or not what its list says, or that names what it must not."""

    code = "bad-export"

    def __init__(self, folder: object, path: str | None, why: str) -> None:
        said = f"`{printable(path[:200])}`: {printable(why)}" if path else printable(why)
        super().__init__(f"cannot import `{printable(str(folder))}`", why=said)


class RunDiffers(DrayError):
    """A run is never merged with another one, and never overwritten."""

    code = "run-differs"

    def __init__(self, run_id: str, where: str) -> None:
        super().__init__(
            f"another run {run_id} is here already",
            why=f"it has the same id as the one to be imported, and differs in `{printable(where)}`",
            hint=f"dray show {run_id}",
        )


class NoRoomToImport(DrayError):
    """The disk that holds the history is too small for what would come."""

    code = "no-room-to-import"

    def __init__(self, folder: object, needed: int, free: int) -> None:
        super().__init__(
            f"no room to import `{printable(str(folder))}`",
            why=f"it has {show_bytes(needed)}, and {show_bytes(free)} are free where the history is",
        )


class NoLock(DrayError):
    """What was installed for the run is not known."""

    code = "no-lock"

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {run_id} has no lock", why=why, hint=f"dray show {run_id}")


class NoTorchBuild(DrayError):
    """No build of that PyTorch runs on the GPUs of the machine."""

    code = "no-torch-build"
    exit_code = 125

    def __init__(self, release: str, builds: Sequence[str], driver: str, cards: Sequence[str]) -> None:
        super().__init__(
            f"no build of torch {release} fits the machine",
            why=f"there are {', '.join(builds)}; the driver is {driver}"
            + (f", the GPU {printable(cards[0])}" if cards else ""),
            hint="update the driver, name an older torch, or take the CPU build: --torch cpu",
        )


class WouldNotUseGpu(DrayError):
    """A GPU is required, and what is to be installed could not use it. Nothing was sent."""

    code = "would-not-use-gpu"
    exit_code = 125

    def __init__(self, why: str, hint: str) -> None:
        super().__init__("the environment would not use the machine's GPU", why=why, hint=hint)


class NotAPython(UsageError):
    """What `--python` names is no interpreter that could run the script."""

    code = "not-a-python"

    def __init__(self, path: str, why: str, hint: str | None) -> None:
        super().__init__(f"`{printable(path)}` cannot run the script", why=why, hint=hint)


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


class WholeFileSystem(UsageError):
    """In the root of a machine or of a container, the current folder is no code folder."""

    code = "whole-file-system"

    def __init__(self) -> None:
        super().__init__(
            "the code folder would be `/`",
            why="every file of this machine would travel",
            hint="put the code into a folder of its own and `cd` there, or name one with `--dir`",
        )


class CannotWrite(DrayError):
    """The place for fetched files cannot be written to."""

    code = "cannot-write"

    def __init__(self, trouble: OSError) -> None:
        where = f" `{printable(str(trouble.filename))}`" if trouble.filename else ""
        super().__init__(f"cannot write{where}", why=trouble.strerror, hint="name another folder with `--to`")


class FolderNotEmpty(UsageError):
    """Code is restored into a folder of its own."""

    code = "folder-not-empty"

    def __init__(self, folder: str, names: Sequence[str], hint: str) -> None:
        named = ", ".join(f"`{printable(name)}`" for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        super().__init__(f"`{printable(folder)}` is not empty", why=f"it holds {named}{more}", hint=hint)


class NoCode(UsageError):
    """The run has no snapshot that could be had again."""

    code = "no-code"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} carried no code", why="its history names no snapshot")


class CodeGone(DrayError):
    """The code of a run, or a part of it, is neither on this client nor on the run's machine."""

    code = "code-gone"

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"the code of run {run_id} is not to be had", why=why)

    @classmethod
    def files(cls, run_id: str, paths: Sequence[str], count: int, elsewhere: str) -> CodeGone:
        """Of `count` files the contents of `paths` are not here; `elsewhere` says where they are not, either."""
        named = ", ".join(f"`{printable(path)}`" for path in paths[:5])
        more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
        kept = "is not intact here" if len(paths) == 1 else "are not intact here"
        return cls(run_id, f"of its {count} files {named}{more} {kept}, {elsewhere}")


class SecretMissing(UsageError):
    """Only the names of secrets are kept; their values have to come again."""

    code = "secret-missing"

    def __init__(self, run_id: str, name: str) -> None:
        super().__init__(
            f"run {run_id} had the secret `{printable(name)}`, and has no value for it now",
            why="values of secrets are stored nowhere",
            hint=f"run.rerun(secrets={{{name!r}: ...}})",
        )


class NoRoomForOutputs(DrayError):
    """The files that were asked for need more room than there is."""

    code = "no-room-for-outputs"

    def __init__(self, folder: Path, needed: int, free: int) -> None:
        super().__init__(
            f"{show_bytes(needed)} do not fit into `{printable(str(folder))}`",
            why=f"its disk has {show_bytes(free)} free",
            hint="name fewer files, or a folder on another disk with `--to`",
        )


class BadAnswer(DrayError):
    """A machine does not keep to what it said; nothing more is taken from it."""

    code = "bad-answer"

    def __init__(self, where: str, name: str, what: str) -> None:
        super().__init__(
            f"{where} cannot be trusted with `{printable(name)}`",
            why=f"{what}; nothing was kept of it",
            hint="dray doctor",
        )


class ScriptLeftOut(UsageError):
    """The script itself would not travel."""

    code = "script-left-out"

    def __init__(self, script: str, rule: str | None) -> None:
        super().__init__(
            f"the script `{printable(script)}` does not travel",
            why=f"left out by {printable(rule)}" if rule else "it was gone when the folder was read",
            hint=f"a later line `!/{printable(script)}` in the ignore file brings it back" if rule else None,
        )


class OfflineHost(DrayError):
    """The packages for a machine without an index could not be had here."""

    code = "offline-host"
    exit_code = 125

    def __init__(self, where: str, why: str, hint: str | None) -> None:
        super().__init__(
            f"the packages for {printable(where)} could not be gathered here", why=printable(why), hint=hint
        )
