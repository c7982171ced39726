"""The table of all commands: what `dray --help` shows and where each one lives, so that neither needs an import.

A test proves that the table and the real commands are the same. The words of other tools' habits are here too.
"""

from __future__ import annotations

NAME = "dray"
COMPLETE = "_complete"
"""What a shell calls to complete a word; no command for people."""

RUNNING, HISTORY, MACHINES = "Run a script", "What ran", "Computes and dray itself"

COMMANDS: tuple[tuple[str, str, str, str], ...] = (
    # words, the first line of its help, section, module
    ("submit", "Send a script to a compute and follow it.", RUNNING, "submit"),
    ("follow", "Watch a run live: its log, its states, its end.", RUNNING, "follow"),
    ("wait", "Wait until runs have ended.", RUNNING, "wait"),
    ("cancel", "Stop runs, keeping all they have written so far.", RUNNING, "cancel"),
    ("rerun", "Run the same code, environment and command again.", RUNNING, "rerun"),
    ("exec", "Run a command inside a live run.", RUNNING, "exec"),
    ("forward", "Bring ports of a live run to this computer.", RUNNING, "forward"),
    ("experiment submit", "The same as `dray submit`.", RUNNING, "experiment"),
    ("prepare", "Make an environment ahead, so that a submit finds it ready.", RUNNING, "prepare"),
    ("experiment prepare", "The same as `dray prepare`.", RUNNING, "experiment"),
    ("runs", "List the history, newest first.", HISTORY, "runs"),
    ("show", "Show all that is known of a run.", HISTORY, "show"),
    ("logs", "Print what a run wrote, byte for byte.", HISTORY, "logs"),
    ("metrics", "Show what a run logged, with full histories.", HISTORY, "metrics"),
    ("tables", "Show the tables that a run logged.", HISTORY, "logged_tables"),
    ("images", "List or save the pictures that a run logged.", HISTORY, "images"),
    ("outputs", "List or fetch the files that a run left.", HISTORY, "outputs"),
    ("compare", "Show what differs between runs, side by side.", HISTORY, "compare"),
    ("restore", "Lay the exact code of a run out in a folder.", HISTORY, "restore"),
    ("export", "Write whole runs as plain files, to carry or keep.", HISTORY, "export"),
    ("import", "Take exported runs into this history.", HISTORY, "import_runs"),
    ("name", "Give a run a name, or another one.", HISTORY, "name"),
    ("tag", "Put tags on runs, or take them away.", HISTORY, "tag"),
    ("note", "Write a note about a run, or read it.", HISTORY, "note"),
    ("rm", "Forget ended runs and delete their folders.", HISTORY, "rm"),
    (
        "attach",
        "Make a machine a compute, reached with your own ssh; or this machine's container engine.",
        MACHINES,
        "attach",
    ),
    ("computetarget attach", "The same, in the words of old.", MACHINES, "computetarget"),
    ("ssh", "Open a shell on a compute.", MACHINES, "ssh"),
    ("adopt", "Take runs found on a compute into this history.", MACHINES, "adopt"),
    ("gc", "Clear away what is not needed any more.", HISTORY, "gc"),
    ("compute list", "List the computes.", MACHINES, "compute"),
    ("compute show", "Show one compute, its GPUs, and who holds and waits for them.", MACHINES, "compute"),
    ("compute check", "Check that a compute can run scripts.", MACHINES, "compute"),
    ("compute attach", "The same as `dray attach`.", MACHINES, "compute"),
    ("compute update", "Change how a compute is reached, in place.", MACHINES, "compute"),
    ("compute rm", "Forget a compute. The history keeps what its runs said.", MACHINES, "compute"),
    ("compute alias", "Give a compute a second name.", MACHINES, "compute"),
    ("compute default", "Show or choose the compute of a submit without -c.", MACHINES, "compute"),
    ("env list", "List environments: registered here, and built on a machine.", MACHINES, "env"),
    ("env show", "Show one environment: what was wanted, and what is in it.", MACHINES, "env"),
    ("env build", "Make an environment ahead; the same as `dray prepare`.", MACHINES, "env"),
    ("env lock", "Print exactly what was installed for a run.", MACHINES, "env"),
    ("env why", "Tell which lines made a run's environment another one.", MACHINES, "env"),
    ("env rm", "Remove environments: registered names, or built ones.", MACHINES, "env"),
    ("env prune", "Remove environments that nobody has used for a while.", MACHINES, "env"),
    ("env register", "Give an environment a name, for runs from any folder.", MACHINES, "env"),
    ("doctor", "Find what is wrong here and how to mend it.", MACHINES, "doctor"),
    ("completion", "Print what makes a shell complete dray's words.", MACHINES, "completion"),
    ("rebuild", "Make the history again from the run folders.", MACHINES, "rebuild"),
)

HABITS = {
    "run": "submit", "start": "submit", "launch": "submit", "python": "submit", "sbatch": "submit",
    "ps": "runs", "ls": "runs", "list": "runs", "history": "runs", "jobs": "runs", "queue": "runs", "squeue": "runs",
    "stop": "cancel", "kill": "cancel", "abort": "cancel", "terminate": "cancel", "scancel": "cancel",
    "log": "logs", "output": "logs", "cat": "logs", "tail": "follow", "watch": "follow",
    "status": "show", "info": "show", "describe": "show", "inspect": "show", "get": "show",
    "delete": "rm", "remove": "rm", "del": "rm", "forget": "rm",
    "clean": "gc", "prune": "gc", "cleanup": "gc", "clear": "gc", "purge": "gc", "tidy": "gc", "vacuum": "gc",
    "fetch": "outputs", "download": "outputs", "pull": "outputs", "files": "outputs", "artifacts": "outputs",
    "archive": "export", "save": "export", "backup": "export", "load": "import",
    "rename": "name", "label": "tag", "untag": "tag", "annotate": "note", "comment": "note",
    "machines": "compute list", "computes": "compute list", "targets": "compute list", "hosts": "compute list",
    "plot": "metrics", "curves": "metrics", "chart": "metrics", "table": "tables", "pictures": "images",
    "check": "doctor", "diagnose": "doctor", "reindex": "rebuild", "join": "wait",
    "diff": "compare", "cmp": "compare", "repeat": "rerun", "retry": "rerun", "resubmit": "rerun", "again": "rerun",
    "tunnel": "forward", "port-forward": "forward", "proxy": "forward", "tensorboard": "forward",
    "envs": "env list", "environments": "env list", "environment": "env list", "build": "prepare", "install": "prepare",
    "freeze": "env lock", "lock": "env lock", "pip": "env show", "conda": "env list",
    "checkout": "restore", "code": "restore",
}  # fmt: skip


def top_level() -> dict[str, str]:
    """First word of each command -> the module that holds it."""
    return {words.split()[0]: module for words, _, _, module in COMMANDS}


def meant(word: str) -> str | None:
    """The command that `word` was most likely meant to be."""
    if word == "version":
        return "--version"
    if word in HABITS:
        return HABITS[word]
    from dray.core.errors import nearest

    near = nearest(word, [*top_level(), *HABITS])
    return HABITS.get(near, near) if near else None


def help_text() -> str:
    """What `dray --help` prints."""
    width = max(len(words) for words, *_ in COMMANDS)
    lines = [
        f"Usage: {NAME} COMMAND [WORDS...]",
        "",
        "  Name a machine once, then send any training script to it with one command.",
        "",
        f"  Example: {NAME} submit train.py --lr 0.1",
    ]
    for section in (RUNNING, HISTORY, MACHINES):
        lines += ["", f"{section}:"]
        lines += [f"  {words:{width}}  {line}" for words, line, where, _ in COMMANDS if where == section]
    lines += [
        "",
        "Options:",
        f"  {'-h, --help':{width}}  This page; `{NAME} COMMAND --help` has options and an example.",
        f"  {'--version':{width}}  The version.",
        "",
        "RUN is an id, a unique beginning of one, a name, or @last, the newest run.",
        "Exit codes: the script's own (128+n for signal n); 2 wrong usage, 75 link lost,",
        "124 timeout, 125 not started, 130 left with Ctrl-C; a canceled run gives 143.",
        "Environment: DRAY_COMPUTE (default compute), DRAY_HOME (where the history lies),",
        "NO_COLOR, DRAY_DEBUG=1 (tracebacks).",
        "",
    ]
    return "\n".join(lines)
