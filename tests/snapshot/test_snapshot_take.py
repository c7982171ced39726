"""Taking a snapshot: the manifest, the blobs, what is remembered, and what happens when files change meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.core.spec import canonical_json
from dray.snapshot import NoRoomForBlobs, Snapshot, plan, take
from dray.snapshot.blobs import BlobStore
from dray.snapshot.cache import RACY_NS, StatCache


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _contents(snapshot: Snapshot) -> dict[str, bytes]:
    return {
        path: snapshot.blob_path(digest).read_bytes() for path, digest, _, _ in snapshot.manifest["files"]
    }


def _require_true_blobs(home: Path) -> int:
    """Every blob has the content that its name says; how many there are, manifests among them."""
    blobs = [path for path in (home / "blobs").glob("??/*") if path.is_file()]
    assert all(_sha(path.read_bytes()) == path.parent.name + path.name for path in blobs)
    assert list((home / "blobs" / "incoming").iterdir()) == []
    return len(blobs)


def _let_age() -> None:
    """Until what was just written is old enough to be trusted."""
    time.sleep(RACY_NS / 1e9 + 0.05)


def _remembered(home: Path, code: Path) -> StatCache:
    return StatCache.load(str(home), str(code))


def test_the_manifest_is_as_the_contract_says(code: Path, home: Path) -> None:
    (code / "b").mkdir()
    (code / "b" / "run.sh").write_bytes(b"echo")
    (code / "b" / "run.sh").chmod(0o755)
    (code / "a.py").write_bytes(b"")
    (code / "link").symlink_to("a.py")
    (code / "empty").mkdir()

    snapshot = take(code, home)

    assert snapshot.manifest == {
        "v": 1,
        "files": [["a.py", _sha(b""), 0, 0], ["b/run.sh", _sha(b"echo"), 4, 1]],
        "links": [["link", "a.py"]],
        "dirs": ["empty"],
    }
    assert snapshot.digest == _sha(canonical_json(snapshot.manifest))
    assert (snapshot.files, snapshot.bytes, snapshot.root) == (3, 4, code)
    assert _contents(snapshot) == {"a.py": b"", "b/run.sh": b"echo"}
    assert snapshot.blob_path(_sha(b"echo")).stat().st_mode & 0o777 == 0o400


def test_the_manifest_is_a_blob_too_and_comes_back_when_it_is_lost(code: Path, home: Path) -> None:
    (code / "a.py").write_bytes(b"1")

    snapshot = take(code, home)
    kept = snapshot.blob_path(snapshot.digest)
    assert kept.read_bytes() == canonical_json(snapshot.manifest)

    kept.unlink()
    assert take(code, home).digest == snapshot.digest
    assert kept.read_bytes() == canonical_json(snapshot.manifest)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=30), st.binary()
    )
)
def test_every_byte_of_every_file_is_in_the_store(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    top = tmp_path_factory.mktemp("any")
    for name, data in files.items():
        (top / "code" / ("x" + name)).parent.mkdir(exist_ok=True)
        (top / "code" / ("x" + name)).write_bytes(data)
    (top / "code").mkdir(exist_ok=True)

    snapshot = take(top / "code", top / "home")

    assert _contents(snapshot) == {"x" + name: data for name, data in files.items()}
    assert json.loads(canonical_json(snapshot.manifest)) == snapshot.manifest


def test_the_same_content_is_kept_once_and_the_same_folder_has_the_same_digest(
    tmp_path: Path, code: Path, home: Path
) -> None:
    for folder in (code, tmp_path / "other"):
        folder.mkdir(exist_ok=True)
        (folder / "a").write_bytes(b"same")
        (folder / "b").write_bytes(b"same")

    digests = {take(code, home).digest, take(tmp_path / "other", home).digest}

    assert len(digests) == 1
    assert _require_true_blobs(home) == 1 + 1


def test_big_files_are_read_in_pieces_and_told_of(code: Path, home: Path) -> None:
    for number in range(5):
        (code / f"{number}.bin").write_bytes(os.urandom(3_000_001) + bytes([number]))
    told: list[tuple[str, int, int | None]] = []

    snapshot = take(code, home, progress=lambda what, done, total: told.append((what, done, total)))

    assert _contents(snapshot) == {f"{n}.bin": (code / f"{n}.bin").read_bytes() for n in range(5)}
    assert _require_true_blobs(home) == 5 + 1
    assert told[0] == ("looking", 5, None)
    assert all(
        0 <= done <= 5 * 3_000_002 and total == 5 * 3_000_002
        for what, done, total in told
        if what == "reading"
    )
    assert any(what == "reading" for what, _, _ in told)


def test_an_unchanged_folder_is_not_read_again(code: Path, home: Path) -> None:
    (code / "a").write_bytes(b"one")
    _let_age()
    take(code, home)
    other = take_elsewhere(home, b"two")

    # The proof: when what is remembered says something else than the content, it is believed.
    _remembered(home, code).save([(row, other) for row in plan(code).files], {})

    assert take(code, home).manifest["files"] == [["a", other, 3, 0]]


def take_elsewhere(home: Path, data: bytes) -> str:
    """Put `data` into the store; its digest."""
    folder = home / "elsewhere"
    folder.mkdir()
    (folder / "x").write_bytes(data)
    take(folder, home)
    return _sha(data)


def test_a_file_changed_in_the_moment_it_was_read_is_not_trusted(code: Path, home: Path) -> None:
    for _ in range(50):  # same size, and often the same time stamp
        for data in (b"one", b"two"):
            (code / "a").write_bytes(data)
            assert _contents(take(code, home)) == {"a": data}
    assert _remembered(home, code).digests == []


def test_a_cache_that_is_damaged_is_ignored_and_made_again(code: Path, home: Path) -> None:
    (code / "a").write_bytes(b"one")
    _let_age()
    digest = take(code, home).digest
    path = Path(_remembered(home, code).path)
    good = path.read_bytes()
    flipped = good[:-40] + bytes([good[-40] ^ 1]) + good[-39:]

    for bad in (
        b"",
        good[:-1],
        flipped,
        good + b"x",
        good.replace(b"cache 1", b"cache 9"),
        b'{"some": "json"}',
    ):
        path.write_bytes(bad)
        assert _remembered(home, code).digests == []
        assert take(code, home).digest == digest
        assert _remembered(home, code).digests == [_sha(b"one")]

    path.unlink()
    path.mkdir()
    assert take(code, home).digest == digest


def test_odd_names_are_remembered_too(code: Path, home: Path) -> None:
    names = ["new\nline", "\udcff\udc80", "é", " "]
    for name in names:
        (code / name).write_bytes(os.fsencode(name))
    _let_age()
    take(code, home)

    assert dict(
        zip([row[0] for row in _remembered(home, code).rows], _remembered(home, code).digests, strict=True)
    ) == {name: _sha(os.fsencode(name)) for name in names}


def test_a_blob_that_was_deleted_or_cut_is_stored_again(code: Path, home: Path) -> None:
    for name in "abc":
        (code / name).write_bytes(name.encode() * 5)
    _let_age()
    take(code, home)
    _let_age()
    snapshot = take(code, home)
    assert (
        len(_remembered(home, code).blob_folders) == 3
    )  # so nothing but the folders' times is looked at now

    snapshot.blob_path(_sha(b"aaaaa")).unlink()
    assert _contents(take(code, home))["a"] == b"aaaaa"

    cut = snapshot.blob_path(_sha(b"bbbbb"))
    cut.unlink()
    cut.write_bytes(b"")
    assert _contents(take(code, home))["b"] == b"bbbbb"

    subprocess.run(["rm", "-rf", home / "blobs"], check=True)
    assert _contents(take(code, home)) == {name: name.encode() * 5 for name in "abc"}


def test_a_deletion_right_after_the_blob_was_stored_is_seen(code: Path, home: Path) -> None:
    for number in range(30):
        (code / "a").write_bytes(b"%d" % number)
        take(code, home).blob_path(_sha(b"%d" % number)).unlink()
        assert _contents(take(code, home)) == {"a": b"%d" % number}


def test_changes_are_seen_whatever_the_times_say(code: Path, home: Path) -> None:
    (code / "a").write_bytes(b"one")
    (code / "gone").write_bytes(b"x")
    _let_age()
    take(code, home)
    before = os.stat(code / "a")
    (code / "a").write_bytes(b"two")
    os.utime(code / "a", ns=(before.st_atime_ns, before.st_mtime_ns))  # as `tar` and `cp -p` do
    (code / "gone").unlink()
    (code / "new").write_bytes(b"y")

    assert _contents(take(code, home)) == {"a": b"two", "new": b"y"}


def test_a_change_of_the_executable_bit_is_a_change(code: Path, home: Path) -> None:
    (code / "a").write_bytes(b"one")
    _let_age()
    first = take(code, home)
    (code / "a").chmod(0o755)

    assert (first.manifest["files"][0][3], take(code, home).manifest["files"][0][3]) == (0, 1)


def test_a_file_that_never_stops_changing_never_gives_a_blob_under_a_wrong_name(
    code: Path, home: Path
) -> None:
    program = "import sys\nwhile True:\n  for c in 'ab': f = open(sys.argv[1], 'r+b'); f.write(c.encode() * 2_000_000); f.close()"
    (code / "busy").write_bytes(b"a" * 2_000_000)
    (code / "log").write_bytes(b"")
    writer = subprocess.Popen([sys.executable, "-c", program, code / "busy"])
    try:
        for number in range(10):
            with (code / "log").open("ab") as log:
                log.write(b"line %d\n" % number)
            snapshot = take(code, home)
            for path, digest, size, _ in snapshot.manifest["files"]:
                data = snapshot.blob_path(digest).read_bytes()
                assert (path, _sha(data), len(data)) == (path, digest, size)
    finally:
        writer.kill()
        writer.wait()
    _require_true_blobs(home)


def test_files_that_come_and_go_during_a_snapshot_do_not_fail_it(code: Path, home: Path) -> None:
    (code / "steady").write_bytes(b"x")
    stop = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            path = code / f"t{number % 7}"
            path.write_bytes(b"%d" % number)
            (path.with_suffix(".link")).symlink_to("steady")
            os.replace(path.with_suffix(".link"), path)
            path.unlink()

    mover = threading.Thread(target=come_and_go)
    mover.start()
    try:
        for _ in range(40):
            assert _contents(take(code, home))["steady"] == b"x"
    finally:
        stop.set()
        mover.join()


def test_many_submits_at_once_agree(code: Path, home: Path) -> None:
    for number in range(200):
        (code / f"f{number}").write_bytes(b"%d" % (number % 150) * 100)
    (code / "big").write_bytes(b"z" * 3_000_000)
    program = "import sys; from dray.snapshot import take; print(take(sys.argv[1], sys.argv[2]).digest)"

    many = [
        subprocess.Popen([sys.executable, "-c", program, code, home], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    answers = {process.communicate()[0] for process in many}

    assert answers == {take(code, home).digest + "\n"}
    assert [process.returncode for process in many] == [0] * 6
    assert _require_true_blobs(home) == 151 + 1
    assert [path.suffix for path in (home / "cache").iterdir()] in ([], [".stats"])


def test_what_a_killed_snapshot_left_behind_is_cleared_after_a_day(code: Path, home: Path) -> None:
    (code / "a").write_bytes(b"one")
    incoming = home / "blobs" / "incoming"
    incoming.mkdir(parents=True)
    for name, age_s in (("old", 90_000), ("young", 60)):
        (incoming / name).write_bytes(b"half")
        os.utime(incoming / name, (time.time() - age_s, time.time() - age_s))

    take(code, home)

    assert [path.name for path in incoming.iterdir()] == ["young"]


def test_a_store_inside_the_code_folder_does_not_travel(code: Path) -> None:
    (code / "a").write_bytes(b"one")

    digests = {take(code, code / "home").digest for _ in range(2)}

    assert len(digests) == 1
    assert [row[0] for row in take(code, code / "home").manifest["files"]] == ["a"]


def test_files_that_may_not_be_read_are_told_together(
    open_folder: Path, as_nobody: Callable[[Callable[[], Any]], Any]
) -> None:
    code = open_folder / "code"
    code.mkdir()
    for number in range(7):
        (code / f"key{number}").write_bytes(b"secret")
        (code / f"key{number}").chmod(0o600)
    (code / "train.py").write_bytes(b"x")

    kind, what, why, hint = as_nobody(lambda: take(code, open_folder / "home"))

    assert kind == "Unreadable"
    assert what == "7 entries of the code folder cannot be read"
    assert "`key0`, `key1`, `key2`, `key3`, `key4` and 2 more" in why
    assert "`.drayignore`:\n    /key0\n" in hint


def test_a_full_disk_is_told_before_anything_is_written(code: Path, small_disk: Path) -> None:
    (code / "big").write_bytes(os.urandom(3_000_000))

    with pytest.raises(NoRoomForBlobs) as caught:
        take(code, small_disk / "home")

    assert "needs 3.0 MB more and has 2.1 MB left" in (caught.value.why or "")
    assert _require_true_blobs(small_disk / "home") == 0


def test_a_nearly_full_disk_is_enough_for_what_is_there_already(code: Path, small_disk: Path) -> None:
    (code / "big").write_bytes(os.urandom(1_500_000))
    home = small_disk / "home"
    first = take(code, home)
    os.utime(code / "big", (1, 1))  # looks new

    assert take(code, home).digest == first.digest


def test_a_disk_that_fills_up_meanwhile_is_told_and_leaves_nothing_half(code: Path, small_disk: Path) -> None:
    source = code / "grows"
    source.write_bytes(b"x" * 2_500_000)
    store = BlobStore(str(small_disk / "home"))
    store.prepare()

    with pytest.raises(NoRoomForBlobs):
        store.put(str(source), "grows", lambda done: None)

    assert _require_true_blobs(small_disk / "home") == 0


def test_files_as_long_as_a_piece_and_a_byte_more_or_less_are_stored_whole(code: Path, home: Path) -> None:
    sizes = [0, 1, 2, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 2 << 20, (2 << 20) + 1]
    contents = {f"f{size}": os.urandom(size) for size in sizes}
    for name, content in contents.items():
        (code / name).write_bytes(content)

    snapshot = take(code, home)

    rows = {path: (digest, size) for path, digest, size, _ in snapshot.manifest["files"]}
    assert rows == {name: (_sha(content), len(content)) for name, content in contents.items()}
    for content in contents.values():
        assert snapshot.blob_path(_sha(content)).read_bytes() == content
    assert os.listdir(home / "blobs" / "incoming") == []
