"""The entry point: answers `--version` and `--help` at once, opens the right command, and turns errors into sentences.

Read `main()` first. Nothing heavy may be imported at the top: this module's cost is every command's cost.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

import dray
from dray.cli import commands

INTERRUPTED = 130
BROKEN_PIPE = 141  # 128 + SIGPIPE: what the shell shows for a program that wrote to a closed pipe
DEBUG = "DRAY_DEBUG"


def main() -> int:
    """Run the command in `sys.argv`, and leave at once: Python tidies up for 6 ms what ends with the process anyway."""
    code = _answer()
    threads = sys.modules.get("threading")
    if threads is not None and threads.active_count() > 1:
        return code  # somebody has work to finish
    atexit._run_exitfuncs()  # noqa: SLF001 # what Python itself calls at its end; there is no other name for it
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return code  # as Python says it
    os._exit(code)


def _answer() -> int:
    """Run the command in `sys.argv`; the exit code."""
    # Reading modules makes a hundred thousand objects that stay; to look through them for garbage again and again costs 4 ms.
    gc.set_threshold(50_000)
    words = sys.argv[1:]
    _stand_on_three_files()
    for stream in (sys.stdout, sys.stderr):
        # Names that are not UTF-8 must not turn into a UnicodeEncodeError.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # TextIO hides it
    if words[:1] == [commands.COMPLETE]:
        from dray.cli import completing

        return completing.main(words[1:])
    try:
        code = _at_once(words)
        code = _command(words) if code is None else code
        sys.stdout.flush()
    except BrokenPipeError:
        _hush()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # it came while Python made a class
            return INTERRUPTED
        from dray.cli.trouble import explain

        code = explain(error, debug=os.environ.get(DEBUG, "") not in ("", "0"))
        _hush_if_stuck()
    return code


def _at_once(words: list[str]) -> int | None:
    """Answer what needs no command; None: it is one."""
    if not words:
        sys.stderr.write(commands.help_text())
        return 2
    if words[0] in ("--version", "-V"):
        sys.stdout.write(f"dray {dray.__version__}\n")
        return 0
    if words[0] in ("--help", "-h") or words == ["help"]:
        sys.stdout.write(commands.help_text())
        return 0
    return None


def _command(words: list[str]) -> int:
    """Run a command; the code it returns."""
    from dray.cli.group import run

    if words[0] == "help":
        words = [*words[1:], "--help"]
    return run(words)


def _stand_on_three_files() -> None:
    """Open what the shell closed (`>&-`): else the next file that is opened, the history say, becomes stdout."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is `fd`
    # Python made no stream of what was closed when it began.
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)


def _hush_if_stuck() -> None:
    """What could not be written to stdout, and was told, cannot be written later either."""
    try:
        sys.stdout.flush()
    except OSError:
        _hush()


def _hush() -> None:
    """Send what is left for stdout nowhere: else Python complains about it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
