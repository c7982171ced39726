"""What dray adds to an end of its own accord."""

from __future__ import annotations

import json
import re

import pytest

from tests.workspace.worlds import World


@pytest.mark.parametrize(
    "path", ["data/b", "./data/b", "{code}/data/b", "{folder}/data/b", "/dray/code/data/b"]
)
def test_a_file_that_did_not_travel_is_named_as_it_stands_in_the_code_folder(world: World, path: str) -> None:
    folder = str(world.project)
    world.write(".gitignore", "data/\n")
    world.write("data/a", "1")  # the folder is what was left out, and all that could be in it
    # A folder `code` of the user's own: only the run's may be cut off.
    world.write("code/train.py", f"import os; open({path!r}.format(code=os.getcwd(), folder={folder!r}))\n")

    said = world.dray("submit", "code/train.py")
    shown = world.dray("show").out.decode()
    sentence = "`data/b` did not travel: left out by .gitignore:1 (data/)"

    assert said.code == 1
    assert f"      {sentence}\n" in said.err
    assert re.search(f"^remarks +{re.escape(sentence)}$", shown, re.MULTILINE)
    assert world.show()["explanations"] == [sentence]


def test_a_command_line_in_one_word_is_told_from_a_program_that_is_not_there(world: World) -> None:
    said = world.dray("submit", "--", "echo hi there")

    assert said.code == 125
    assert (
        "it is one word: `dray submit -- echo hi there`, or `dray submit -- sh -c 'echo hi there'`"
        in said.err
    )
    assert "one word" not in world.dray("submit", "--", "no-such-program", "a b").err


def test_a_text_given_as_a_metric_is_shown(world: World) -> None:
    world.write(
        "odd.py",
        "import dray; dray.log(acc='n/a', step=1); dray.log(acc='high', step=2); dray.log(acc=0.5)\n",
    )
    world.dray("submit", "odd.py")

    assert world.show()["texts"] == {"acc": {"value": "high", "step": 2}}
    assert re.search(r"^texts +acc high \(step 2\)$", world.dray("show").out.decode(), re.MULTILINE)


def test_the_list_of_all_runs_has_the_sentences_and_asks_no_machine_for_them(world: World) -> None:
    world.write("train.py", "open('stray.txt', 'w').close()\n")
    world.dray("submit", "train.py")
    machine = world.home / "machine"
    machine.rename(world.home / "away")

    listed = json.loads(world.dray("runs", "--json").out)

    assert listed[0]["explanations"] == [
        "left outside outputs/: stray.txt (`--outputs GLOB` keeps such files)"
    ]


def test_a_state_is_told_before_the_log_that_follows_it(world: World) -> None:
    world.write("slow.py", "import time; print('begun', flush=True); time.sleep(60)\n")
    with world.start("submit", "slow.py") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    world.dray("logs")

    from dray import Workspace
    from dray.workspace import Output, StateChanged

    with Workspace(world.home) as workspace:
        run = workspace.run()
        first = [type(event) for event in run.follow(wait=False)][:2]
        run.cancel(grace_s=0)

    assert first == [StateChanged, Output]
