"""Words that a shell completes: in real shells, quickly, and without a word when something is wrong."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.cli import commands, completing, typed
from dray.cli.completion_table import TABLE
from dray.core.where import parse, parse_columns
from dray.store import Store
from dray.store.peek import Peek
from tests.cli.dray_shell import Shell
from tests.cli.test_commands import REAL
from tests.cli.typing_shells import TypingShell
from tests.store.world import EVENTS, ending, line, metric, new_run

COMPUTE = [words.split()[1] for words, *_ in commands.COMMANDS if words.startswith("compute ")]

IDS = ["aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc"]


def fill(home: Path) -> None:
    """Three runs, the last one newest."""
    with Store.open(home) as store:
        for number, (run, name) in enumerate(zip(IDS, ["first try", "net", None], strict=True)):
            new_run(
                store,
                1000.0 + number,
                id=run,
                name=name,
                experiment="digits" if number else "it's",
                tags={"stage": "dev"},
            )
            params = {"lr": 0.1, "a b": "x y"}
            said = [
                line("params", {"values": params}),
                metric(1, **{"loss": 1.0, "val/acc": 0.5, "val/loss": 2.0}),
            ]
            store.ingest(run, 1, EVENTS, 0, b"".join(said))
            store.end(run, 1, ending(), complete=True)
        store.edit(IDS[2], tags={"odd\x1b[31m": "x"}, name="evil\x1b]0;t\x07\n$(touch pwned)")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("known")
    (folder / "project").mkdir()
    shell = Shell(folder / "project", folder / "home")
    fill(shell.home)
    return shell


def asked(shell: Shell, typed_so_far: str) -> list[str]:
    """What fish would be told: the first line, then words without what they are."""
    done = shell.dray("_complete", "fish", typed_so_far)
    assert (done.returncode, done.stderr) == (0, b"")
    first, *rest = done.stdout.decode().splitlines()
    return [first, *(one.partition("\t")[0] for one in rest)]


@pytest.mark.parametrize(
    ("typed_so_far", "answer"),
    [
        ("dray sh", ["words", "show"]),
        ("dray help comp", ["words", "compare", "compute", "completion", "computetarget"]),
        ("dray --v", ["words", "--version"]),
        ("dray compute ", ["words", *COMPUTE]),
        ("dray compute show ", ["words", "local"]),
        ("dray runs --wh", ["words", "--where"]),
        ("dray runs --status ca", ["words", "canceled"]),
        ("dray runs --status=ca", ["words", "--status=canceled"]),
        ("dray runs --experiment ", ["words", "digits", "it's"]),
        ("dray show ", ["words", "@last", *reversed(IDS), "net", "first try"]),
        ("dray show --json a", ["words", "aaaaaaaaaa"]),
        ("dray show 'first", ["words", "first try"]),
        ("dray rm aaaaaaaaaa ", ["words", "@last", "cccccccccc", "bbbbbbbbbb", "net", "first try"]),
        ("dray metrics net v", ["words", "val/acc", "val/loss"]),
        ("dray tag net st", ["nospace", "stage="]),
        ("dray tag net stage=", ["words", "stage=dev"]),
        ("dray tag net --rm st", ["words", "stage"]),
        ("dray submit tr", ["files"]),
        ("dray submit train.py --lr 0.1 da", ["files"]),
        ("dray submit --dir ", ["dirs"]),
        ("dray submit -c ", ["words", "local"]),
        ("dray submit -c local --e", ["words", "--engine", "--experiment", "--env-var", "--env", "--extra", "--extra-index-url"]),
        ("dray logs --stream ", ["words", "script", "environment", "image"]),
        ("dray completion ", ["words", "bash", "zsh", "fish"]),
        ("dray runs --sort -metrics.v", ["nospace", "-metrics.val/acc", "-metrics.val/loss"]),
        ("dray runs --columns id,sta", ["nospace", "id,status", "id,started"]),
        ("dray runs --columns 'id,params.\"a", ["nospace", 'id,params."a b"']),
        ("dray runs --columns metrics.loss.m", ["nospace", "metrics.loss.min", "metrics.loss.max"]),
        ("dray runs --where metrics.l", ["nospace", "metrics.loss"]),
        ("dray runs --where 'metrics.loss < 1 and par", ["nospace", "metrics.loss < 1 and params.lr", 'metrics.loss < 1 and params."a b"']),
        ("dray runs --where 'status in (failed, ca", ["nospace", "status in (failed, canceled ,", "status in (failed, canceled )"]),
        ("dray runs --where 'not (tags.stage ~ ", ["words", "not (tags.stage ~ dev"]),
        ("dray runs --where 'params.\"a b\" = ", ["words", 'params."a b" = "x y"']),
        ("dray runs --where 'status = failed ", ["nospace", "status = failed and", "status = failed or"]),
        ("dray qqq ", ["words"]),
        ("dray show aaaaaaaaaa ", ["words"]),
        ("dray runs -- -", ["words"]),
        ("", ["words", *commands.top_level(), "help"]),
    ],
)  # fmt: skip
def test_a_word_is_completed_by_where_it_stands(known: Shell, typed_so_far: str, answer: list[str]) -> None:
    if typed_so_far:
        assert sorted(asked(known, typed_so_far)[1:]) == sorted(answer[1:])
    assert asked(known, typed_so_far)[0] == answer[0]


def test_the_table_knows_every_command_and_option() -> None:
    for words, command in REAL.items():
        names = {name for option in TABLE[words][0] for name in option[0]}
        assert names >= {name for param in command.params for name in param.opts if name.startswith("-")}
    assert set(TABLE) == set(REAL)


KEYS = [
    ("dray sho\t@last", ["show", "@last"]),
    ("dray show first\t", ["show", "first try"]),
    ("dray show 'first\t", ["show", "first try"]),
    ('dray show "first\t', ["show", "first try"]),
    ("dray show first\\ t\t", ["show", "first try"]),
    ("dray runs --stat\tfai\t", ["runs", "--status", "failed"]),
    ("dray runs --experiment it\t", ["runs", "--experiment", "it's"]),
    ("dray runs --experiment 'it\t", ["runs", "--experiment", "it's"]),
    ("dray runs --where 'metrics.lo\t< 1'", ["runs", "--where", "metrics.loss < 1"]),
    ("dray runs --where 'metr\tlo\t< 1'", ["runs", "--where", "metrics.loss < 1"]),
    ("dray runs --where 'status = fai\t", ["runs", "--where", "status = failed"]),
    ('dray runs --where "status = fai\t', ["runs", "--where", "status = failed"]),
    ("dray runs --where=metrics.l\t", ["runs", "--where=metrics.loss"]),
    ("dray runs --sort -metrics.val/a\t", ["runs", "--sort", "-metrics.val/acc"]),
    ("dray runs --columns id,params.l\t", ["runs", "--columns", "id,params.lr"]),
    ("dray tag net sta\td\t", ["tag", "net", "stage=dev"]),
    ("dray metrics net val/a\t", ["metrics", "net", "val/acc"]),
    ("dray submit --dir da\t tr\t", ["submit", "--dir", "data", "train.py"]),
    ("dray compute li\t", ["compute", "list"]),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_real_shells_complete_what_is_typed(kind: str, known: Shell, tmp_path: Path) -> None:
    assert shutil.which(kind), f"{kind} is not installed; .ci/run names what tests need"
    (tmp_path / "train.py").touch()
    (tmp_path / "data").mkdir()

    with TypingShell(kind, tmp_path, known.home) as shell:
        # zsh takes the slash of a folder away again.
        got = [[word.rstrip("/") for word in shell.words(keys)] for keys, _ in KEYS]
        shown = shell.shown("dray rm \t\t")

    assert got == [words for _, words in KEYS]
    for run in IDS:
        assert run in shown
    assert "\x1b]0;t" not in shown
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("trouble", ["missing", "damaged", "newer", "a folder"])
def test_a_history_in_trouble_gives_nothing_and_says_nothing(
    kind: str, trouble: str, known: Shell, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    if trouble != "missing":
        shutil.copytree(known.home, home)
    if trouble == "damaged":
        (home / "history.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    elif trouble == "newer":
        import sqlite3

        with sqlite3.connect(home / "history.db") as db:
            db.execute("PRAGMA user_version = 999")
        db.close()
    elif trouble == "a folder":
        (home / "history.db").unlink()
        (home / "history.db").mkdir()
    before = sorted(path.name for path in home.rglob("*"))

    for words in (
        "dray show ",
        "dray runs --where 'metrics.",
        "dray runs --experiment ",
        "dray metrics @last ",
    ):
        done = Shell(tmp_path, home).dray("_complete", kind, words, "")
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout in (b"words\n", b"nospace\n")
    assert Shell(tmp_path, home).dray("_complete", kind, "dray sho", "sho").stdout.startswith(b"words\nshow")
    # Nothing was made where there was nothing.
    assert sorted(path.name for path in home.rglob("*") if not path.name.endswith(("-wal", "-shm"))) == [
        name for name in before if not name.endswith(("-wal", "-shm"))
    ]


@pytest.mark.parametrize(
    "words",
    [[], ["bash"], ["fish", "dray \udce9 'x"], ["nosuchshell", "dray show "], ["bash", "dray '", "zz"]],
)
def test_odd_questions_get_an_answer_and_no_error(known: Shell, words: list[str]) -> None:
    done = known.dray("_complete", *words)

    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_heavy_is_imported_to_complete_a_run(known: Shell) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dray", "_complete", "bash", "dray show a", "a"],
        cwd=known.folder, env=known.env, capture_output=True, check=True,
    )  # fmt: skip
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}

    assert done.stdout == b"words\naaaaaaaaaa\n"
    assert not modules & {"click", "rich", "dray.workspace", "dray.core.where", "subprocess", "threading"}


def test_completing_costs_less_than_a_tenth_of_a_second_with_a_real_process(known: Shell) -> None:
    def cost(words: str) -> float:
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", "dray", "_complete", "bash", words],
            env=known.env,
            stdout=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        return used.ru_utime + used.ru_stime

    # Of the processor's time, and the least of many: what else this machine does at the time is not ours.
    for words in ("dray sho", "dray show a", "dray runs --where 'metrics.l"):
        assert min(cost(words) for _ in range(10)) < 0.1, words


@given(st.lists(st.text(st.characters(exclude_characters="\0\n\t"), min_size=1), max_size=4))
def test_words_are_read_as_a_shell_reads_them(words: list[str]) -> None:
    import shlex

    assert typed.read(shlex.join(["dray", *words]) + " ").words == ["dray", *words]


@given(
    st.text("ab c'\"\\$`\u00e9", max_size=6), st.text("ab c'\"\\$`;&|<>*?#~!\u00e9", min_size=1, max_size=8),
    st.sampled_from(["", "'", '"']),
)  # fmt: skip
def test_what_is_put_in_place_of_a_word_reads_as_the_whole(begin: str, rest: str, quote: str) -> None:
    import shlex

    raw = shlex.quote(begin) if begin else ""
    at = typed.read(f"dray {raw}{quote}")
    assert (at.word, at.quote) == (begin, quote)

    put = typed.continued(at, begin + rest) + quote

    done = subprocess.run(
        ["bash", "-c", f"printf %s {put}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
    )
    assert done.stdout.decode() == begin + rest


@given(st.text("metrics.loss status params\"' <=>~in(),andornt12", max_size=30))
def test_whatever_is_typed_of_an_expression_the_answers_begin_with_it(text: str) -> None:
    peek = Peek("/nowhere")
    from dray.cli.completing_fields import expression, fields

    for found in expression(peek, text, is_open=True):
        assert found.text.startswith(text)
    for found in fields(peek, text, may_descend=True):
        assert found.text.startswith(text)


def test_what_is_completed_to_an_end_can_be_read(known: Shell) -> None:
    peek = Peek(str(known.home))
    from dray.cli.completing_fields import expression, fields

    for begin in ("status = ", "name ~ ", 'params."a b" = ', "tags.stage = ", "created > ", "experiment = "):
        ends = [one for one in expression(peek, begin, is_open=True) if one.is_end]
        assert ends, begin
        for one in ends:
            parse(one.text)
    for begin in ("id,", "metrics.", "params.", "tags."):
        for one in fields(peek, begin, may_descend=False):
            if not one.text.endswith("."):
                parse_columns(one.text)
    peek.close()


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_the_script_says_how_to_install_it_and_the_shell_reads_it(shell: Shell, kind: str) -> None:
    script = shell.dray("completion", kind)
    by_variable = shell.dray("completion", env={"SHELL": f"/usr/bin/{kind}"})

    assert b"# dray's words in " + kind.encode() + b". Install: " in script.stdout
    assert by_variable.stdout == script.stdout
    subprocess.run([kind, "-n", "/dev/stdin"], input=script.stdout, check=True)


def test_without_a_known_shell_it_is_asked_for(shell: Shell) -> None:
    done = shell.dray("completion", env={"SHELL": "/bin/tcsh"})

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"dray completion bash" in done.stderr


def test_the_written_table_is_what_the_commands_say() -> None:
    path = Path(__file__).resolve().parents[2] / "tools" / "completion_table.py"
    spec = importlib.util.spec_from_file_location("completion_table", path)
    assert spec is not None
    assert spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)

    written = Path(completing.__file__).with_name("completion_table.py").read_text()

    assert writer.page(iter(REAL.items())) == written
