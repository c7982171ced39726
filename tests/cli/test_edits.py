"""What people say of runs afterwards: names, tags and notes, beside what the runs said themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dray import DrayError, Workspace
from tests.cli.dray_shell import Shell

SAYS = """
import dray
dray.tag(stage="script", owner="ana")
print("done")
"""


@pytest.fixture
def said(shell: Shell) -> Shell:
    """A run `first` that tags itself, and an older one, `other`."""
    shell.write("says.py", SAYS)
    assert shell.dray("submit", "--name", "other", "says.py").returncode == 0
    assert shell.dray("submit", "--name", "first", "--tag", "team=x", "says.py").returncode == 0
    return shell


def show(shell: Shell, run: str = "@last") -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(shell.dray("show", run, "--json").stdout)
    return shown


def test_a_run_gets_another_name_and_what_it_was_called_is_kept(said: Shell) -> None:
    run = show(said)["id"]

    named = said.dray("name", "first", "the best")
    shown, text = show(said, "the best"), said.dray("show", "the best").stdout.decode()
    listed = said.dray("runs").stdout.decode().splitlines()[1]
    found = said.dray("runs", "--where", 'name = "the best"', "--columns", "id", "--json")

    assert named.stdout == f"{run}\tthe best\n".encode()
    assert (shown["id"], shown["name"]) == (run, "the best")
    assert "name        the best\n" in text
    assert "; the run said `first`\n" in text
    assert "the best" in listed
    assert json.loads(found.stdout) == [{"id": run}]
    assert said.dray("show", "first").returncode == 2
    assert said.dray("name", "the best", "--rm").stdout == f"{run}\t\n".encode()
    assert show(said)["name"] is None


@pytest.mark.parametrize("name", ["", "  ", "@me", "a\nb", "x" * 201, "\x1b[31m"])
def test_a_name_is_as_good_as_one_at_submit_or_refused(said: Shell, name: str) -> None:
    done = said.dray("name", "first", name)

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"cannot be the name" in done.stderr
    assert b"\x1b" not in done.stderr
    assert show(said)["name"] == "first"


def test_a_name_that_another_run_has_is_remarked_upon(said: Shell) -> None:
    done = said.dray("name", "first", "other")

    assert done.returncode == 0
    assert b"1 other run has that name too" in done.stderr


def test_tags_of_many_runs_are_set_and_taken_away(said: Shell) -> None:
    done = said.dray("tag", "first", "other", "stage=dev", "why=two words=2", "empty=")
    shown = show(said, "first")
    json_of = json.loads(said.dray("tag", "first", "--rm", "stage", "--rm", "team", "--json").stdout)
    text = said.dray("show", "first").stdout.decode()
    found = said.dray("runs", "--where", "tags.stage = dev", "--columns", "name").stdout

    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    assert shown["tags"] == {"team": "x", "owner": "ana", "stage": "dev", "why": "two words=2", "empty": ""}
    assert {(one["name"], one["value"], one["said"]) for one in shown["edits"]} == {
        ("stage", "dev", "script"), ("why", "two words=2", None), ("empty", "", None),
    }  # fmt: skip
    assert json_of == [{"id": shown["id"], "tags": {"owner": "ana", "why": "two words=2", "empty": ""}}]
    assert "tag stage taken away" in text
    assert "the run said `script`" in text
    assert found == b"NAME\nother\n"


@pytest.mark.parametrize(
    ("words", "said_of_it"),
    [
        (["stage=dev"], b"no RUN to tag"),
        (["first", "stage=dev", "word"], b"`word` is not of the form K=V"),
        (["first", "=dev"], b"`=dev` is not of the form K=V"),
        (["first", "a\nb=dev"], b"cannot be the name of a tag"),
        (["first", "stage=dev", "--rm", "stage"], b"to be set and to be taken away"),
        (["first", "--rm", "satge"], b"did you mean `stage`?"),
        (["frist", "stage=dev"], b"try: dray tag first stage=dev"),
    ],
)
def test_wrong_words_about_tags_change_nothing(said: Shell, words: list[str], said_of_it: bytes) -> None:
    done = said.dray("tag", *words)

    assert (done.returncode, done.stdout) == (2, b"")
    assert said_of_it in done.stderr
    assert show(said)["tags"] == {"team": "x", "stage": "script", "owner": "ana"}


def test_tags_alone_are_shown(said: Shell) -> None:
    run = show(said)["id"]

    assert said.dray("tag", "first").stdout == f"{run}\tteam=x stage=script owner=ana\n".encode()


def test_a_note_is_written_read_found_and_taken_away(said: Shell) -> None:
    run = show(said)["id"]

    none = said.dray("note", "first")
    written = said.dray("note", "first", "too", "high,  really")
    read = said.dray("note", "first")
    found = said.dray("runs", "--where", 'note ~ "*high*"', "--columns", "name,note").stdout.decode()
    shown = said.dray("show", "first").stdout.decode()
    said.dray("note", "first", "--rm")

    assert (none.returncode, none.stdout) == (0, b"")
    assert f"{run} has no note" in none.stderr.decode()
    assert written.stdout == f"{run}\n".encode()
    assert read.stdout == b"too high,  really\n"
    assert found.splitlines() == ["NAME   NOTE", "first  too high, really"]
    assert "note        too high,  really\n" in shown
    assert show(said)["note"] is None


def test_a_note_of_several_lines_gives_no_orders_to_a_terminal(said: Shell) -> None:
    said.dray("note", "first", "one\ntwo \x1b]0;title\x07")

    with said.terminal("note", "first") as terminal:
        terminal.ended()

    assert terminal.seen == b"one\r\ntwo \\x1b]0;title\\x07\r\n"
    assert said.dray("note", "first").stdout == b"one\ntwo \x1b]0;title\x07\n"
    assert b"\x1b" not in said.dray("show", "first").stdout


@pytest.mark.parametrize(
    "words", [["note", "first", "x", "--rm"], ["note", "first", " "], ["name", "first", "x", "--rm"], ["name"], ["tag"]]
)  # fmt: skip
def test_contradictions_are_refused(said: Shell, words: list[str]) -> None:
    assert said.dray(*words).returncode == 2


def test_a_history_made_anew_knows_what_was_said_afterwards(said: Shell) -> None:
    said.dray("name", "first", "best")
    said.dray("tag", "best", "stage=dev", "--rm", "owner")
    said.dray("note", "best", "the good one")
    before = show(said)
    for path in said.home.glob("history.db*"):
        path.unlink()

    rebuilt = said.dray("rebuild")
    after = show(said)

    assert rebuilt.returncode == 0
    for key in ("id", "name", "tags", "note", "edits"):
        assert after[key] == before[key], key
    assert after["tags"] == {"team": "x", "stage": "dev"}


def test_in_python_a_run_is_renamed_tagged_and_noted(said: Shell) -> None:
    with Workspace(said.home) as workspace:
        run = workspace.run("first")
        run.rename("py")
        run.tag({"a b": 1}, stage="dev")
        run.untag("owner")
        run.note = "from Python"
        with pytest.raises(DrayError) as unknown:
            run.untag("stagge")
        with pytest.raises(DrayError):
            run.rename("@bad")
        with pytest.raises(DrayError):
            run.note = "x" * 200_000
        with pytest.raises(DrayError):
            run.tag(big="x" * 20_000)

        again = workspace.run("py")

    assert unknown.value.code == "unknown-name"
    assert (run.name, run.note) == ("py", "from Python")
    assert (again.name, again.note) == ("py", "from Python")
    assert again.record.said_name == "first"
    assert show(said)["tags"] == {"team": "x", "stage": "dev", "a b": "1"}


def test_what_was_said_afterwards_wins_over_a_script_that_still_runs(shell: Shell) -> None:
    shell.write(
        "late.py",
        "import os, time, dray\ndray.tag(stage='early')\nwhile not os.path.exists(os.environ['GO']):\n"
        "    time.sleep(0.05)\ndray.tag(stage='late', more='late')\n",
    )
    go = shell.folder.parent / "go"
    run = shell.detached("-e", f"GO={go}", "late.py")

    shell.dray("tag", run, "stage=mine")
    go.touch()
    shell.dray("wait", run)

    assert show(shell, run)["tags"] == {"stage": "mine", "more": "late"}
