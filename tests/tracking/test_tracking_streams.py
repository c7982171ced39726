"""What the five functions put on disk."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from tests.tracking.tracked import World

PNG = "b'\\x89PNG\\r\\n\\x1a\\n' + b'x' * 100"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_stream_begins_by_saying_who_writes_it(world: World) -> None:
    out, err = world.run("import dray, os; dray.log(loss=0.5, step=7); print(os.getpid())", RANK="3")

    ((name, events),) = world.events().items()

    assert re.fullmatch(r"events\.[0-9a-f]{8}\.jsonl", name)
    assert events[0]["type"] == "opened"
    assert events[0]["data"] == {"host": socket.gethostname(), "pid": int(out), "rank": 3}
    assert events[1]["data"] == {"step": 7, "values": {"loss": 0.5}}
    assert [e["seq"] for e in events] == [1, 2]
    assert [e["v"] for e in events] == [1, 1]
    assert err == ""


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ({}, None),
        ({"SLURM_PROCID": "2"}, 2),
        ({"OMPI_COMM_WORLD_RANK": "5"}, 5),
        ({"RANK": "first"}, None),
        ({"RANK": "-1", "SLURM_PROCID": "4"}, 4),
    ],
)
def test_the_rank_is_taken_from_the_usual_launchers(
    world: World, env: dict[str, str], rank: int | None
) -> None:
    world.run("import dray; dray.log(a=1)", **env)

    assert world.only("opened")[0]["rank"] == rank


def test_a_script_that_logs_nothing_leaves_no_stream(world: World) -> None:
    world.run("import dray, dray.tracking")

    assert os.listdir(world.streams) == []


def test_names_that_are_no_identifiers_are_given_in_a_dict(world: World) -> None:
    world.run("import dray; dray.log({'val/loss': 1, 'step': 2}, step=3, values=4); dray.log(5, loss=6)")

    assert world.only("metrics") == [
        {"step": 3, "values": {"val/loss": 1, "step": 2, "values": 4}},
        {"step": 5, "values": {"loss": 6}},
    ]


def test_params_keep_their_types_and_whatever_else_is_given_becomes_text(world: World) -> None:
    world.run(
        "import argparse, dray, pathlib\n"
        "dray.log_params(argparse.Namespace(lr=0.1, epochs=3), fast=True, note=None)\n"
        "dray.log_params({'where': pathlib.Path('a/b'), 'layers': [1, 2], 'big': 10**30, 'nan': float('nan')})"
    )

    assert [p["values"] for p in world.only("params")] == [
        {"lr": 0.1, "epochs": 3, "fast": True, "note": None},
        {"where": "a/b", "layers": "[1, 2]", "big": str(10**30), "nan": "NaN"},
    ]


def test_tags_are_strings(world: World) -> None:
    world.run("import dray; dray.tag(stage='dev', fold=3, empty=None); dray.tag({'a b': 'c'})")

    assert [t["values"] for t in world.only("tags")] == [
        {"stage": "dev", "fold": "3", "empty": ""},
        {"a b": "c"},
    ]


@pytest.mark.parametrize(
    ("rows", "columns", "cells"),
    [
        ("[{'a': 1, 'b': 'x'}, {'b': 'y', 'c': None}]", ["a", "b", "c"], [[1, "x", None], [None, "y", None]]),
        ("[[1, 2], [3]]", ["0", "1"], [[1, 2], [3, None]]),
        ("[[1, 2, 3]], ['a', 'b']", ["a", "b", "2"], [[1, 2, 3]]),
        ("[{'a': 1, 'b': 2}], ['b']", ["b"], [[2]]),
        ("{'a': [1, 2], 'b': [3, 4]}", ["a", "b"], [[1, 3], [2, 4]]),
        ("{'lr': 0.1, 'name': 'x'}", ["name", "value"], [["lr", 0.1], ["name", "x"]]),
        ("[True, 'x', float('inf')]", ["0"], [[True], ["x"], ["Infinity"]]),
        ("(row for row in [(1,), (2,)])", ["0"], [[1], [2]]),
        ("[]", [], []),
        ("Split()", ["a", "a"], [[1, 2]]),
        ("Columns()", ["a"], [[1], [2]]),
        ("Array()", ["0", "1"], [[1, 2], [3, 4]]),
    ],
)
def test_a_table_may_have_many_shapes(
    world: World, rows: str, columns: list[str], cells: list[object]
) -> None:
    world.run(
        "import dray\n"
        "class Split:\n"
        "    def to_dict(self, orient): return {'columns': ['a', 'a'], 'data': [[1, 2]], 'index': [0]}\n"
        "class Columns:\n"
        "    def to_dict(self): return {'a': iter([1, 2])}\n"
        "class Array:\n"
        "    def tolist(self): return [[1, 2], [3, 4]]\n"
        f"dray.log_table('t', {rows}, step=1)"
    )

    assert world.only("table") == [{"name": "t", "step": 1, "columns": columns, "rows": cells}]


def test_a_table_that_is_no_table_is_named_and_the_script_goes_on(world: World) -> None:
    out, err = world.run("import dray; dray.log_table('t', 3); dray.log_table('t', 'abc'); print('on')")

    assert out == "on\n"
    assert err.count("\n") == 1
    assert "a table is a list of rows" in err


def test_a_huge_table_keeps_its_first_rows_in_a_line_that_readers_can_hold(world: World) -> None:
    _, err = world.run("import dray; dray.log_table('t', [['x' * 100]] * 50_000)")

    (table,) = world.only("table")
    (stream,) = world.streams.iterdir()
    assert 4_000 < len(table["rows"]) < 50_000
    assert stream.stat().st_size < 1_100_000
    assert f"its first {len(table['rows'])} rows are kept" in err


def test_a_great_many_values_in_one_call_are_all_kept_in_lines_that_readers_can_hold(world: World) -> None:
    world.run(
        "import dray\n"
        "dray.log({'metric %d' % i: i for i in range(100_000)}, step=7)\n"
        "dray.log_params({'p%d' % i: '\\U0001f600' * 60_000 for i in range(3)})\n"
        "dray.log_table('wide', [], columns=range(10**6))"
    )

    (stream,) = world.streams.iterdir()
    values = {name: value for event in world.only("metrics") for name, value in event["values"].items()}
    assert values == {f"metric {i}": i for i in range(100_000)}
    assert {event["step"] for event in world.only("metrics")} == {7}
    assert [list(event["values"]) for event in world.only("params")] == [["p0"], ["p1"], ["p2"]]
    assert max(map(len, stream.read_bytes().splitlines())) < 1024 * 1024


@pytest.mark.parametrize(
    ("picture", "extension"),
    [
        (PNG, "png"),
        (f"bytearray({PNG})", "png"),
        ("b'\\xff\\xd8\\xff\\xe0rest'", "jpg"),
        ('b\'<?xml version="1.0"?>\\n<svg width="1">\'', "svg"),
        ("b'RIFF\\0\\0\\0\\0WEBPVP8 '", "webp"),
        ("__import__('pathlib').Path('picture.dat')", "png"),
        ("'picture.dat'", "png"),
        ("open('picture.dat', 'rb')", "png"),
        ("Figure()", "png"),
        ("Axes()", "png"),
        ("Image()", "gif"),
    ],
)
def test_a_picture_lies_complete_beside_the_events(world: World, picture: str, extension: str) -> None:
    world.run(
        "import dray\n"
        f"content = {PNG}\n"
        "open('picture.dat', 'wb').write(content)\n"
        "class Figure:\n"
        "    def savefig(self, file, format): assert format == 'png'; file.write(content)\n"
        "class Axes: figure = Figure()\n"
        "class Image:\n"
        "    def save(self, file, format): assert format == 'PNG'; file.write(b'GIF89a')\n"
        f"dray.log_image('cm', {picture}, step=2)"
    )

    (image,) = world.only("image")
    assert re.fullmatch(rf"media\.[0-9a-f]{{16}}\.{extension}", image["stream"])
    assert (image["name"], image["step"]) == ("cm", 2)
    assert (world.streams / image["stream"]).stat().st_size == image["bytes"]
    assert len(os.listdir(world.streams)) == 2


@pytest.mark.parametrize("picture", ["b'hello'", "'nowhere.png'", "3", "None", "Broken()"])
def test_what_is_no_picture_leaves_one_sentence_and_no_file(world: World, picture: str) -> None:
    _, err = world.run(
        "import dray\n"
        "class Broken:\n"
        "    def savefig(self, file, format): raise RuntimeError('no canvas')\n"
        f"dray.log_image('cm', {picture}); dray.log_image('cm', {picture})"
    )

    assert err.startswith("dray: log_image() could not record this: ")
    assert err.count("\n") == 1
    assert os.listdir(world.streams) == []


def test_outside_a_run_nothing_happens_and_that_is_said_once(world: World) -> None:
    calls = "dray.log(a=1); dray.log_params(a=1); dray.tag(a='b'); dray.log_table('t', []); dray.log_image('i', 'x')"
    for folder in ("", str(world.folder / "nowhere"), str(world.script("pass"))):
        out, err = world.run(f"import dray\n{calls}\n{calls}\nprint('done')", DRAY_STREAMS=folder)

        assert out == "done\n"
        assert err.startswith("dray: ")
        assert err.count("\n") == 1
        assert "nothing is recorded" in err
    assert os.listdir(world.streams) == []


def test_secrets_are_hidden_in_every_string(world: World) -> None:
    world.run(
        "import dray, os\n"
        "token = os.environ.pop('TOKEN')\n"
        "dray.log({token: 1, 'said': 'key=' + token})\n"
        "dray.log_params(a=token, b='x' + token.strip() + 'y', c=31415926, d=('t', token))\n"
        "dray.tag(a=token); dray.log_table(token, [[token]], columns=[token])\n"
        f"dray.log_image(token, {PNG}); dray.tag(short='abc', cut='z' * 65530 + token)",
        DRAY_SECRETS="TOKEN, PIN,SHORT,ABSENT",
        TOKEN='s3"cr\\et\n',
        PIN="31415926",
        SHORT="abc",
    )

    text = "".join(path.read_text("latin1") for path in world.streams.iterdir())
    assert "s3" not in text
    assert "31415926" not in text
    assert text.count("***") >= 10
    assert '"short":"abc"' in text


def test_a_secret_is_hidden_in_the_forms_that_scripts_log_it_in(world: World) -> None:
    world.run(
        "import base64, dray, os, urllib.parse\n"
        "key = os.environ['KEY']; raw = key.encode()\n"
        "dray.log_params({str(n): line for n, line in enumerate(key.splitlines())})\n"
        "dray.log_params(basic=base64.b64encode(raw), safe=base64.urlsafe_b64encode(raw).decode())\n"
        "dray.tag(url='https://x/?key=' + urllib.parse.quote(key, safe=''), plain='end')",
        DRAY_SECRETS="KEY",
        KEY="-----BEGIN\nfirst/line+of=it\nsecond?line>>\n-----END\n",
    )

    text = "".join(path.read_text() for path in world.streams.iterdir())
    for piece in ("first", "second", "Zmlyc3", "BEGIN"):
        assert piece not in text
    assert '"plain":"end"' in text
