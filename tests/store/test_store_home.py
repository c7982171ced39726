"""Where the history cannot be, cannot be written, cannot be read: a clear word each, and nothing half done."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dray.core.states import RunState
from dray.store import (
    DiskFull,
    HistoryDamaged,
    HistoryTooNew,
    HomeIsAFile,
    HomeReadOnly,
    HomeUnusable,
    NoSuchRun,
    Store,
    database,
)
from tests.store.world import EVENTS, as_nobody, ending, metric, new_run


def _made(home: Path) -> str:
    with Store.open(home) as store:
        run_id = new_run(store, name="first")
        store.ingest_many(run_id, [(1, "log.script", 0, b"hello"), (1, EVENTS, 0, metric(1, loss=0.5))])
        store.end(run_id, 1, ending(), complete=True)
    return run_id


def _opened_to_everybody(home: Path) -> None:
    for place, _, _ in os.walk(home):
        os.chmod(place, 0o755)


def _reads(home: Path, run_id: str) -> None:
    with Store.open(home) as store:
        assert not store.is_writable
        assert store.find("first").status is RunState.COMPLETED
        assert store.metrics(run_id)["loss"].values == [0.5]
        assert store.read_log(run_id, 1, "log.script", 0, 10) == b"hello"
        assert store.cursors(run_id)["1/log.script"] == 5
        assert not store.is_submitting(run_id)
        with pytest.raises(HomeReadOnly) as caught:
            new_run(store)
        assert "DRAY_HOME" in str(caught.value)
        with pytest.raises(HomeReadOnly), store.submitting(run_id):
            pass


def test_the_home_is_made_for_its_owner_alone(home: Path) -> None:
    Store.open(home / "deep").close()

    assert stat.S_IMODE((home / "deep").stat().st_mode) == 0o700


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_home_that_is_a_file_is_named(home: Path, below: str) -> None:
    home.write_text("mine")

    with pytest.raises(HomeIsAFile) as caught:
        Store.open(home / below)

    assert str(home) in str(caught.value) and "DRAY_HOME" in str(caught.value)
    assert home.read_text() == "mine"


def test_a_home_that_is_a_link_to_nowhere_is_named(home: Path) -> None:
    home.symlink_to("nowhere")

    with pytest.raises(HomeUnusable, match="leads nowhere"):
        Store.open(home)


def test_a_home_of_somebody_else_is_refused(open_place: Path) -> None:
    home = open_place / "home"
    _made(home)

    def look() -> None:
        with pytest.raises((HomeUnusable, HomeReadOnly)) as caught:
            Store.open(home)
        assert "DRAY_HOME" in str(caught.value)

    as_nobody(look)


def test_a_read_only_home_can_be_read(open_place: Path) -> None:
    home = open_place / "home"
    run_id = _made(home)
    _opened_to_everybody(home)

    as_nobody(lambda: _reads(home, run_id))


def test_a_read_only_home_can_be_read_while_its_owner_writes(open_place: Path) -> None:
    home = open_place / "home"
    run_id = _made(home)
    _opened_to_everybody(home)
    with Store.open(home) as store:
        store.looked(run_id, 5.0)  # now it is in the write-ahead log only

        def look() -> None:
            _reads(home, run_id)
            with Store.open(home) as theirs:
                assert theirs.run(run_id).as_of == 5.0

        as_nobody(look)


def test_a_read_only_home_of_a_killed_owner_can_be_read(home: Path, open_place: Path) -> None:
    run_id = _made(home)
    copied = open_place / "copied"
    with Store.open(home) as store:
        store.looked(run_id, 5.0)
        shutil.copytree(home, copied, ignore=shutil.ignore_patterns("*-shm"))
    _opened_to_everybody(copied)

    def look() -> None:
        _reads(copied, run_id)
        with Store.open(copied) as theirs:
            assert theirs.run(run_id).as_of == 5.0

    as_nobody(look)


def test_a_read_only_disk_can_be_read(small_disk: Path) -> None:
    run_id = _made(small_disk / "home")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)

    _reads(small_disk / "home", run_id)


def test_a_read_only_home_without_a_history_is_refused(open_place: Path) -> None:
    empty = open_place / "empty"
    empty.mkdir()
    _opened_to_everybody(empty)

    def look() -> None:
        for home in (empty, empty / "below"):
            with pytest.raises(HomeReadOnly) as caught:
                Store.open(home)
            assert "DRAY_HOME" in str(caught.value)

    as_nobody(look)


def _fill(disk: Path, leave: int = 0) -> Path:
    """Take the room on `disk` but for `leave` bytes; the file to delete when it is wanted back."""
    room = os.statvfs(disk)
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_bsize - leave)
    return ballast


def test_a_full_disk_says_so_and_stores_nothing_by_halves(small_disk: Path) -> None:
    point = metric(1, loss=1.0)
    with Store.open(small_disk / "home") as store:
        run_id = new_run(store)
        ballast = _fill(small_disk, leave=200_000)
        cursors = [0, 0]

        def bring() -> list[int]:
            pieces = [(1, "log.script", cursors[0], bytes(10_000)), (1, EVENTS, cursors[1], point * 50)]
            return store.ingest_many(run_id, pieces)

        for _ in range(100):
            try:
                cursors = bring()
            except DiskFull as error:
                said = str(error)
                break

        assert "is full" in said
        assert store.cursors(run_id) == {"1/log.script": cursors[0], f"1/{EVENTS}": cursors[1]}
        assert len(store.metrics(run_id)["loss"].values) * len(point) == cursors[1]
        ballast.unlink()
        assert bring() == [cursors[0] + 10_000, cursors[1] + 50 * len(point)]
        assert store.log_size(run_id, 1, "log.script") == cursors[0] + 10_000


def test_a_history_that_cannot_be_begun_for_want_of_space_says_so(small_disk: Path) -> None:
    ballast = _fill(small_disk, leave=4096)

    with pytest.raises(DiskFull):
        Store.open(small_disk / "home")

    ballast.unlink()
    _made(small_disk / "home")


def test_a_history_of_a_newer_dray_is_left_alone(home: Path) -> None:
    _made(home)
    with sqlite3.connect(home / "history.db") as db:
        db.execute("UPDATE meta SET value = '7.1.0'")
        db.execute("PRAGMA user_version = 41")
    db.close()

    with pytest.raises(HistoryTooNew) as caught:
        Store.open(home)

    assert "7.1.0" in str(caught.value) and "41" in str(caught.value)


@pytest.mark.parametrize(
    "garbage", [b"this is no database" * 1000, b"SQLite format 3\x00" + b"\xff" * 9000, b"x"]
)
def test_a_file_that_is_no_history_is_named_and_can_be_put_aside(home: Path, garbage: bytes) -> None:
    home.mkdir()
    (home / "history.db").write_bytes(garbage)

    with pytest.raises(HistoryDamaged) as caught:
        Store.open(home)

    assert "dray rebuild" in str(caught.value)
    assert (home / "history.db").read_bytes() == garbage
    aside = Store.set_aside(home)
    assert aside is not None and aside.read_bytes() == garbage
    _made(home)
    assert Store.set_aside(home) != aside


def test_nothing_is_put_aside_where_nothing_is(home: Path) -> None:
    home.mkdir()

    assert Store.set_aside(home) is None


def test_a_database_of_another_program_is_left_alone(home: Path) -> None:
    home.mkdir()
    with sqlite3.connect(home / "history.db") as db:
        db.execute("CREATE TABLE visits (url TEXT)")
    db.close()
    before = (home / "history.db").read_bytes()

    with pytest.raises(HistoryDamaged, match="another program"):
        Store.open(home)

    assert (home / "history.db").read_bytes() == before


def test_a_page_that_rotted_is_said_to_be_damage(home: Path) -> None:
    run_id = _made(home)
    with (home / "history.db").open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(4096)
        file.write(b"\xff" * (end - 4096))

    with pytest.raises(HistoryDamaged), Store.open(home) as store:
        store.export_state(run_id)


def test_an_empty_file_is_an_empty_history(home: Path) -> None:
    home.mkdir()
    (home / "history.db").touch()

    with Store.open(home) as store, pytest.raises(NoSuchRun):
        store.find("@last")


def test_a_name_of_the_home_may_be_anything(tmp_path: Path) -> None:
    for name in ("with space?mode=memory#x", "%41", "caf\u00e9", "new\nline"):
        run_id = _made(tmp_path / name)
        assert (tmp_path / name / "history.db").exists()
        with Store.open(tmp_path / name) as store:
            assert store.run(run_id).complete


def test_a_forked_child_and_several_threads_may_go_on_with_the_store(store: Store, run_id: str) -> None:
    child = os.fork()
    if child == 0:
        try:
            for n in range(20):
                store.ingest(run_id, 1, "log.child", n, b"c")
            os._exit(0)
        finally:
            os._exit(1)
    threads = [
        threading.Thread(
            target=lambda k=k: [store.ingest(run_id, 1, f"log.t{k}", n, b"t") for n in range(20)]
        )
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert os.waitpid(child, 0)[1] == 0
    assert sorted(store.cursors(run_id).values()) == [20] * 5


def test_opening_needs_neither_a_command_line_nor_a_network() -> None:
    program = (
        "import sys, dray.store; print(*sorted({'click', 'rich', 'yaml', 'socket', 'ssl', 'dataclasses', 'inspect',"
        " 'subprocess', 'shutil', 'tempfile', 'random', 'hashlib', 'fcntl', 'pwd', 'resource'} & set(sys.modules)))"
    )

    loaded = subprocess.run([sys.executable, "-I", "-c", program], check=True, stdout=subprocess.PIPE).stdout

    assert loaded.strip() == b""


def test_each_way_for_sqlite_to_fail_is_a_word_of_ours_or_a_mistake_of_ours(home: Path) -> None:
    with Store.open(home) as store, pytest.raises(sqlite3.OperationalError), store._db.reading() as db:
        db.execute("SELECT * FROM nonsense")
    assert database.BUSY_S == 30.0
