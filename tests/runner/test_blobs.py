"""Contents on their way to a machine: many in a frame, large ones in pieces, gone on with after a cut, and never wrong."""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.core.ids import new_run_id
from dray.hosts import Connection
from dray.hosts.errors import MachineRefused
from dray.runner.machine import Machine
from dray.runner.taking import Taking
from dray.runner.trouble import Trouble
from tests.runner.machines import Here, Place

BIG = random.Random(5).randbytes(3_000_000)


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def ask(connection: Connection, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """Begin a submit of those files; the machine's first answer."""
    rows = [[path, name_of(data), len(data), 0] for path, data in contents.items()]
    spec = {"id": new_run_id(), "token": "t", "command": ["true"], "script": False}
    manifest = {"v": 1, "files": rows, "links": [], "dirs": []}
    connection.ask({"op": "submit", "spec": spec, "manifest": manifest})
    return connection.receive()[0]


def send(connection: Connection, data: bytes, offset: int = 0, piece: int = 1 << 20) -> None:
    for at in range(offset, len(data), piece):
        part = data[at : at + piece]
        connection.ask({"blobs": [[name_of(data), at, len(part)]]}, part)


def machine_folder(place: Place) -> Path:
    (found,) = Path(place.root_path()).glob("*/incoming")
    return found.parent


def blob(place: Place, data: bytes) -> bytes:
    digest = name_of(data)
    return (machine_folder(place) / "blobs" / digest[:2] / digest[2:]).read_bytes()


def cut_after(place: Place, data: bytes, size: int) -> None:
    """A submit that is cut when `size` bytes have come."""
    with place.connect() as connection:
        ask(connection, {"data": data, "never": b"sent"})
        part = data[:size]
        connection.ask({"blobs": [[name_of(data), 0, len(part)]]}, part)
        # An answer proves that all before it was taken: this one is refused.
        connection.ask({"blobs": [["0" * 64, 0, 0]]})
        with pytest.raises(MachineRefused, match="not asked for"):
            connection.receive()


def test_many_small_contents_come_in_one_frame(place: Place) -> None:
    contents = {f"f{i}": b"number %d" % i for i in range(300)} | {"empty": b""}
    with place.connect() as connection:
        lacks = ask(connection, contents)["lacks"]
        by_digest = {name_of(data): data for data in contents.values()}
        rows = [[digest, 0, len(by_digest[digest])] for digest in lacks]
        connection.ask({"blobs": rows}, b"".join(by_digest[digest] for digest in lacks))
        assert connection.receive()[0]["claimed"]
    for data in contents.values():
        assert blob(place, data) == data


def test_a_packed_frame_is_unpacked(place: Place) -> None:
    data = b"the same again and again\n" * 10000
    with place.connect() as connection:
        ask(connection, {"data": data})
        connection.ask({"blobs": [[name_of(data), 0, len(data)]], "packed": True}, zlib.compress(data, 1))
        assert connection.receive()[0]["claimed"]
    assert blob(place, data) == data


def test_a_cut_submit_is_gone_on_with_at_the_byte(place: Place) -> None:
    cut_after(place, BIG, 1_234_567)
    with place.connect() as connection:
        assert ask(connection, {"data": BIG})["partial"] == {name_of(BIG): 1_234_567}
        send(connection, BIG, 1_234_567)
        assert connection.receive()[0]["claimed"]
    assert blob(place, BIG) == BIG
    assert list((machine_folder(place) / "incoming").iterdir()) == []


def test_a_kept_beginning_need_not_be_used(place: Place) -> None:
    cut_after(place, BIG, 1_000_000)
    with place.connect() as connection:
        ask(connection, {"data": BIG})
        send(connection, BIG)
        assert connection.receive()[0]["claimed"]
    assert blob(place, BIG) == BIG


def test_a_beginning_that_is_none_is_thrown_away_and_asked_for_anew(place: Place) -> None:
    cut_after(place, BIG, 1_000_000)
    kept = machine_folder(place) / "incoming" / name_of(BIG)
    kept.write_bytes(b"\0" * 1_000_000)  # as a power cut may leave it
    with place.connect() as connection:
        assert ask(connection, {"data": BIG, "other": b"other"})["partial"] == {name_of(BIG): 1_000_000}
        send(connection, BIG, 1_000_000)
        send(connection, b"other")
        assert connection.receive()[0] == {"lacks": [name_of(BIG)], "partial": {}}
        send(connection, BIG)
        assert connection.receive()[0]["claimed"]
    assert blob(place, BIG) == BIG


@pytest.mark.parametrize("content", [BIG, BIG[:-1] + b"?", BIG + b"more"], ids=["whole", "wrong", "longer"])
def test_a_kept_file_that_is_as_long_as_the_whole_is_looked_at_first(here: Here, content: bytes) -> None:
    cut_after(here, BIG, 1_000_000)
    (machine_folder(here) / "incoming" / name_of(BIG)).write_bytes(content)
    with here.connect() as connection:
        answer = ask(connection, {"data": BIG})
        if content == BIG:
            assert answer["claimed"]
        else:
            assert answer == {"lacks": [name_of(BIG)], "partial": {}}
            send(connection, BIG)
            assert connection.receive()[0]["claimed"]
    assert blob(here, BIG) == BIG


def test_two_submits_at_once_do_not_disturb_each_other(place: Place) -> None:
    with place.connect() as one, place.connect() as other:
        ask(one, {"data": BIG})
        ask(other, {"data": BIG})
        for at in range(0, len(BIG), 500_000):
            part = BIG[at : at + 500_000]
            for connection in (one, other):
                connection.ask({"blobs": [[name_of(BIG), at, len(part)]]}, part)
        assert one.receive()[0]["claimed"]
        assert other.receive()[0]["claimed"]
    assert blob(place, BIG) == BIG
    assert list((machine_folder(place) / "incoming").iterdir()) == []


def test_a_beginning_that_somebody_is_writing_is_not_offered(here: Here) -> None:
    cut_after(here, BIG, 1_000_000)
    kept = machine_folder(here) / "incoming" / name_of(BIG)
    with kept.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with here.connect() as connection:
            assert ask(connection, {"data": BIG})["partial"] == {}
            send(connection, BIG)
            assert connection.receive()[0]["claimed"]
    assert blob(here, BIG) == BIG


def test_what_nobody_came_back_for_is_swept(here: Here) -> None:
    cut_after(here, BIG, 1_000_000)
    kept = machine_folder(here) / "incoming" / name_of(BIG)
    fresh = kept.with_name("f" * 64)
    fresh.write_bytes(b"somebody's, of today")
    os.utime(kept, (1, 1))
    with here.connect() as connection:
        ask(connection, {"data": b"another"})
        send(connection, b"another")
        assert connection.receive()[0]["claimed"]
    assert not kept.exists()
    assert fresh.exists()


HOSTILE: dict[str, tuple[list[Any], bytes, bool]] = {
    "not asked for": ([["0" * 64, 0, 1]], b"x", False),
    "a path": ([["../../x", 0, 1]], b"x", False),
    "a gap": ([[name_of(BIG), 5, 1]], b"x", False),
    "longer than the file": ([[name_of(BIG), 0, len(BIG) + 1]], BIG + b"x", False),
    "shorter than it says": ([[name_of(BIG), 0, 10]], b"x", False),
    "longer than it says": ([[name_of(BIG), 0, 1]], b"xyz", False),
    "less than nothing": ([[name_of(BIG), 0, -1]], b"", False),
    "less than nothing, packed": ([[name_of(BIG), 0, -10]], zlib.compress(b""), True),
    "no rows": ([1, 2], b"", False),
    "damaged": ([[name_of(BIG), 0, len(BIG)]], b"?" + BIG[1:], False),
    "no packing": ([[name_of(BIG), 0, 1]], b"x", True),
    "a bomb": ([[name_of(BIG), 0, 100]], zlib.compress(bytes(200_000_000), 9), True),
    "a bomb that says so": ([[name_of(BIG), 0, 200_000_000]], zlib.compress(bytes(200_000_000), 9), True),
    "a torn packing": ([[name_of(BIG), 0, len(BIG)]], zlib.compress(BIG)[:-5], True),
    "two packings": ([[name_of(BIG), 0, 1]], zlib.compress(BIG[:1]) + b"more", True),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_not_as_it_should_be_is_refused_and_leaves_no_blob(here: Here, kind: str) -> None:
    rows, body, packed = HOSTILE[kind]
    with here.connect() as connection:
        ask(connection, {"data": BIG})
        connection.ask({"blobs": rows, "packed": packed}, body)
        with pytest.raises(MachineRefused):
            connection.receive()
        assert connection.call({"op": "list"}) == {"runs": [], "never": []}, "the channel is still of use"
    assert not [file for file in Path(here.root_path()).rglob("blobs/*/*") if file.is_file()]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 4000), max_size=4),
    piece=st.integers(1, 2500),
    packed=st.booleans(),
)
def test_contents_in_any_pieces_over_any_number_of_cuts_are_the_contents(
    sizes: list[int], cuts: list[int], piece: int, packed: bool
) -> None:
    contents = {name_of(data): data for data in (random.Random(n).randbytes(n) for n in sizes)}
    with tempfile.TemporaryDirectory() as root:
        machine = Machine(root)
        for patience in [*cuts, 10**9]:
            missing = {d: len(c) for d, c in contents.items() if not os.path.exists(machine.blob(d))}
            with Taking(machine, missing) as taking:
                came = 0
                for header, body in _frames(contents, taking.lacks(), piece, packed):
                    came += len(body)
                    if came > patience:
                        break
                    taking.frame(header, body)
                else:
                    assert not taking.wanted
        for digest, data in contents.items():
            assert Path(machine.blob(digest)).read_bytes() == data
        assert os.listdir(machine.incoming) == []


def _frames(
    contents: Mapping[str, bytes], lacks: Mapping[str, Any], piece: int, packed: bool
) -> list[tuple[dict[str, Any], bytes]]:
    made = []
    for digest in lacks["lacks"]:
        data, at = contents[digest], lacks["partial"].get(digest, 0)
        while True:
            part = data[at : at + piece]
            header: dict[str, Any] = {"blobs": [[digest, at, len(part)]]}
            made.append((header | {"packed": True}, zlib.compress(part)) if packed else (header, part))
            at += len(part)
            if at >= len(data):
                break
    return made


@given(rows=st.lists(st.lists(st.one_of(st.integers(), st.text(), st.none()), max_size=4), max_size=3),
       body=st.binary(max_size=40), packed=st.booleans())  # fmt: skip
def test_garbage_is_refused_and_nothing_else(rows: list[Any], body: bytes, packed: bool) -> None:
    with tempfile.TemporaryDirectory() as root:
        machine = Machine(root)
        with Taking(machine, {name_of(b"a" * 50): 50}) as taking:
            try:
                taking.frame({"blobs": rows, "packed": packed}, body)
            except Trouble:
                return
            assert taking.wanted, "nothing came"
