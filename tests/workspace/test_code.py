"""The exact code of a run is had again from wherever it still is, and nothing that is not exact is taken for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.core.spec import RunSpec, canonical_json
from dray.snapshot import BadManifest
from dray.workspace import Run, Workspace
from dray.workspace.code import Code
from dray.workspace.errors import CodeGone, NoCode
from tests.workspace.liars import Answer, Liar
from tests.workspace.worlds import World

TRAIN = b"print('exact')\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def workspace(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.chdir(world.project)
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    with Workspace(world.home) as made:
        yield made


@pytest.fixture
def run(world: World, workspace: Workspace) -> Run:
    world.write("train.py", TRAIN.decode())
    world.write("same.py", TRAIN.decode())
    world.write("other.txt", "other")
    return workspace.submit("train.py").wait()


def blob(workspace: Workspace, digest: str) -> Path:
    return workspace.home / "blobs" / digest[:2] / digest[2:]


def damage(place: Path) -> None:
    """Other content of the same length."""
    data = place.read_bytes()
    place.chmod(0o600)
    place.write_bytes(bytes(byte ^ 1 for byte in data))


def code_folder(workspace: Workspace, run: Run) -> Path:
    (found,) = workspace.home.glob(f"machine/*/runs/{run.id}/code")
    return found


def test_code_that_is_here_is_had_without_asking_the_machine(workspace: Workspace, run: Run) -> None:
    silent = Liar("local", lambda request: [])
    with Workspace(workspace.home, targets=[silent]) as alone:
        snapshot = Code(alone, run.record).whole()

    assert snapshot.digest == run.record.spec.snapshot
    assert [row[0] for row in snapshot.manifest["files"]] == ["other.txt", "same.py", "train.py"]
    assert silent.asked == []


@pytest.mark.parametrize("how", [Path.unlink, damage])
def test_what_is_lost_or_damaged_here_comes_from_the_run_folder_and_is_mended(
    workspace: Workspace, run: Run, how: Any
) -> None:
    digest = run.record.spec.snapshot
    for lost in (digest, sha(TRAIN), sha(b"other")):
        how(blob(workspace, lost))

    snapshot = Code(workspace, run.record).whole()

    assert blob(workspace, sha(TRAIN)).read_bytes() == TRAIN
    assert blob(workspace, digest).read_bytes() == canonical_json(snapshot.manifest)


def test_a_copy_that_the_script_left_alone_is_good_enough(workspace: Workspace, run: Run) -> None:
    blob(workspace, sha(TRAIN)).unlink()
    (code_folder(workspace, run) / "same.py").write_bytes(b"print('other')\n")  # of the same length

    Code(workspace, run.record).whole()

    assert blob(workspace, sha(TRAIN)).read_bytes() == TRAIN


def test_contents_that_are_nowhere_any_more_are_named(workspace: Workspace, run: Run) -> None:
    blob(workspace, sha(TRAIN)).unlink()
    for name in ("train.py", "same.py"):
        (code_folder(workspace, run) / name).write_bytes(b"changed by the script")

    with pytest.raises(CodeGone) as caught:
        Code(workspace, run.record).whole()

    assert caught.value.why == ("of its 3 files `same.py`, `train.py` are not intact here, nor on `local`")


@pytest.mark.parametrize("ruin", ["gone", "damaged", "pipe", "huge", "other"])
def test_a_manifest_that_is_nowhere_any_more_is_told(workspace: Workspace, run: Run, ruin: str) -> None:
    import os
    import shutil

    blob(workspace, run.record.spec.snapshot).unlink()
    place = code_folder(workspace, run).parent / "manifest.json"
    if ruin == "gone":
        shutil.rmtree(place.parent)
    elif ruin == "damaged":
        place.write_bytes(place.read_bytes()[:-20])
    elif ruin == "pipe":
        place.unlink()
        os.mkfifo(place)
    elif ruin == "huge":
        os.truncate(place, 1 << 40)
    else:
        place.write_bytes(canonical_json({"v": 1, "files": [], "links": [], "dirs": []}))

    with pytest.raises(BadManifest if ruin == "other" else CodeGone):
        Code(workspace, run.record).whole()

    assert not blob(workspace, run.record.spec.snapshot).exists()


def test_a_machine_gives_only_contents_that_belong_to_the_run(
    world: World, workspace: Workspace, run: Run
) -> None:
    world.write("train.py", "print('private')\n")
    other = workspace.submit("train.py").wait()
    private = sha(b"print('private')\n")

    with workspace.connect("local") as connection:
        connection.ask({"op": "blobs", "run": run.id, "digests": [private, "../../id", sha(TRAIN)]})
        heard: list[Answer] = []
        while "done" not in (heard[-1][0] if heard else {}):
            heard.append(connection.receive())

    assert other.status == "completed"
    assert heard == [
        ({"gone": private}, b""),
        ({"gone": "../../id"}, b""),
        ({"blob": sha(TRAIN), "last": True}, TRAIN),
        ({"done": True}, b""),
    ]


def test_a_link_that_a_script_put_in_a_files_place_is_not_followed(workspace: Workspace, run: Run) -> None:
    blob(workspace, sha(b"other")).unlink()
    place = code_folder(workspace, run) / "other.txt"
    outside = workspace.home / "outside"
    outside.write_bytes(b"other")
    place.unlink()
    place.symlink_to(outside)

    with pytest.raises(CodeGone, match="is not to be had"):
        Code(workspace, run.record).whole()


def test_a_run_without_code_is_told_so(workspace: Workspace) -> None:
    for number, digest in enumerate(["", "../../../../etc/passwd", "A" * 64]):
        spec = RunSpec(f"abcdefghj{number + 2}", "e", "local", ("x",), created=1.0, snapshot=digest)
        workspace.store.create_run(spec)
        with pytest.raises(NoCode):
            Code(workspace, workspace.run(spec.id).record)


MANIFEST = {"v": 1, "files": [["a.py", sha(b"12345678"), 8, 0]], "links": [], "dirs": []}
DIGEST = sha(canonical_json(MANIFEST))


def known(request: dict[str, Any]) -> list[Answer]:
    return [({"manifest": MANIFEST}, b"")]


def piece(data: bytes, *, last: bool = True, digest: str = sha(b"12345678")) -> Answer:
    return {"blob": digest, "last": last}, data


DONE: Answer = ({"done": True}, b"")


@pytest.mark.parametrize(
    "said",
    [
        [piece(b"87654321"), DONE],
        [piece(b"1234"), DONE],
        [piece(b"123456789"), DONE],
        [piece(b"1234", last=False), piece(b"x" * (1 << 20), last=False)],
        [piece(b"1234", last=False), piece(b"", last=False)],
        [piece(b"1234", last=False), piece(b"5678", digest=sha(b""))],
        [piece(b"12345678", digest=sha(b"")), DONE],
        [piece(b"12345678", digest="../../../escaped"), DONE],
        [({"gone": ["x"]}, b"")],
        [({"error": "os-error", "text": "no\x1b[31m"}, b"")],
        [DONE],
        [],
    ],
)
def test_no_content_that_a_machine_makes_up_is_taken(tmp_path: Path, said: list[Answer]) -> None:
    liar = Liar("liar", lambda request: known(request) if request["op"] == "manifest" else said)
    with Workspace(tmp_path / "home", targets=[liar]) as workspace:
        workspace.store.create_run(
            RunSpec("abcdefghjk", "e", "liar", ("a.py",), created=1.0, snapshot=DIGEST)
        )
        with pytest.raises(CodeGone) as caught:
            Code(workspace, workspace.run().record).whole()

        assert liar.asked == ["manifest", "blobs"]
        assert "\x1b" not in str(caught.value.why)
        kept = [path for path in (workspace.home / "blobs").rglob("*") if path.is_file()]
        assert kept == [blob(workspace, DIGEST)]


def test_no_manifest_that_a_machine_makes_up_is_taken(tmp_path: Path) -> None:
    hostile = {**MANIFEST, "files": [["../../escaped", sha(b"x"), 1 << 50, 0]]}
    for told, digest in ((hostile, sha(canonical_json(hostile))), (hostile, DIGEST), ([], DIGEST)):
        liar = Liar("liar", lambda request, told=told: [({"manifest": told}, b"")])  # type: ignore[misc]
        with Workspace(tmp_path / digest[:8] / str(type(told)), targets=[liar]) as workspace:
            workspace.store.create_run(
                RunSpec("abcdefghjk", "e", "liar", ("a.py",), created=1.0, snapshot=digest)
            )
            with pytest.raises(BadManifest):
                Code(workspace, workspace.run().record).whole()
            assert not (workspace.home / "blobs").exists()


def test_more_than_the_disk_can_take_is_not_even_asked_for(tmp_path: Path) -> None:
    from dray.snapshot import NoRoomForBlobs

    huge = {**MANIFEST, "files": [["a.py", sha(b"x"), 1 << 60, 0]]}
    liar = Liar("liar", lambda request: [({"manifest": huge}, b"")])
    with Workspace(tmp_path / "home", targets=[liar]) as workspace:
        spec = RunSpec("abcdefghjk", "e", "liar", ("a.py",), created=1.0, snapshot=sha(canonical_json(huge)))
        workspace.store.create_run(spec)
        with pytest.raises(NoRoomForBlobs):
            Code(workspace, workspace.run().record).whole()
    assert liar.asked == ["manifest"]


def test_a_machine_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    liar = Liar("liar", lambda request: [])
    with Workspace(tmp_path / "home", targets=[liar]) as workspace:
        workspace.store.create_run(
            RunSpec("abcdefghjk", "e", "liar", ("a.py",), created=1.0, snapshot=DIGEST)
        )
        with pytest.raises(CodeGone, match="abcdefghjk") as caught:
            Code(workspace, workspace.run().record).whole()
    assert caught.value.why is not None
    assert "`liar` could not help: the connection to a liar broke" in caught.value.why
