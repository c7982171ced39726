"""The table of commands is true, every command helps, and wrong words get an answer."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

import dray
from dray.cli import commands
from dray.cli.group import root
from tests.cli.dray_shell import Shell


def real_commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands that can be run, found by walking the tree and not by reading the table."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from real_commands(command, f"{before}{name} ")
        else:
            yield before + name, command


REAL = dict(real_commands(root))


def test_the_table_and_the_real_commands_are_the_same() -> None:
    assert {words for words, *_ in commands.COMMANDS} == set(REAL)


# The same commands under the words of old, or of a neighbouring noun.
SECOND_NAMES = ("experiment submit", "experiment prepare", "computetarget attach", "compute attach")


@pytest.mark.parametrize(("words", "line"), [(words, line) for words, line, *_ in commands.COMMANDS])
def test_the_line_in_the_table_is_the_first_line_of_the_help(words: str, line: str) -> None:
    if words in SECOND_NAMES:
        assert REAL[words] is REAL[words.rsplit(maxsplit=1)[-1]]
    else:
        assert (REAL[words].help or "").split("\n")[0] == line


@pytest.mark.parametrize("words", REAL)
def test_every_command_has_an_example_in_its_help(words: str) -> None:
    with root.make_context("dray", [*words.split()], resilient_parsing=True):
        text = REAL[words].get_help(click.Context(REAL[words], info_name=words))

    example = text.partition("Example")[2]
    assert f"\n    dray {words.rsplit(maxsplit=1)[-1] if words in SECOND_NAMES else words}" in example


@pytest.mark.parametrize("words", REAL)
def test_every_option_says_what_it_is_for(words: str) -> None:
    for option in REAL[words].params:
        assert not isinstance(option, click.Option) or option.help, option.name


@pytest.mark.parametrize(("word", "meant"), commands.HABITS.items())
def test_a_word_of_another_tool_leads_to_a_command_that_is_there(word: str, meant: str) -> None:
    assert word not in commands.top_level()
    assert meant in REAL


def test_h_is_help_everywhere(shell: Shell) -> None:
    assert shell.dray("-h").stdout == shell.dray("--help").stdout == shell.dray("help").stdout
    assert shell.dray("runs", "-h").stdout == shell.dray("help", "runs").stdout
    assert b"dray submit -d -- make all" in shell.dray("submit", "-h").stdout


def test_the_version_is_the_package_s(shell: Shell) -> None:
    done = shell.dray("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"dray {dray.__version__}\n".encode(), b"")


def test_no_words_at_all_show_the_help_and_count_as_misuse(shell: Shell) -> None:
    done = shell.dray()

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Usage: dray COMMAND" in done.stderr


@pytest.mark.parametrize(
    ("word", "meant"),
    [("run", "submit"), ("ps", "runs"), ("ls", "runs"), ("stop", "cancel"), ("tail", "follow"), ("status", "show"),
     ("sumbit", "submit"), ("metrcis", "metrics"), ("train.py", "submit train.py"), ("targets", "compute list"),
     ("version", "--version")],
)  # fmt: skip
def test_a_wrong_verb_gets_the_command_that_was_meant(shell: Shell, word: str, meant: str) -> None:
    done = shell.dray(word)

    assert done.returncode == 2
    assert f"  try: dray {meant}\n" in done.stderr.decode()


def test_the_command_that_was_meant_keeps_the_other_words(shell: Shell) -> None:
    assert b"  try: dray submit train.py --note 'a b'\n" in shell.dray("train.py", "--note", "a b").stderr
    assert b"  try: dray show @last --json\n" in shell.dray("status", "@last", "--json").stderr


def test_v_alone_is_told_how_to_ask_for_the_version(shell: Shell) -> None:
    done = shell.dray("-v")

    assert done.returncode == 2
    assert b"  try: dray --version\n" in done.stderr


@pytest.mark.parametrize("group", ["compute", "experiment"])
def test_a_group_alone_shows_its_help_and_counts_as_misuse(shell: Shell, group: str) -> None:
    done = shell.dray(group)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(f"Usage: dray {group} ".encode())
    assert shell.dray(group, "--help").stdout == done.stderr


def test_a_wrong_word_in_a_group_gets_the_right_ones(shell: Shell) -> None:
    near, far = shell.dray("env", "lsit"), shell.dray("compute", "frobnicate")

    assert (near.returncode, far.returncode) == (2, 2)
    assert b"there is no `dray env` command `lsit`\n  try: dray env list\n" in near.stderr
    assert b"known: " in far.stderr
    assert b"`update`" in far.stderr


def test_a_verb_that_is_like_nothing_gets_the_way_to_the_help(shell: Shell) -> None:
    done = shell.dray("qqqqqq\x1b[31m")

    assert done.returncode == 2
    assert b"dray --help" in done.stderr
    assert b"\x1b" not in done.stderr


def test_a_wrong_option_names_the_right_one(shell: Shell) -> None:
    done = shell.dray("submit", "--tiemout", "3", "train.py")

    assert done.returncode == 2
    assert b"--timeout" in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_option_before_the_command_is_refused_in_a_sentence(shell: Shell) -> None:
    done = shell.dray("--json", "runs")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"`--json` stands before the command" in done.stderr


@pytest.mark.parametrize("command", ["cancel", "rm"])
def test_commands_that_change_something_demand_to_be_told_which_run(shell: Shell, command: str) -> None:
    done = shell.dray(command)

    assert done.returncode == 2
    assert b"RUN" in done.stderr


@pytest.mark.parametrize(("text", "words"), [("soon", b"is not a duration"), ("3w", b"90s, 10m, 4h")])
def test_a_wrong_duration_is_told_how_durations_look(shell: Shell, text: str, words: bytes) -> None:
    done = shell.dray("submit", "--timeout", text, "train.py")

    assert done.returncode == 2
    assert words in done.stderr


def test_a_pair_without_a_value_is_refused(shell: Shell) -> None:
    done = shell.dray("submit", "-e", "HOME", "train.py")

    assert done.returncode == 2
    assert b"NAME=VALUE" in done.stderr
