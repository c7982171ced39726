"""What a submit takes along, which Python it chooses, what it refuses before anything is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dray.core.errors import UsageError
from dray.runner.mask import STARS, Mask, forms
from dray.workspace.python import users_python
from dray.workspace.submission import submission_of
from tests.runner.machines import people_of
from tests.workspace.worlds import World, wait_until


def test_the_active_environment_comes_before_the_path(tmp_path: Path) -> None:
    for folder in ("venv/bin", "conda/bin", "path"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "python").symlink_to(sys.executable)
    env = {"PATH": str(tmp_path / "path")}

    assert users_python(env)[1] == "PATH"
    assert users_python({**env, "CONDA_PREFIX": str(tmp_path / "conda")})[1] == "CONDA_PREFIX"
    both = {**env, "CONDA_PREFIX": str(tmp_path / "conda"), "VIRTUAL_ENV": str(tmp_path / "venv")}
    assert users_python(both)[:2] == (str(tmp_path / "venv/bin/python"), "VIRTUAL_ENV")


def test_the_run_gets_the_python_of_the_shell_and_not_drays(world: World) -> None:
    world.write("who.py", "import sys; print(sys.executable)")
    said = world.dray("submit", "who.py")

    assert said.out.decode().strip() == str(world.bin / "python")
    assert "(from PATH)" in said.err


def test_the_users_variables_reach_the_script_as_they_are(world: World) -> None:
    world.write("env.py", "import os; print(os.environ['MINE'], os.environ['PYTHONPATH'].split(':')[:2])")
    said = world.dray("submit", "env.py", env={"MINE": "kept", "PYTHONPATH": "/one:/two"})

    assert said.out == b"kept ['/one', '/two']\n"


def test_a_script_that_an_ignore_rule_keeps_here_is_refused(world: World) -> None:
    world.write("train.py", "print(1)")
    world.write(".drayignore", "*.txt\n/train.py\n")
    for words in (["train.py"], ["--dry-run", "train.py"]):
        said = world.dray("submit", *words)
        assert said.code == 2
        assert ".drayignore:2" in said.err
    assert world.runs() == []


@pytest.mark.parametrize("kind", ["link", "file", "folder"])
def test_the_projects_own_outputs_stay_here_whatever_they_are(
    world: World, tmp_path: Path, kind: str
) -> None:
    world.write("train.py", "open('outputs/x', 'w').write('new')")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    place = world.project / "outputs"
    if kind == "link":
        place.symlink_to(scratch)
    elif kind == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "old").write_text("old")

    said = world.dray("submit", "train.py")

    assert said.code == 0, said
    assert [item["path"] for item in world.show()["outputs"]] == ["x"]
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["--", "true"], ["train.py"], ["--dir", "/", "train.py"], ["--dry-run", "--", "true"]]
)
def test_the_whole_file_system_is_no_code_folder(world: World, words: list[str]) -> None:
    script = str(world.write("train.py", "print(1)"))
    words = [script if word == "train.py" else word for word in words]

    said = world.dray("submit", *words, cwd="/")

    assert said.code == 2
    assert "every file of this machine would travel" in said.err


def test_a_run_that_a_run_submits_is_told_whose_part_it_is_and_ends_with_it(world: World) -> None:
    inner = f"{sys.executable} -m dray submit --detach --name inner -- sleep 300"
    world.write("outer.sh", f"DRAY_HOME={world.home} {inner}\n")

    said = world.dray("submit", "--name", "outer", "outer.sh")

    assert said.code == 0
    assert f"part of run {world.show('outer')['id']}" in said.out.decode()
    assert world.show("inner")["status"] in ("failed", "lost")


def test_a_script_named_through_a_link_is_the_same_script(world: World) -> None:
    world.write("sub/train.py", "import os, sys; print(sys.argv[0], os.path.exists('sub/train.py'))")
    link = world.project.parent / "link"
    link.symlink_to(world.project)

    assert world.dray("submit", str(link / "sub" / "train.py")).out == b"sub/train.py True\n"
    assert world.dray("submit", "--dir", str(link), "sub/train.py").out == b"sub/train.py True\n"


def test_an_exported_secret_is_known_to_the_script_alone(world: World) -> None:
    world.write("wait.py", "import os, time; print(os.getpid(), len(os.environ['TOKEN'])); time.sleep(60)")
    secret = "exported-secret-value"
    client = world.start("submit", "--secret", "TOKEN", "wait.py", env={**world.env, "TOKEN": secret})
    try:
        assert client.stdout is not None
        pid, length = client.stdout.readline().split()
        assert int(length) == len(secret)
        for person in people_of(int(pid)):
            assert secret.encode() not in Path(f"/proc/{person}/environ").read_bytes()
            assert secret.encode() not in Path(f"/proc/{person}/cmdline").read_bytes()
    finally:
        world.dray("cancel", "@last", "--grace", "0s")
        client.communicate(timeout=30)
    for file in world.home.rglob("*"):
        if file.is_file() and not file.is_symlink():
            assert secret.encode() not in file.read_bytes(), file


def test_a_secret_is_masked_in_the_forms_that_programs_print_it_in() -> None:
    import base64
    import json
    import urllib.parse

    secret = 'first line +/"\nsecond/line=?\n'
    printed = "|".join(
        [
            *secret.splitlines(),
            json.dumps(secret),
            repr(secret),
            urllib.parse.quote(secret, safe=""),
            base64.b64encode(secret.encode()).decode(),
        ]
    )
    mask = Mask(forms(secret))
    shown = mask.feed(printed.encode()) + mask.rest()

    assert shown.count(STARS) >= 6
    for piece in (b"second", b"first", base64.b64encode(secret.encode())[:20]):
        assert piece not in shown


def test_a_call_may_give_numbers_and_single_words() -> None:
    fields = {"outputs": "*.txt", "timeout": "10m", "env": {"N": 2}, "tags": {"fold": 3}}

    wish = submission_of("train.py", ("--lr", 0.1), fields)

    assert wish.args == ("--lr", "0.1")
    assert wish.outputs == ("*.txt",)
    assert wish.timeout_s == 600
    assert (wish.env, wish.tags) == ({"N": "2"}, {"fold": "3"})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"command": "make 'all"}, "a list of words"),
        ({"timeout": "soon"}, "not a duration"),
        ({"secrets": {"TOKEN": None}}, "`TOKEN` is not a text"),
        ({"lr": 0.1}, "no submit option `lr`"),
    ],
)
def test_a_call_that_makes_no_sense_is_told_so(fields: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        submission_of(None, (), fields)


def test_the_brackets_and_blank_lines_of_a_secret_document_garble_no_log() -> None:
    secret = '{\n    "key": {\n        "a": "s3cr3t-value"\n    },\n    \n    "b": 1\n}\n'
    log = b'{\n    },\n    \n    text\n        "a": "s3cr3t-value"\n'

    mask = Mask(forms(secret))

    assert mask.feed(log) + mask.rest() == b"{\n    },\n    \n    text\n***\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--secret", "TOKEN=@short", "train.py"], "too short to be masked"),
        (["--secret", "TOKEN=@long", "train.py", "--key", "long-enough-secret"], "stands among the words"),
        (["--secret", "TOKEN=@long", "--tag", "k=long-enough-secret", "train.py"], "stands among the words"),
    ],
)
def test_a_secret_that_would_be_seen_is_refused(world: World, words: list[str], why: str) -> None:
    world.write("train.py", "print(1)")
    world.write("short", "abc")
    world.write("long", "long-enough-secret\n")
    said = world.dray("submit", *words)

    assert said.code == 2, said
    assert why in said.err
    assert "long-enough-secret" not in said.err
    assert world.runs() == []


def test_names_of_all_kinds_arrive(world: World) -> None:
    names = ["a b.txt", "it's", 'say "x"', "new\nline", "café", "x" * 200, "d/" * 20 + "deep"]
    for name in names:
        world.write(name, name)
    odd = os.fsencode(str(world.project)) + b"/bad\xff.txt"
    with open(odd, "wb") as file:
        file.write(b"odd")
    world.write(
        "look.py",
        f"import os\nfor name in {names!r}: assert open(name).read() == name\n"
        "assert open(b'bad\\xff.txt', 'rb').read() == b'odd'\nprint('all there')",
    )

    assert world.dray("submit", "look.py").out == b"all there\n"


def test_a_lost_run_folder_is_told_to_who_asks(world: World) -> None:
    import shutil

    world.write("wait.py", "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    run = world.dray("submit", "-d", "wait.py").out.decode().strip()
    wait_until(lambda: world.dray("logs", run).out)
    (folder,) = (world.home / "machine").glob(f"*/runs/{run}")
    shutil.rmtree(folder)

    assert wait_until(lambda: world.show(run)["status"] == "lost")
