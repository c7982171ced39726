"""What to say when a command failed: the sentences on stderr and the exit code.

A mistake of the user or the machine gets what, why and what to try. A mistake of dray's gets one sentence
and a file with the traceback.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
import time
from pathlib import Path

import click

import dray
from dray.cli.commands import NAME
from dray.cli.home import home
from dray.cli.voice import paint_word
from dray.core.errors import DrayError, UsageError, printable

# What the world can do to any program; everything else that the system refuses is a bug of ours.
_WORLD = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EIO: "the disk or terminal failed",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOTDIR: "a folder was expected, and there is a file",
    errno.ENAMETOOLONG: "a file name is too long",
    errno.ENOMEM: "there is not enough memory",
}


def explain(error: Exception, *, debug: bool) -> int:
    """Tell the user of `error` on stderr; the exit code."""
    if debug:
        import traceback

        sys.stderr.write("".join(traceback.format_exception(error)))
    if isinstance(error, click.ClickException):
        error = _from_click(error)
    elif isinstance(error, OSError):
        error = of_the_world(error) or error
    elif isinstance(error, (EOFError, click.Abort)):
        error = DrayError("the question was not answered", hint="-y, or give the answer as an option")
    if not isinstance(error, DrayError):
        error = _bug(error)
    _offer_again(error)
    say_error(error)
    return error.exit_code


def of_the_world(error: OSError) -> DrayError | None:
    """The sentence for what can happen to any program; None: it should not have happened."""
    if isinstance(error, FileNotFoundError) and not error.filename and _is_nowhere():
        return UsageError("the folder that you are in is gone", hint="cd to one that is there")
    if error.errno not in _WORLD:
        return None
    where = f": {printable(os.fsdecode(error.filename))}" if error.filename else ""
    return DrayError(f"{_WORLD[error.errno]}{where}")


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def say_error(error: DrayError) -> None:
    """What, why and what to try, on stderr; `--json` changes nothing about it."""
    lines = [f"dray: {error.what}"]
    if error.why:
        lines.append(f"  why: {error.why}")
    if error.hint:
        lines.append(f"  try: {error.hint}")
    # Some of it may have come from another machine, and some has several lines of its own.
    text = "\n".join(printable(line) for line in "\n".join(lines).split("\n"))
    sys.stderr.write(text.replace("dray:", paint_word("dray:", fd=2), 1) + "\n")
    sys.stderr.flush()


def _offer_again(error: DrayError) -> None:
    """Where a name was misspelt or meant several: the typed command with the right one, to be pasted."""
    word = next((word for word in sys.argv[1:] if f"`{printable(word)}`" in error.what), None)
    near = getattr(error, "near", None) or next(iter(getattr(error, "matches", ())), None)
    if word is None or near is None:
        return
    if error.code == "no-such-script":  # it is near among the files of its folder
        near = os.path.join(os.path.dirname(word), near)
    words = sys.argv[1:]
    words[words.index(word)] = near
    error.hint = printable(shlex.join([NAME, *words]))
    error.why = (error.why or "").partition("did you mean")[0].rstrip("; ") or None


def _from_click(error: click.ClickException) -> DrayError:
    """click's words in dray's form."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    refused = DrayError(
        message[:1].lower() + message[1:].rstrip("."),
        hint=f"{context.command_path} --help" if context else None,
    )
    refused.exit_code = error.exit_code
    return refused


def _bug(error: Exception) -> DrayError:
    """An error that should not be: kept in a file, told in a sentence."""
    import tempfile
    import traceback

    text = f"dray {dray.__version__}, Python {sys.version}\n{sys.argv[1:2]}\n" + "".join(
        traceback.format_exception(error)
    )
    try:
        where = _write(_cache(), text)
    except OSError:
        where = _write(Path(tempfile.gettempdir()), text)
    return DrayError(
        f"a mistake in dray itself: {type(error).__name__}: {printable(str(error))[:200]}",
        why=f"its traceback was written to {where}",
        hint="DRAY_DEBUG=1 shows it; please report it with that file",
    )


def _cache() -> Path:
    """Where dray keeps what may be deleted; found without the workspace, which may be what is broken."""
    import tempfile

    folder = home()
    # Who has no home must not get a folder that is called `~`.
    return Path(tempfile.gettempdir() if folder.startswith("~") else os.path.join(folder, "cache"))


def _write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"traceback-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    # Words of the command line may be in it: for the user's eyes only.
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", errors="backslashreplace"
    ) as file:
        file.write(text)
    return path
