"""Bytes of logs and pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.store import Store
from dray.store.logs import Logs
from tests.store.world import EVENTS, ending, metric, new_run


def test_a_log_is_read_back_by_place(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, "log.script", 0, b"\x00\xff\r\nhello\n")
    store.ingest(run_id, 2, "media.0123456789abcdef.png", 0, b"PNG")
    store.ingest(run_id, 1, EVENTS, 0, metric(1, loss=1.0))

    assert store.log_streams(run_id) == [(1, "log.script"), (2, "media.0123456789abcdef.png")]
    assert store.log_size(run_id, 1, "log.script") == 10
    assert store.read_log(run_id, 1, "log.script", 2, 4) == b"\r\nhe"
    assert store.read_log(run_id, 1, "log.script", 4, 1000) == b"hello\n"
    assert store.read_log(run_id, 1, "log.script", 10, 5) == b""
    assert store.read_log(run_id, 1, "log.nothing", 0, 5) == b""
    assert store.log_path(run_id, 1, "log.script").read_bytes() == b"\x00\xff\r\nhello\n"


def test_bytes_behind_the_cursor_count_for_nothing(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, "log.script", 0, b"hello")
    with store.log_path(run_id, 1, "log.script").open("ab") as file:
        file.write(b" written by one who was killed before the cursor moved")

    assert store.read_log(run_id, 1, "log.script", 0, 1000) == b"hello"
    store.ingest(run_id, 1, "log.script", 5, b" you")
    assert store.read_log(run_id, 1, "log.script", 0, 1000) == b"hello you"


@pytest.mark.parametrize("question", ["cursors", "size"])
def test_a_log_that_a_power_cut_shortened_is_read_again(store: Store, run_id: str, question: str) -> None:
    store.ingest(run_id, 1, "log.script", 0, b"hello")
    store.end(run_id, 1, ending(), complete=True)
    store.log_path(run_id, 1, "log.script").write_bytes(b"he")

    got = (
        store.cursors(run_id)["1/log.script"]
        if question == "cursors"
        else store.log_size(run_id, 1, "log.script")
    )

    assert got == 2
    assert store.cursors(run_id) == {"1/log.script": 2}
    assert not store.run(run_id).complete
    store.ingest(run_id, 1, "log.script", 2, b"llo")
    assert store.read_log(run_id, 1, "log.script", 0, 100) == b"hello"


def test_a_log_that_somebody_deleted_is_read_again(store: Store, run_id: str) -> None:
    store.ingest(run_id, 1, "log.script", 0, b"hello")
    store.log_path(run_id, 1, "log.script").unlink()

    assert store.cursors(run_id) == {"1/log.script": 0}


@settings(deadline=None)
@given(st.text("ab\n", max_size=60), st.integers(-1, 12), st.integers(0, 10))
def test_the_last_lines_are_those_that_tail_shows(text: str, lines: int, beyond: int) -> None:
    import tempfile

    data = text.encode()
    with tempfile.TemporaryDirectory() as folder:
        logs = Logs(Path(folder))
        logs.write("r", 1, "log.script", 0, data + b"\nx" * beyond)

        start = logs.tail_start("r", 1, "log.script", len(data), lines)

    split = data.splitlines(keepends=True)
    assert data[start:] == b"".join(split[max(len(split) - max(lines, 0), 0) :])


def test_the_tail_of_a_long_log_is_found_across_pieces(store: Store) -> None:
    run_id = new_run(store)
    data = b"".join(b"%d %s\n" % (n, b"x" * (n % 5000)) for n in range(400))
    store.ingest(run_id, 1, "log.script", 0, data)

    for lines in (1, 50, 399, 400, 401):
        start = store.tail_start(run_id, 1, "log.script", lines)
        assert data[start:] == b"".join(data.splitlines(keepends=True)[-lines:])
