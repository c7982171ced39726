"""Exports that lie: each is refused with a word about what is wrong, and nothing of it is anywhere afterwards."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray import DrayError, Workspace
from dray.workspace.errors import BadExport, NoRoomToImport
from dray.workspace.listing import NAME, Place, require_inside
from tests.workspace.exports import exported, facts, listed_again, tree
from tests.workspace.worlds import World

LOG = "attempts/1/streams/log.script"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest export. Only for copying."""
    folder = tmp_path_factory.mktemp("good")
    return exported(folder / "home", folder / "archive")


@pytest.fixture
def bad(good: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoiled."""
    return shutil.copytree(good, tmp_path / "archive" / good.name)


def _list(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    said = json.loads((folder / NAME).read_text())
    change(said)
    (folder / NAME).write_text(json.dumps(said))


def _row(folder: Path, path: str, change: Callable[[list[Any]], object]) -> None:
    _list(folder, lambda said: change(next(row for row in said["files"] if row[0] == path)))


def _swap(folder: Path, path: str, make: Callable[[Path], object]) -> None:
    (folder / path).unlink()
    make(folder / path)


def _renamed(to: str) -> Callable[[Path], None]:
    return lambda folder: _row(folder, LOG, lambda row: row.__setitem__(0, to))


def _changed(path: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    """The list agrees with what was changed."""

    def change(folder: Path) -> None:
        place = folder / path
        data = place.read_bytes()
        assert old in data
        place.chmod(0o600)
        place.write_bytes(data.replace(old, new, 1))
        listed_again(folder)

    return change


def _with(path: str) -> Callable[[Path], None]:
    def add(folder: Path) -> None:
        (folder / path).write_text("boo")
        listed_again(folder)

    return add


def _without(path: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        (folder / path).unlink()
        listed_again(folder)

    return remove


def _linked_folder(folder: Path) -> None:
    (folder / "attempts").rename(folder.parent / ".elsewhere")
    (folder / "attempts").symlink_to(folder.parent / ".elsewhere")


def _secret(folder: Path) -> None:
    """A list that names a file of the user, reached by a link, with its true digest."""
    mine = folder.parent / "mine.txt"
    mine.write_text("my diary")
    _swap(folder, LOG, lambda place: place.symlink_to(mine))
    listed_again(folder)


def _socket(place: Path) -> None:
    here = os.getcwd()
    os.chdir(place.parent)  # a socket's name must be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(place.name)
    os.chdir(here)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "no list": lambda f: (f / NAME).unlink(),
    "a list that is empty": lambda f: (f / NAME).write_text(""),
    "a list that is no object": lambda f: (f / NAME).write_text("[]"),
    "a list nested deeply": lambda f: (f / NAME).write_text("[" * 200_000),
    "a list of a newer form": lambda f: _list(f, lambda said: said.update(v=2)),
    "a list with a gigantic number": lambda f: (f / NAME).write_text('{"v": 1' + "0" * 5000 + "}"),
    "a list without files": lambda f: _list(f, lambda said: said.update(files=7)),
    "a list that names nothing": lambda f: _list(f, lambda said: said.update(files=[])),
    "a list that is a link": lambda f: _swap(f, NAME, lambda p: p.symlink_to("/etc/passwd")),
    "no run id": lambda f: _list(f, lambda said: said.update(run="../../../etc")),
    "a run id with control characters": lambda f: _list(f, lambda said: said.update(run="\x1b[31mabcdef")),
    "another run's id": lambda f: _list(f, lambda said: said.update(run="abcdefghjk")),
    "a path upwards": _renamed("../../../../etc/passwd"),
    "a path upwards inside": _renamed("attempts/../../x"),
    "an absolute path": _renamed("/etc/passwd"),
    "a path with NUL": _renamed("attempts/1/\0"),
    "a path with an empty part": _renamed("attempts//x"),
    "a path with a dot": _renamed("./run.json"),
    "a path that no file can have": _renamed("attempts/\ud800"),
    "a path that is too long": _renamed("a/" * 3000 + "b"),
    "a name that is too long": _renamed("a" * 300),
    "the list in the list": _renamed(NAME),
    "a file that is a folder": _renamed("run.json/x"),
    "the same path twice": lambda f: _list(f, lambda said: said["files"].append(said["files"][0])),
    "a wrong digest": lambda f: _row(f, LOG, lambda row: row.__setitem__(2, "0" * 64)),
    "no digest": lambda f: _row(f, LOG, lambda row: row.pop()),
    "a digest in capitals": lambda f: _row(f, LOG, lambda row: row.__setitem__(2, row[2].upper())),
    "a size too small": lambda f: _row(f, LOG, lambda row: row.__setitem__(1, row[1] - 1)),
    "a size too large": lambda f: _row(f, LOG, lambda row: row.__setitem__(1, 10**15)),
    "a negative size": lambda f: _row(f, LOG, lambda row: row.__setitem__(1, -1)),
    "a size that is true": lambda f: _row(f, LOG, lambda row: row.__setitem__(1, True)),
    "a missing file": lambda f: (f / LOG).unlink(),
    "a file that is a link": _secret,
    "a file that is a link to nowhere": lambda f: _swap(f, LOG, lambda p: p.symlink_to("nowhere")),
    "a folder that is a link": _linked_folder,
    "a file that is a pipe": lambda f: _swap(f, LOG, os.mkfifo),
    "a file that is a socket": lambda f: _swap(f, LOG, _socket),
    "a file that is a device": lambda f: _swap(f, LOG, lambda p: os.mknod(p, 0o020666, os.makedev(1, 5))),
    "a file that is a folder there": lambda f: _swap(f, LOG, Path.mkdir),
    "a forged log": _changed("run.json", b'"bytes": 9', b'"bytes": 8'),
    "a run that is running": _changed("run.json", b'"completed"', b'"running"'),
    "a stream outside": _changed("run.json", b'"log.script"', b'"log.../../../x"'),
    "a number of 5000 digits": _changed("run.json", b'"attempts": 1', b'"attempts": ' + b"9" * 5000),
    "a step of 30 digits": _changed(
        "attempts/1/metrics/events.0123abcd.csv", b"\nloss,0", b"\nloss," + b"9" * 30
    ),
    "deep JSON": _changed("attempts/1/end.json", b"{", b'{"x":' + b"[" * 5000 + b"]" * 5000 + b","),
    "another code": _changed("manifest.json", b'"v":1', b'"v":1 '),
    "code that is not the manifest's": _changed("code/train.py", b"hello", b"hallo"),
    "code outside the manifest": _with("code/evil.py"),
    "code without a manifest": _without("manifest.json"),
    "code that is missing": _without("code/train.py"),
}


@pytest.mark.parametrize("spoil", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("dry_run", [False, True], ids=["import", "dry run"])
def test_a_hostile_export_is_refused_and_leaves_nothing(
    bad: Path, tmp_path: Path, spoil: Callable[[Path], object], dry_run: bool
) -> None:
    spoil(bad)
    before = tree(bad.parent)
    home = tmp_path / "there"

    with Workspace(home) as workspace, pytest.raises(BadExport) as caught:
        workspace.import_runs(bad.parent, dry_run=dry_run)

    assert str(bad) in caught.value.what
    assert caught.value.why
    assert "\x1b" not in str(caught.value) and "\n" not in caught.value.why
    assert facts(home) == {}
    assert {path for path in tree(home) if not path.startswith("history.db")} <= {"gate"}
    assert tree(bad.parent) == before


def test_an_honest_export_is_not_refused(bad: Path, tmp_path: Path) -> None:
    listed_again(bad)
    (bad / "README").write_text("a word of the owner, in no list")
    (bad / "more").symlink_to("/etc")

    with Workspace(tmp_path / "there") as workspace:
        (done,) = workspace.import_runs(bad.parent)

    assert done.outcome == "imported"
    assert not (tmp_path / "there" / "imported" / bad.name / "README").exists()


def test_a_hostile_export_keeps_no_honest_one_away(
    bad: Path, good: Path, tmp_path: Path, world: World
) -> None:
    other = exported(tmp_path / "other", bad.parent)
    (bad / LOG).unlink()

    said = world.dray("import", str(bad.parent))

    assert (said.code, said.out.decode()) == (1, f"{other.name}\timported\n")
    assert set(facts(world.home)) == {other.name}


def test_words_of_a_hostile_export_do_not_reach_the_terminal(bad: Path, world: World) -> None:
    _renamed("attempts/\x1b]0;owned\x07/../x")(bad)

    said = world.dray("import", str(bad))

    assert said.code == 1
    assert "\x1b" not in said.err and "\x07" not in said.err
    assert "leads out of the folder" in said.err


def test_what_would_fill_the_disk_is_refused_before_anything_is_read(bad: Path, tmp_path: Path) -> None:
    """A file that says it has terabytes, and has: of holes."""
    with (bad / LOG).open("r+b") as file:
        file.truncate(1 << 43)
    _row(bad, LOG, lambda row: row.__setitem__(1, 1 << 43))

    with Workspace(tmp_path / "there") as workspace, pytest.raises(NoRoomToImport, match="8.8 TB"):
        workspace.import_runs(bad)

    assert facts(tmp_path / "there") == {}


def test_a_full_disk_in_the_middle_leaves_nothing(bad: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    home = tmp_path / "there"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", home], check=True)
    try:
        with Workspace(home) as workspace:
            assert workspace.runs() == []
            room = os.statvfs(home)
            (home / "ballast").write_bytes(bytes(room.f_bavail * room.f_bsize - 12288))

            with pytest.raises(DrayError):
                workspace.import_runs(bad)

            assert facts(home) == {}
            (home / "ballast").unlink()
            assert list((home / "imported").iterdir()) == []
            assert workspace.import_runs(bad)[0].outcome == "imported"
    finally:
        subprocess.run(["umount", "-l", home], check=True)


_parts = st.one_of(
    st.sampled_from(["", ".", "..", "a", "...", "\0", "~", "\ud800", "\udc80", "\x1b", "b" * 255, "c" * 256]),
    st.text(max_size=4),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_parts, max_size=6).map("/".join))
def test_a_path_that_is_let_in_stays_in(path: str) -> None:
    folder = "/some/where"
    try:
        require_inside(path)
    except ValueError:
        return
    full = os.path.normpath(os.path.join(folder, path))
    assert full.startswith(folder + "/")
    assert full == f"{folder}/{path}"
    assert all(len(os.fsencode(part)) <= 255 for part in path.split("/"))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(
        st.sampled_from(["v", "run", "missing", "files", "x"]), inner, max_size=5)),
), st.sampled_from(["v", "run", "missing", "files"]))  # fmt: skip
def test_any_list_is_read_or_refused_and_nothing_else(
    good: Path, tmp_path: Path, value: Any, field: str
) -> None:
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    said = json.loads((good / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**said, field: value}))

    with Place(folder) as place:
        try:
            place.check(place.listing())
        except BadExport:
            return
    assert value in ([], said[field])
